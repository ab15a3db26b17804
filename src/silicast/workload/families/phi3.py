"""Phi-3 (dense): Llama's structure with fused projections and a sliding window."""

from __future__ import annotations

from typing import final

from silicast.workload.families._family import Family, Fields, register
from silicast.workload.model import ModelConfig
from silicast.workload.precision import Precision


@register
@final
class Phi3(Family):
    """Windows of at least the longest context change nothing and are dropped."""

    architectures = ("Phi3ForCausalLM",)
    model_types = ("phi3",)

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        layers = fields.layers("num_hidden_layers")
        hidden, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
        positions = fields.integer("max_position_embeddings", default=4096)
        window = fields.integer("sliding_window", default=0)
        return ModelConfig(
            name=name,
            family="phi3",
            layers=layers,
            hidden=hidden,
            heads=heads,
            kv_heads=fields.integer("num_key_value_heads", default=heads),
            head_dim=fields.head_dim(hidden, heads),
            intermediate=fields.integer("intermediate_size"),
            vocab=fields.integer("vocab_size"),
            activation=fields.activation("hidden_act", default="silu"),
            tied=fields.flag("tie_word_embeddings", default=False),
            windows=(window,) * layers if 0 < window < positions else (),
            max_positions=positions,
            default_precision=precision,
        )
