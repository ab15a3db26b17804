"""What most decoders state under the same names, and windows by layer types."""

from __future__ import annotations

from typing import Any

from silicast.workload.families._family import Fields
from silicast.workload.precision import Precision


def usual(fields: Fields, name: str, precision: Precision, family: str) -> dict[str, Any]:
    """Sizes, biases and formats of a Llama-shaped decoder, as ``ModelConfig`` takes them.

    Raises:
        SilicastError: a size is missing or not a number; names the field.
    """
    hidden, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    bias = fields.flag("attention_bias", default=False)
    return {
        "name": name,
        "family": family,
        "layers": fields.layers("num_hidden_layers"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": fields.integer("num_key_value_heads", default=heads),
        "head_dim": fields.head_dim(hidden, heads),
        "intermediate": fields.integer("intermediate_size"),
        "vocab": fields.integer("vocab_size"),
        "activation": fields.activation("hidden_act", default="silu"),
        "qkv_bias": bias,
        "o_bias": bias,
        "mlp_bias": fields.flag("mlp_bias", default=False),
        "tied": fields.flag("tie_word_embeddings", default=False),
        "max_positions": fields.integer("max_position_embeddings", default=0),
        "default_precision": precision,
    }


def window_layers(fields: Fields, layers: int, every: int, default: int) -> tuple[int, ...]:
    """Windows of the layers that ``layer_types`` calls sliding; where it is missing, of all but
    every ``every``-th layer.

    Args:
        default: the window where ``sliding_window`` is missing, 0 = none.
    """
    usual_types = tuple(
        "full_attention" if (i + 1) % every == 0 else "sliding_attention" for i in range(layers)
    )
    window = fields.integer("sliding_window", default=default)
    types = fields.layer_types(layers, usual_types)
    if not window or "sliding_attention" not in types:
        return ()
    return tuple(window if kind == "sliding_attention" else 0 for kind in types)
