"""InternLM 2 and 2.5: Llama's structure with grouped queries."""

from __future__ import annotations

from typing import final

from silicast.workload.families._family import Family, Fields, register
from silicast.workload.families._usual import usual
from silicast.workload.model import ModelConfig
from silicast.workload.precision import Precision


@register
@final
class InternLM2(Family):
    """``bias`` puts one on the projections of attention."""

    architectures = ("InternLM2ForCausalLM",)
    model_types = ("internlm2",)

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        sizes = usual(fields, name, precision, "internlm2")
        bias = fields.flag("bias", default=False)
        return ModelConfig(**{**sizes, "qkv_bias": bias, "o_bias": bias})
