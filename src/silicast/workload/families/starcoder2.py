"""StarCoder2: LayerNorm, biases everywhere, grouped queries, a window, plain GELU MLP."""

from __future__ import annotations

from typing import final

from silicast.workload.families._family import Family, Fields, register
from silicast.workload.families._usual import usual
from silicast.workload.model import ModelConfig
from silicast.workload.precision import Precision


@register
@final
class StarCoder2(Family):
    """``use_bias`` puts a bias on all products."""

    architectures = ("Starcoder2ForCausalLM",)
    model_types = ("starcoder2",)

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        sizes = usual(fields, name, precision, "starcoder2")
        bias = fields.flag("use_bias", default=True)
        window = fields.integer("sliding_window", default=0)
        own = {
            "norm": "layernorm",
            "norm_bias": True,
            "gated": False,
            "activation": fields.activation("hidden_act", default="gelu_pytorch_tanh"),
            "qkv_bias": bias,
            "o_bias": bias,
            "mlp_bias": bias,
            "tied": fields.flag("tie_word_embeddings", default=True),
            "windows": (window,) * sizes["layers"] if window else (),
        }
        return ModelConfig(**{**sizes, **own})
