"""BLOOM: alibi positions, a norm after the embedding, LayerNorm and biases everywhere."""

from __future__ import annotations

from typing import final

from silicast.workload.families._family import Family, Fields, register
from silicast.workload.model import ModelConfig
from silicast.workload.precision import Precision


@register
@final
class Bloom(Family):
    """The MLP is four times as wide as the hidden size; the head is tied."""

    architectures = ("BloomForCausalLM",)
    model_types = ("bloom",)

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        hidden = fields.integer("hidden_size", "n_embed")
        heads = fields.integer("n_head", "num_attention_heads")
        return ModelConfig(
            name=name,
            family="bloom",
            layers=fields.layers("n_layer", "num_hidden_layers"),
            hidden=hidden,
            heads=heads,
            kv_heads=heads,
            head_dim=fields.head_dim(hidden, heads),
            intermediate=4 * hidden,
            vocab=fields.integer("vocab_size"),
            norm="layernorm",
            norm_bias=True,
            gated=False,
            activation="gelu",
            qkv_bias=True,
            o_bias=True,
            mlp_bias=True,
            position="alibi",
            embedding_norm=True,
            tied=True,
            max_positions=fields.integer("seq_length", default=2048),
            default_precision=precision,
        )
