"""StableLM: Llama's structure with LayerNorm."""

from __future__ import annotations

from typing import final

from silicast.workload.families._family import Family, Fields, register
from silicast.workload.families._usual import usual
from silicast.workload.model import ModelConfig
from silicast.workload.precision import Precision


@register
@final
class StableLm(Family):
    """``use_qkv_bias`` puts a bias on queries, keys and values."""

    architectures = ("StableLmForCausalLM", "StableLMEpochForCausalLM")
    model_types = ("stablelm", "stablelm_epoch")

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        fields.refuse("qk_layernorm", "LayerNorm on queries and keys")
        sizes = usual(fields, name, precision, "stablelm")
        parallel = fields.flag("use_parallel_residual", default=False)
        own = {
            "norm": "layernorm",
            "norm_bias": True,
            "qkv_bias": fields.flag("use_qkv_bias", default=False),
            "residual": "parallel" if parallel else "sequential",
        }
        return ModelConfig(**{**sizes, **own})
