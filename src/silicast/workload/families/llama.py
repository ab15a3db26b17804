"""Llama 1 to 3: RMSNorm, rotary positions, grouped queries, gated SiLU MLP; also Yi."""

from __future__ import annotations

from typing import final

from silicast.workload.families._family import Family, Fields, register
from silicast.workload.model import ModelConfig
from silicast.workload.precision import Precision


@register
@final
class Llama(Family):
    """``attention_bias`` and ``mlp_bias`` put a bias on all projections of their block."""

    architectures = ("LlamaForCausalLM",)
    model_types = ("llama",)

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        hidden, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
        bias = fields.flag("attention_bias", default=False)
        return ModelConfig(
            name=name,
            family="llama",
            layers=fields.layers("num_hidden_layers"),
            hidden=hidden,
            heads=heads,
            kv_heads=fields.integer("num_key_value_heads", default=heads),
            head_dim=fields.head_dim(hidden, heads),
            intermediate=fields.integer("intermediate_size"),
            vocab=fields.integer("vocab_size"),
            activation=fields.activation("hidden_act", default="silu"),
            qkv_bias=bias,
            o_bias=bias,
            mlp_bias=fields.flag("mlp_bias", default=False),
            tied=fields.flag("tie_word_embeddings", default=False),
            max_positions=fields.integer("max_position_embeddings", default=2048),
            default_precision=precision,
        )
