"""OLMoE: experts in all layers, norms over all queries and all keys."""

from __future__ import annotations

from typing import final

from silicast.workload.families._family import Family, Fields, register
from silicast.workload.families._usual import usual
from silicast.workload.model import ModelConfig, MoE
from silicast.workload.precision import Precision


@register
@final
class OlMoE(Family):
    """``intermediate_size`` is the width of one expert."""

    architectures = ("OlmoeForCausalLM",)
    model_types = ("olmoe",)
    structures = ("experts",)

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        sizes = usual(fields, name, precision, "olmoe")
        moe = MoE(
            experts=fields.integer("num_experts", default=64),
            topk=fields.integer("num_experts_per_tok", default=8),
            intermediate=sizes["intermediate"],
        )
        return ModelConfig(**{**sizes, "qk_norm": True, "qk_norm_over": "all_heads", "moe": moe})
