"""Command R, R7B and A, Aya: attention and MLP side by side on one LayerNorm, tied head."""

from __future__ import annotations

from typing import final

from silicast.workload.families._family import Family, Fields, register
from silicast.workload.families._usual import usual, window_layers
from silicast.workload.model import ModelConfig
from silicast.workload.precision import Precision


@register
@final
class Cohere(Family):
    """``use_qk_norm`` puts a norm on queries and keys, with weights for each head. The second
    generation has windows in three of four layers, and no rotary positions in the fourth.
    """

    architectures = ("CohereForCausalLM", "Cohere2ForCausalLM")
    model_types = ("cohere", "cohere2")

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        second = "sliding_window" in fields.names() or "layer_types" in fields.names()
        sizes = usual(fields, name, precision, "cohere2" if second else "cohere")
        every = fields.integer("sliding_window_pattern", default=4)
        own = {
            "norm": "layernorm",
            "residual": "parallel",
            "tied": fields.flag("tie_word_embeddings", default=True),
            "qk_norm": fields.flag("use_qk_norm", default=False),
            "qk_norm_over": "all_heads",
            "windows": window_layers(fields, sizes["layers"], every, 4096) if second else (),
            "no_rope_every": every if second else 0,
        }
        return ModelConfig(**{**sizes, **own})
