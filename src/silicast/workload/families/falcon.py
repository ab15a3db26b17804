"""Falcon: attention and MLP side by side, few key-value heads, no biases."""

from __future__ import annotations

from typing import final

from silicast.workload.families._family import Family, Fields, register
from silicast.workload.model import ModelConfig
from silicast.workload.precision import Precision


@register
@final
class Falcon(Family):
    """``new_decoder_architecture`` has two norms and ``num_kv_heads``; else one norm, and with
    ``multi_query`` one key-value head.
    """

    architectures = ("FalconForCausalLM", "RWForCausalLM")
    model_types = ("falcon", "RefinedWeb", "RefinedWebModel")

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        hidden, heads = (
            fields.integer("hidden_size"),
            fields.integer("num_attention_heads", "n_head"),
        )
        new = fields.flag("new_decoder_architecture", default=False)
        queries = fields.flag("multi_query", default=True)
        bias = fields.flag("bias", default=False)
        one = 1 if queries else heads
        alibi = fields.flag("alibi", default=False)
        if not fields.flag("parallel_attn", default=True):
            fields.refuse("num_attention_heads", "Falcon with the MLP after attention")
        return ModelConfig(
            name=name,
            family="falcon",
            layers=fields.layers("num_hidden_layers", "n_layer"),
            hidden=hidden,
            heads=heads,
            kv_heads=fields.integer("num_kv_heads", "n_head_kv", default=one) if new else one,
            head_dim=fields.head_dim(hidden, heads),
            intermediate=fields.integer("ffn_hidden_size", default=4 * hidden),
            vocab=fields.integer("vocab_size", default=65024),
            norm="layernorm",
            norm_bias=True,
            gated=False,
            activation="gelu",
            qkv_bias=bias,
            o_bias=bias,
            mlp_bias=bias,
            position="alibi" if alibi else "rope",
            residual="parallel_two_norms" if new else "parallel",
            tied=fields.flag("tie_word_embeddings", default=True),
            max_positions=fields.integer("max_position_embeddings", default=2048),
            default_precision=precision,
        )
