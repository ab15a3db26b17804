"""Qwen1.5 and Qwen2 with experts: Qwen2's attention, and a shared expert behind a gate."""

from __future__ import annotations

from typing import final

from silicast.workload.families._family import Family, Fields, register
from silicast.workload.families._qwen_experts import dense_layers
from silicast.workload.families._qwen_windows import qwen_windows
from silicast.workload.model import ModelConfig, MoE
from silicast.workload.precision import Precision


@register
@final
class Qwen2MoE(Family):
    """Every token also passes the shared expert, weighted by a gate of its own."""

    architectures = ("Qwen2MoeForCausalLM",)
    model_types = ("qwen2_moe",)
    structures = ("experts",)

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        layers = fields.layers("num_hidden_layers")
        hidden, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
        shared = fields.integer("shared_expert_intermediate_size", default=5632)
        return ModelConfig(
            name=name,
            family="qwen2_moe",
            layers=layers,
            hidden=hidden,
            heads=heads,
            kv_heads=fields.integer("num_key_value_heads", default=heads),
            head_dim=fields.head_dim(hidden, heads),
            intermediate=fields.integer("intermediate_size"),
            vocab=fields.integer("vocab_size"),
            activation=fields.activation("hidden_act", default="silu"),
            qkv_bias=fields.flag("qkv_bias", default=True),
            tied=fields.flag("tie_word_embeddings", default=False),
            windows=qwen_windows(fields, layers),
            max_positions=fields.integer("max_position_embeddings", default=32768),
            moe=MoE(
                experts=fields.integer("num_experts", default=60),
                topk=fields.integer("num_experts_per_tok", default=4),
                intermediate=fields.integer("moe_intermediate_size", default=1408),
                shared_intermediate=shared,
                shared_gate=shared > 0,
                dense_layers=dense_layers(fields, layers),
            ),
            default_precision=precision,
        )
