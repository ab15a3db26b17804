"""Qwen (first generation): Llama's structure; intermediate_size counts both halves of the MLP."""

from __future__ import annotations

from typing import final

from silicast.workload.families._family import Family, Fields, register
from silicast.workload.model import ModelConfig
from silicast.workload.precision import Precision


@register
@final
class Qwen(Family):
    """A bias on queries, keys and values; gate and up projection of half ``intermediate_size``."""

    architectures = ("QWenLMHeadModel",)
    model_types = ("qwen",)

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        hidden, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
        return ModelConfig(
            name=name,
            family="qwen",
            layers=fields.layers("num_hidden_layers"),
            hidden=hidden,
            heads=heads,
            kv_heads=heads,
            head_dim=fields.integer("kv_channels", default=0) or fields.head_dim(hidden, heads),
            intermediate=fields.integer("intermediate_size") // 2,
            vocab=fields.integer("vocab_size"),
            qkv_bias=True,
            tied=fields.flag("tie_word_embeddings", default=False),
            max_positions=fields.integer("seq_length", default=8192),
            default_precision=precision,
        )
