"""GPT-J: attention and MLP side by side on one norm, rotary positions, a bias on the head."""

from __future__ import annotations

from typing import final

from silicast.workload.families._family import Family, Fields, register
from silicast.workload.model import ModelConfig
from silicast.workload.precision import Precision


@register
@final
class GptJ(Family):
    """Attention has no biases; the MLP and the untied head have."""

    architectures = ("GPTJForCausalLM",)
    model_types = ("gptj",)

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        hidden, heads = fields.integer("n_embd"), fields.integer("n_head")
        return ModelConfig(
            name=name,
            family="gptj",
            layers=fields.layers("n_layer"),
            hidden=hidden,
            heads=heads,
            kv_heads=heads,
            head_dim=fields.head_dim(hidden, heads),
            intermediate=fields.integer("n_inner", default=4 * hidden),
            vocab=fields.integer("vocab_size"),
            norm="layernorm",
            norm_bias=True,
            gated=False,
            activation=fields.activation("activation_function", default="gelu_new"),
            mlp_bias=True,
            head_bias=True,
            residual="parallel",
            tied=fields.flag("tie_word_embeddings", default=False),
            max_positions=fields.integer("n_positions", default=2048),
            default_precision=precision,
        )
