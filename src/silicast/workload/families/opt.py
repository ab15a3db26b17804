"""OPT: LayerNorm, learned positions shifted by two, biases everywhere, plain ReLU MLP."""

from __future__ import annotations

from typing import final

from silicast.workload.families._family import Family, Fields, register
from silicast.workload.model import ModelConfig
from silicast.workload.precision import Precision

_POSITION_OFFSET = 2
"""OPT's position table has two rows that no token uses (transformers, modeling_opt)."""


@register
@final
class Opt(Family):
    """350M has an embedding of another width, and norms on the residual's sums."""

    architectures = ("OPTForCausalLM",)
    model_types = ("opt",)

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        hidden, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
        width = fields.integer("word_embed_proj_dim", default=hidden)
        before = fields.flag("do_layer_norm_before", default=True)
        bias = fields.flag("enable_bias", default=True)
        positions = fields.integer("max_position_embeddings", default=2048)
        return ModelConfig(
            name=name,
            family="opt",
            layers=fields.layers("num_hidden_layers"),
            hidden=hidden,
            heads=heads,
            kv_heads=heads,
            head_dim=fields.head_dim(hidden, heads),
            intermediate=fields.integer("ffn_dim"),
            vocab=fields.integer("vocab_size", default=50272),
            norm="layernorm",
            norm_at="input" if before else "sum",
            embedding_width=0 if width == hidden else width,
            norm_bias=fields.flag("layer_norm_elementwise_affine", default=True),
            gated=False,
            activation=fields.activation("activation_function", default="relu"),
            qkv_bias=bias,
            o_bias=bias,
            mlp_bias=bias,
            position="learned",
            position_rows=positions + _POSITION_OFFSET,
            tied=fields.flag("tie_word_embeddings", default=True),
            max_positions=positions,
            default_precision=precision,
        )
