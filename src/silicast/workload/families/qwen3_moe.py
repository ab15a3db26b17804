"""Qwen3 with experts: Qwen3's attention; the text part of Qwen3-VL with experts is the same."""

from __future__ import annotations

from typing import final

from silicast.workload.families._encoders import qwen3_vision
from silicast.workload.families._family import Family, Fields, register
from silicast.workload.families._qwen_experts import dense_layers
from silicast.workload.families._qwen_windows import qwen_windows
from silicast.workload.model import ModelConfig, MoE
from silicast.workload.precision import Precision


@register
@final
class Qwen3MoE(Family):
    """``heads * head_dim`` may exceed the hidden size; no expert is shared."""

    architectures = ("Qwen3MoeForCausalLM", "Qwen3VLMoeForConditionalGeneration")
    model_types = ("qwen3_moe", "qwen3_vl_moe", "qwen3_vl_moe_text")
    structures = ("experts", "vision")
    text_part = True

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        layers = fields.layers("num_hidden_layers")
        heads = fields.integer("num_attention_heads")
        bias = fields.flag("attention_bias", default=False)
        fields.refuse("shared_expert_intermediate_size", "a shared expert in this family")
        inner = fields.integer("moe_intermediate_size", default=768)
        return ModelConfig(
            name=name,
            family="qwen3_moe",
            layers=layers,
            hidden=fields.integer("hidden_size"),
            heads=heads,
            kv_heads=fields.integer("num_key_value_heads", default=heads),
            head_dim=fields.integer("head_dim", default=128),
            intermediate=fields.integer("intermediate_size", default=inner),
            vocab=fields.integer("vocab_size"),
            activation=fields.activation("hidden_act", default="silu"),
            qkv_bias=bias,
            o_bias=bias,
            qk_norm=True,
            tied=fields.flag("tie_word_embeddings", default=False),
            windows=qwen_windows(fields, layers),
            max_positions=fields.integer("max_position_embeddings", default=32768),
            moe=MoE(
                experts=fields.integer("num_experts", default=128),
                topk=fields.integer("num_experts_per_tok", default=8),
                intermediate=inner,
                dense_layers=dense_layers(fields, layers),
            ),
            encoder_parameters=qwen3_vision(fields),
            default_precision=precision,
        )
