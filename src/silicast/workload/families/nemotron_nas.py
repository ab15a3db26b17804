"""Llama-Nemotron (Super, Ultra): some layers without attention, MLPs of many widths."""

from __future__ import annotations

from typing import final

from silicast.workload.families._family import Family, Fields, register
from silicast.workload.model import LayerSizes, ModelConfig
from silicast.workload.precision import Precision


@register
@final
class NemotronNas(Family):
    """``block_configs`` says it layer by layer."""

    architectures = ("DeciLMForCausalLM",)
    model_types = ("nemotron-nas",)
    structures = ("sizes",)

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        layers, hidden = fields.layers("num_hidden_layers"), fields.integer("hidden_size")
        heads = fields.integer("num_attention_heads")
        blocks = fields.tables("block_configs", layers)
        mixers, feeds, sizes = [], [], []
        for block in blocks:
            attention, feed = block.table("attention"), block.table("ffn")
            for part in (attention, feed):
                part.refuse("replace_with_linear", "one product instead of attention or MLP")
                part.refuse("sparsify", "sparse weights")
            attention.refuse("window_length", "windows in this family")
            none = attention.flag("no_op", default=False)
            group = 1 if none else attention.integer("n_heads_in_group", default=1)
            mixers.append("" if none else "heads")
            feeds.append("" if feed.flag("no_op", default=False) else "mlp")
            inner = ffn_width(feed.number("ffn_mult", default=1.0), hidden)
            sizes.append(LayerSizes(kv_heads=0 if none else heads // group, intermediate=inner))
        bias = fields.flag("attention_bias", default=False)
        return ModelConfig(
            name=name,
            family="nemotron_nas",
            layers=layers,
            hidden=hidden,
            heads=heads,
            kv_heads=max((own.kv_heads for own in sizes), default=0) or heads,
            head_dim=fields.head_dim(hidden, heads),
            intermediate=max((own.intermediate for own in sizes), default=1),
            vocab=fields.integer("vocab_size"),
            activation=fields.activation("hidden_act", default="silu"),
            qkv_bias=bias,
            o_bias=bias,
            mlp_bias=fields.flag("mlp_bias", default=False),
            tied=fields.flag("tie_word_embeddings", default=False),
            mixers=tuple(mixers),
            feeds=tuple(feeds),
            sizes=tuple(sizes),
            max_positions=fields.integer("max_position_embeddings", default=131072),
            default_precision=precision,
        )


def ffn_width(multiple: float, hidden: int) -> int:
    """Width of an MLP of two thirds of ``multiple`` times the hidden size, in whole 256.

    >>> ffn_width(5.25, 8192), ffn_width(1.0, 8192)
    (28672, 5632)
    """
    width = int(2 * multiple * hidden / 3)
    return -(-width // 256) * 256
