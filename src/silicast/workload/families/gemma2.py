"""Gemma 2: windows in every other layer, norms on inputs and outputs, gated GELU MLP, tied head."""

from __future__ import annotations

from typing import final

from silicast.workload.families._family import Family, Fields, register
from silicast.workload.families._usual import usual, window_layers
from silicast.workload.model import ModelConfig
from silicast.workload.precision import Precision


@register
@final
class Gemma2(Family):
    """The first layer has a window."""

    architectures = ("Gemma2ForCausalLM",)
    model_types = ("gemma2",)

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        sizes = usual(fields, name, precision, "gemma2")
        own = {
            "head_dim": fields.integer("head_dim", default=256),
            "activation": fields.activation("hidden_activation", default="gelu_pytorch_tanh"),
            "tied": fields.flag("tie_word_embeddings", default=True),
            "output_norms": True,
            "windows": window_layers(fields, sizes["layers"], 2, 4096),
        }
        return ModelConfig(**{**sizes, **own})
