"""Mistral: like Llama, with a sliding window in its first version."""

from __future__ import annotations

from typing import final

from silicast.workload.families._family import Family, Fields, register
from silicast.workload.model import ModelConfig
from silicast.workload.precision import Precision


@register
@final
class Mistral(Family):
    """One window for all layers, or none."""

    architectures = ("MistralForCausalLM",)
    model_types = ("mistral",)

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        layers = fields.layers("num_hidden_layers")
        hidden, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
        window = fields.integer("sliding_window", default=0)
        return ModelConfig(
            name=name,
            family="mistral",
            layers=layers,
            hidden=hidden,
            heads=heads,
            kv_heads=fields.integer("num_key_value_heads", default=8),
            head_dim=fields.head_dim(hidden, heads),
            intermediate=fields.integer("intermediate_size"),
            vocab=fields.integer("vocab_size"),
            activation=fields.activation("hidden_act", default="silu"),
            tied=fields.flag("tie_word_embeddings", default=False),
            windows=(window,) * layers if window else (),
            max_positions=fields.integer("max_position_embeddings", default=131072),
            default_precision=precision,
        )
