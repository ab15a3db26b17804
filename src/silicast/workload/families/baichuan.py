"""Baichuan 1 and 2: Llama's structure; from 40 heads on alibi instead of rotary positions."""

from __future__ import annotations

from typing import final

from silicast.workload.families._family import Family, Fields, register
from silicast.workload.families._usual import usual
from silicast.workload.model import ModelConfig
from silicast.workload.precision import Precision

ALIBI_HEADS = 40


@register
@final
class Baichuan(Family):
    """The 13B have alibi; nothing in their configuration says so but their size."""

    architectures = ("BaichuanForCausalLM", "BaiChuanForCausalLM")
    model_types = ("baichuan",)

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        sizes = usual(fields, name, precision, "baichuan")
        alibi = sizes["heads"] >= ALIBI_HEADS
        length = fields.integer("model_max_length", "max_position_embeddings", default=4096)
        position = "alibi" if alibi else "rope"
        return ModelConfig(**{**sizes, "position": position, "max_positions": length})
