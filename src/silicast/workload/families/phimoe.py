"""Phi-3.5-MoE: Mixtral's structure with LayerNorm and biases in attention."""

from __future__ import annotations

from typing import final

from silicast.workload.families._family import Family, Fields, register
from silicast.workload.model import ModelConfig, MoE
from silicast.workload.precision import Precision


@register
@final
class PhiMoE(Family):
    """``sliding_window`` is as long as the longest context and not read."""

    architectures = ("PhiMoEForCausalLM", "PhimoeForCausalLM")
    model_types = ("phimoe",)
    structures = ("experts",)

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        hidden, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
        inner = fields.integer("intermediate_size")
        bias = fields.flag("attention_bias", default=False)
        return ModelConfig(
            name=name,
            family="phimoe",
            layers=fields.layers("num_hidden_layers"),
            hidden=hidden,
            heads=heads,
            kv_heads=fields.integer("num_key_value_heads", default=heads),
            head_dim=fields.head_dim(hidden, heads),
            intermediate=inner,
            vocab=fields.integer("vocab_size"),
            norm="layernorm",
            norm_bias=True,
            activation=fields.activation("hidden_act", default="silu"),
            qkv_bias=bias,
            o_bias=bias,
            head_bias=fields.flag("lm_head_bias", default=False),
            tied=fields.flag("tie_word_embeddings", default=False),
            max_positions=fields.integer("max_position_embeddings", default=131072),
            moe=MoE(
                experts=fields.integer("num_local_experts", default=16),
                topk=fields.integer("num_experts_per_tok", default=2),
                intermediate=inner,
            ),
            default_precision=precision,
        )
