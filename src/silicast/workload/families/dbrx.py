"""DBRX: experts in all layers, LayerNorm without bias, grouped queries."""

from __future__ import annotations

from typing import final

from silicast.workload.families._family import Family, Fields, register
from silicast.workload.model import ModelConfig, MoE
from silicast.workload.precision import Precision


@register
@final
class Dbrx(Family):
    """Sizes lie in ``attn_config`` and ``ffn_config``."""

    architectures = ("DbrxForCausalLM",)
    model_types = ("dbrx",)
    structures = ("experts",)

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        hidden, heads = fields.integer("d_model"), fields.integer("n_heads")
        attention, feed = fields.table("attn_config"), fields.table("ffn_config")
        inner = feed.integer("ffn_hidden_size", default=10752)
        return ModelConfig(
            name=name,
            family="dbrx",
            layers=fields.layers("n_layers"),
            hidden=hidden,
            heads=heads,
            kv_heads=attention.integer("kv_n_heads", default=8),
            head_dim=fields.head_dim(hidden, heads),
            intermediate=inner,
            vocab=fields.integer("vocab_size"),
            norm="layernorm",
            tied=fields.flag("tie_word_embeddings", default=False),
            max_positions=fields.integer("max_seq_len", default=2048),
            moe=MoE(
                experts=feed.integer("moe_num_experts", default=16),
                topk=feed.integer("moe_top_k", default=4),
                intermediate=inner,
            ),
            default_precision=precision,
        )
