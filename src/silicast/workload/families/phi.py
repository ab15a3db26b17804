"""Phi-1 and Phi-2: attention and MLP side by side on one norm, biases everywhere."""

from __future__ import annotations

from typing import final

from silicast.workload.families._family import Family, Fields, register
from silicast.workload.model import ModelConfig
from silicast.workload.precision import Precision


@register
@final
class Phi(Family):
    """Not Phi-3, which is Llama-shaped with fused projections."""

    architectures = ("PhiForCausalLM",)
    model_types = ("phi",)

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        hidden, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
        fields.refuse("qk_layernorm", "LayerNorm on queries and keys")
        return ModelConfig(
            name=name,
            family="phi",
            layers=fields.layers("num_hidden_layers"),
            hidden=hidden,
            heads=heads,
            kv_heads=fields.integer("num_key_value_heads", default=heads),
            head_dim=fields.head_dim(hidden, heads),
            intermediate=fields.integer("intermediate_size"),
            vocab=fields.integer("vocab_size"),
            norm="layernorm",
            norm_bias=True,
            gated=False,
            activation=fields.activation("hidden_act", default="gelu_new"),
            qkv_bias=True,
            o_bias=True,
            mlp_bias=True,
            head_bias=True,
            residual="parallel",
            tied=fields.flag("tie_word_embeddings", default=False),
            max_positions=fields.integer("max_position_embeddings", default=2048),
            default_precision=precision,
        )
