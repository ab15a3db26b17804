"""SmolLM3: Llama's structure, every fourth layer without rotary positions."""

from __future__ import annotations

from typing import final

from silicast.workload.families._family import Family, Fields, register
from silicast.workload.families._usual import usual
from silicast.workload.model import ModelConfig
from silicast.workload.precision import Precision


@register
@final
class SmolLM3(Family):
    """``no_rope_layer_interval`` counts the layers; lists of single layers are not read."""

    architectures = ("SmolLM3ForCausalLM",)
    model_types = ("smollm3",)

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        sizes = usual(fields, name, precision, "smollm3")
        every = fields.integer("no_rope_layer_interval", default=4)
        return ModelConfig(**{**sizes, "no_rope_every": every})
