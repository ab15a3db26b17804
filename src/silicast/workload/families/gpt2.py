"""GPT-2, and GPT-3 in its shape: LayerNorm, learned positions, biases, plain GELU MLP."""

from __future__ import annotations

from typing import final

from silicast.workload.families._family import Family, Fields, register
from silicast.workload.model import ModelConfig
from silicast.workload.precision import Precision


@register
@final
class Gpt2(Family):
    """``n_inner`` defaults to four times the hidden size; the head is tied."""

    architectures = ("GPT2LMHeadModel",)
    model_types = ("gpt2",)

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        hidden = fields.integer("n_embd", "hidden_size")
        heads = fields.integer("n_head", "num_attention_heads")
        positions = fields.integer("n_positions", "n_ctx", "max_position_embeddings", default=1024)
        fields.refuse("add_cross_attention", "cross attention")
        return ModelConfig(
            name=name,
            family="gpt2",
            layers=fields.layers("n_layer", "num_hidden_layers"),
            hidden=hidden,
            heads=heads,
            kv_heads=heads,
            head_dim=fields.head_dim(hidden, heads),
            intermediate=fields.integer("n_inner", default=4 * hidden),
            vocab=fields.integer("vocab_size", default=50257),
            norm="layernorm",
            norm_bias=True,
            gated=False,
            activation=fields.activation("activation_function", default="gelu_new"),
            qkv_bias=True,
            o_bias=True,
            mlp_bias=True,
            position="learned",
            position_rows=positions,
            tied=fields.flag("tie_word_embeddings", default=True),
            max_positions=positions,
            default_precision=precision,
        )
