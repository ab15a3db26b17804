"""Gemma 3: windows in five of six layers, norms on queries, keys, inputs and outputs."""

from __future__ import annotations

from typing import final

from silicast.workload.families._encoders import siglip
from silicast.workload.families._family import Family, Fields, register
from silicast.workload.families._usual import window_layers
from silicast.workload.model import ModelConfig
from silicast.workload.precision import Precision


@register
@final
class Gemma3(Family):
    """The encoder of the larger ones is counted, not run."""

    architectures = ("Gemma3ForCausalLM", "Gemma3ForConditionalGeneration")
    model_types = ("gemma3_text", "gemma3")
    structures = ("vision",)
    text_part = True

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        layers = fields.layers("num_hidden_layers")
        heads = fields.integer("num_attention_heads", default=8)
        every = fields.integer("sliding_window_pattern", "_sliding_window_pattern", default=6)
        bias = fields.flag("attention_bias", default=False)
        return ModelConfig(
            name=name,
            family="gemma3",
            layers=layers,
            hidden=fields.integer("hidden_size"),
            heads=heads,
            kv_heads=fields.integer("num_key_value_heads", default=4),
            head_dim=fields.integer("head_dim", default=256),
            intermediate=fields.integer("intermediate_size"),
            vocab=fields.integer("vocab_size", default=262208),
            activation=fields.activation("hidden_activation", default="gelu_pytorch_tanh"),
            qkv_bias=bias,
            o_bias=bias,
            qk_norm=True,
            output_norms=True,
            tied=fields.flag("tie_word_embeddings", default=True),
            windows=window_layers(fields, layers, every, 4096),
            max_positions=fields.integer("max_position_embeddings", default=131072),
            encoder_parameters=siglip(fields),
            default_precision=precision,
        )
