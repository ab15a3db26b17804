"""Granite: Llama's structure with scaled residuals and logits, which cost nothing of their own."""

from __future__ import annotations

from typing import final

from silicast.workload.families._family import Family, Fields, register
from silicast.workload.families._usual import usual
from silicast.workload.model import ModelConfig
from silicast.workload.precision import Precision


@register
@final
class Granite(Family):
    """Granite 3 without experts."""

    architectures = ("GraniteForCausalLM",)
    model_types = ("granite",)

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        return ModelConfig(**usual(fields, name, precision, "granite"))
