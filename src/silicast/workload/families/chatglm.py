"""ChatGLM 2, 3 and GLM-4-9B: few key-value heads, a bias on queries, keys and values."""

from __future__ import annotations

from typing import final

from silicast.workload.families._family import Family, Fields, register
from silicast.workload.model import ModelConfig
from silicast.workload.precision import Precision


@register
@final
class ChatGlm(Family):
    """Sizes have names of their own."""

    architectures = ("ChatGLMModel", "ChatGLMForConditionalGeneration")
    model_types = ("chatglm",)

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        hidden, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
        groups = fields.integer("multi_query_group_num", default=heads)
        grouped = fields.flag("multi_query_attention", default=False)
        bias = fields.flag("add_bias_linear", default=False)
        return ModelConfig(
            name=name,
            family="chatglm",
            layers=fields.layers("num_layers", "num_hidden_layers"),
            hidden=hidden,
            heads=heads,
            kv_heads=groups if grouped else heads,
            head_dim=fields.integer("kv_channels", default=128),
            intermediate=fields.integer("ffn_hidden_size"),
            vocab=fields.integer("padded_vocab_size", "vocab_size"),
            qkv_bias=fields.flag("add_qkv_bias", default=True) or bias,
            o_bias=bias,
            mlp_bias=bias,
            tied=fields.flag("tie_word_embeddings", default=False),
            max_positions=fields.integer("seq_length", default=8192),
            default_precision=precision,
        )
