"""Gemma: wide heads, gated GELU MLP, tied head."""

from __future__ import annotations

from typing import final

from silicast.workload.families._family import Family, Fields, register
from silicast.workload.families._usual import usual
from silicast.workload.model import ModelConfig
from silicast.workload.precision import Precision


@register
@final
class Gemma(Family):
    """``head_dim`` is stated and is not hidden / heads."""

    architectures = ("GemmaForCausalLM",)
    model_types = ("gemma",)

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        sizes = usual(fields, name, precision, "gemma")
        own = {
            "head_dim": fields.integer("head_dim", default=256),
            "activation": fields.activation("hidden_activation", default="gelu_pytorch_tanh"),
            "tied": fields.flag("tie_word_embeddings", default=True),
        }
        return ModelConfig(**{**sizes, **own})
