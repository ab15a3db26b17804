"""OLMo 2: norms on the outputs of attention and MLP, and over all queries and all keys."""

from __future__ import annotations

from typing import final

from silicast.workload.families._family import Family, Fields, register
from silicast.workload.families._usual import usual
from silicast.workload.model import ModelConfig
from silicast.workload.precision import Precision


@register
@final
class Olmo2(Family):
    """No norm stands on the inputs."""

    architectures = ("Olmo2ForCausalLM",)
    model_types = ("olmo2",)

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        sizes = usual(fields, name, precision, "olmo2")
        norms = {"norm_at": "output", "qk_norm": True, "qk_norm_over": "all_heads"}
        return ModelConfig(**{**sizes, **norms})
