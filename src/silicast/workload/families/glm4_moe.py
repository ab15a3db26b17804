"""GLM-4.5 and 4.6: grouped queries, dense first layers, a shared expert beside the routed ones."""

from __future__ import annotations

from typing import final

from silicast.workload.families._family import Family, Fields, register
from silicast.workload.model import ModelConfig, MoE
from silicast.workload.precision import Precision


@register
@final
class Glm4MoE(Family):
    """``attention_bias`` is on queries, keys and values only."""

    architectures = ("Glm4MoeForCausalLM",)
    model_types = ("glm4_moe",)
    structures = ("experts",)

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        layers = fields.layers("num_hidden_layers")
        hidden, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
        inner = fields.integer("moe_intermediate_size", default=1408)
        first = fields.integer("first_k_dense_replace", default=1)
        return ModelConfig(
            name=name,
            family="glm4_moe",
            layers=layers,
            hidden=hidden,
            heads=heads,
            kv_heads=fields.integer("num_key_value_heads", default=8),
            head_dim=fields.integer("head_dim", default=128),
            intermediate=fields.integer("intermediate_size"),
            vocab=fields.integer("vocab_size"),
            activation=fields.activation("hidden_act", default="silu"),
            qkv_bias=fields.flag("attention_bias", default=False),
            qk_norm=fields.flag("use_qk_norm", default=False),
            tied=fields.flag("tie_word_embeddings", default=False),
            max_positions=fields.integer("max_position_embeddings", default=131072),
            mtp_layers=fields.integer("num_nextn_predict_layers", default=0),
            moe=MoE(
                experts=fields.integer("n_routed_experts", default=128),
                topk=fields.integer("num_experts_per_tok", default=8),
                intermediate=inner,
                shared_intermediate=inner * fields.integer("n_shared_experts", default=1),
                router_bias=True,
                dense_layers=tuple(range(max(0, min(first, layers)))),
            ),
            default_precision=precision,
        )
