"""MiniMax-M2: norms over all heads of queries and of keys, experts in every layer."""

from __future__ import annotations

from typing import final

from silicast.workload.families._family import Family, Fields, register
from silicast.workload.model import ModelConfig, MoE
from silicast.workload.precision import Precision


@register
@final
class MiniMaxM2(Family):
    """The modules for multi-token prediction that a configuration announces are not part of the
    published weights and not counted.
    """

    architectures = ("MiniMaxM2ForCausalLM",)
    model_types = ("minimax_m2",)
    structures = ("experts",)

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        hidden, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
        inner = fields.integer("intermediate_size")
        return ModelConfig(
            name=name,
            family="minimax_m2",
            layers=fields.layers("num_hidden_layers"),
            hidden=hidden,
            heads=heads,
            kv_heads=fields.integer("num_key_value_heads", default=8),
            head_dim=fields.head_dim(hidden, heads),
            intermediate=inner,
            vocab=fields.integer("vocab_size"),
            activation=fields.activation("hidden_act", default="silu"),
            qk_norm=fields.flag("use_qk_norm", default=True),
            qk_norm_over=(
                "all_heads"
                if fields.text("qk_norm_type", default="per_layer") == "per_layer"
                else "head"
            ),
            tied=fields.flag("tie_word_embeddings", default=False),
            max_positions=fields.integer("max_position_embeddings", default=196608),
            moe=MoE(
                experts=fields.integer("num_local_experts", default=256),
                topk=fields.integer("num_experts_per_tok", default=8),
                intermediate=inner,
                shared_intermediate=fields.integer("shared_intermediate_size", default=0),
                router_bias=fields.flag("use_routing_bias", default=True),
            ),
            default_precision=precision,
        )
