"""Qwen2 and Qwen2.5: like Llama, with a bias on queries, keys and values."""

from __future__ import annotations

from typing import final

from silicast.workload.families._family import Family, Fields, register
from silicast.workload.families._qwen_windows import qwen_windows
from silicast.workload.model import ModelConfig
from silicast.workload.precision import Precision


@register
@final
class Qwen2(Family):
    """Ties embeddings in its small sizes; a window only where ``use_sliding_window`` is set."""

    architectures = ("Qwen2ForCausalLM",)
    model_types = ("qwen2",)

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        layers = fields.layers("num_hidden_layers")
        hidden, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
        return ModelConfig(
            name=name,
            family="qwen2",
            layers=layers,
            hidden=hidden,
            heads=heads,
            kv_heads=fields.integer("num_key_value_heads", default=heads),
            head_dim=fields.head_dim(hidden, heads),
            intermediate=fields.integer("intermediate_size"),
            vocab=fields.integer("vocab_size"),
            activation=fields.activation("hidden_act", default="silu"),
            qkv_bias=True,
            tied=fields.flag("tie_word_embeddings", default=False),
            windows=qwen_windows(fields, layers),
            max_positions=fields.integer("max_position_embeddings", default=32768),
            default_precision=precision,
        )
