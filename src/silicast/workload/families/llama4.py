"""Llama 4 (text part): chunked attention, layers without rotary positions, a shared expert."""

from __future__ import annotations

from typing import final

from silicast.workload.families._encoders import llama4_vision
from silicast.workload.families._family import Family, Fields, register
from silicast.workload.model import ModelConfig, MoE
from silicast.workload.precision import Precision

NO_ROPE_EVERY = 4


@register
@final
class Llama4(Family):
    """Every fourth layer sees all keys and has no rotary positions; the others see their chunk.
    Every ``interleave_moe_layer_step``-th layer has experts, the others an MLP.
    """

    architectures = ("Llama4ForCausalLM", "Llama4ForConditionalGeneration")
    model_types = ("llama4_text", "llama4")
    structures = ("experts", "vision")
    text_part = True

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        layers = fields.layers("num_hidden_layers")
        hidden, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
        bias = fields.flag("attention_bias", default=False)
        inner = fields.integer("intermediate_size")
        step = max(fields.integer("interleave_moe_layer_step", default=1), 1)
        chunk = fields.integer("attention_chunk_size", default=8192)
        full = tuple((i + 1) % NO_ROPE_EVERY == 0 for i in range(layers))
        return ModelConfig(
            name=name,
            family="llama4",
            layers=layers,
            hidden=hidden,
            heads=heads,
            kv_heads=fields.integer("num_key_value_heads", default=8),
            head_dim=fields.head_dim(hidden, heads),
            intermediate=fields.integer("intermediate_size_mlp", default=inner),
            vocab=fields.integer("vocab_size"),
            activation=fields.activation("hidden_act", default="silu"),
            qkv_bias=bias,
            o_bias=bias,
            qk_norm=fields.flag("use_qk_norm", default=True),
            qk_norm_over="no_weights",
            no_rope_every=NO_ROPE_EVERY,
            tied=fields.flag("tie_word_embeddings", default=False),
            windows=tuple(0 if whole else chunk for whole in full) if chunk else (),
            chunked=chunk > 0,
            max_positions=fields.integer("max_position_embeddings", default=131072),
            moe=MoE(
                experts=fields.integer("num_local_experts", default=16),
                topk=fields.integer("num_experts_per_tok", default=1),
                intermediate=inner,
                shared_intermediate=inner,
                dense_layers=tuple(i for i in range(layers) if (i + 1) % step),
            ),
            encoder_parameters=llama4_vision(fields),
            default_precision=precision,
        )
