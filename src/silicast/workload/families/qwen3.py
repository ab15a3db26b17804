"""Qwen3 (dense): like Llama, with queries and keys normalised per head and a stated head_dim.

The text part of Qwen3-VL is the same.
"""

from __future__ import annotations

from typing import final

from silicast.workload.families._encoders import qwen3_vision
from silicast.workload.families._family import Family, Fields, register
from silicast.workload.families._qwen_windows import qwen_windows
from silicast.workload.model import ModelConfig
from silicast.workload.precision import Precision


@register
@final
class Qwen3(Family):
    """``heads * head_dim`` may exceed the hidden size."""

    architectures = ("Qwen3ForCausalLM", "Qwen3VLForConditionalGeneration")
    model_types = ("qwen3", "qwen3_vl", "qwen3_vl_text")
    structures = ("vision",)
    text_part = True

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        layers = fields.layers("num_hidden_layers")
        heads = fields.integer("num_attention_heads")
        bias = fields.flag("attention_bias", default=False)
        return ModelConfig(
            name=name,
            family="qwen3",
            layers=layers,
            hidden=fields.integer("hidden_size"),
            heads=heads,
            kv_heads=fields.integer("num_key_value_heads", default=heads),
            head_dim=fields.integer("head_dim", default=128),
            intermediate=fields.integer("intermediate_size"),
            vocab=fields.integer("vocab_size"),
            activation=fields.activation("hidden_act", default="silu"),
            qkv_bias=bias,
            o_bias=bias,
            qk_norm=True,
            tied=fields.flag("tie_word_embeddings", default=False),
            windows=qwen_windows(fields, layers),
            max_positions=fields.integer("max_position_embeddings", default=32768),
            encoder_parameters=qwen3_vision(fields),
            default_precision=precision,
        )
