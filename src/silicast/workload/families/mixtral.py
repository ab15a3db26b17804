"""Mixtral: Mistral's attention, and eight experts in every layer."""

from __future__ import annotations

from typing import final

from silicast.workload.families._family import Family, Fields, register
from silicast.workload.model import ModelConfig, MoE
from silicast.workload.precision import Precision


@register
@final
class Mixtral(Family):
    """``intermediate_size`` is the width of one expert; no layer has an MLP beside them."""

    architectures = ("MixtralForCausalLM",)
    model_types = ("mixtral",)
    structures = ("experts",)

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        hidden, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
        layers = fields.layers("num_hidden_layers")
        inner = fields.integer("intermediate_size")
        window = fields.integer("sliding_window", default=0)
        return ModelConfig(
            name=name,
            family="mixtral",
            layers=layers,
            hidden=hidden,
            heads=heads,
            kv_heads=fields.integer("num_key_value_heads", default=8),
            head_dim=fields.head_dim(hidden, heads),
            intermediate=inner,
            vocab=fields.integer("vocab_size"),
            activation=fields.activation("hidden_act", default="silu"),
            tied=fields.flag("tie_word_embeddings", default=False),
            windows=(window,) * layers if window else (),
            max_positions=fields.integer("max_position_embeddings", default=131072),
            moe=MoE(
                experts=fields.integer("num_local_experts", default=8),
                topk=fields.integer("num_experts_per_tok", default=2),
                intermediate=inner,
            ),
            default_precision=precision,
        )
