"""Qwen3-Next and Qwen3.5: gated delta networks with full, gated attention in every fourth layer."""

from __future__ import annotations

from typing import final

from silicast.workload.families._encoders import qwen3_vision
from silicast.workload.families._family import Family, Fields, register
from silicast.workload.families._qwen_experts import dense_layers
from silicast.workload.model import ModelConfig, MoE, Recurrent
from silicast.workload.precision import Precision

_KINDS = {"linear_attention": "gdn", "full_attention": "heads"}


@register
@final
class Qwen3Next(Family):
    """Dense or with experts (Qwen3-Next, Qwen3.5-MoE), alone or as the text part behind a vision
    encoder. Only a quarter of each head is rotated, which costs as much as the whole here.
    """

    architectures = (
        "Qwen3NextForCausalLM", "Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration",
    )  # fmt: skip
    model_types = (
        "qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text",
    )  # fmt: skip
    structures = ("experts", "linear", "vision")
    text_part = True

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        layers = fields.layers("num_hidden_layers")
        heads = fields.integer("num_attention_heads")
        every = max(fields.integer("full_attention_interval", default=4), 1)
        usual = tuple(
            "linear_attention" if (i + 1) % every else "full_attention" for i in range(layers)
        )
        kinds = fields.layer_types(layers, usual, tuple(_KINDS))
        bias = fields.flag("attention_bias", default=False)
        experts = fields.integer("num_experts", default=0)
        inner = fields.integer("moe_intermediate_size", default=0)
        return ModelConfig(
            name=name,
            family="qwen3_next",
            layers=layers,
            hidden=fields.integer("hidden_size"),
            heads=heads,
            kv_heads=fields.integer("num_key_value_heads", default=heads),
            head_dim=fields.integer("head_dim", default=256),
            intermediate=fields.integer("intermediate_size", default=inner or None),
            vocab=fields.integer("vocab_size"),
            activation=fields.activation("hidden_act", default="silu"),
            qkv_bias=bias,
            o_bias=bias,
            qk_norm=True,
            tied=fields.flag("tie_word_embeddings", default=False),
            max_positions=fields.integer("max_position_embeddings", default=32768),
            mtp_layers=fields.integer("mtp_num_hidden_layers", default=0),
            mixers=tuple(_KINDS[kind] for kind in kinds),
            output_gate=fields.flag("attn_output_gate", default=True),
            moe=_experts(fields, layers, experts, inner) if experts else None,
            recurrent=Recurrent(
                key_heads=fields.integer("linear_num_key_heads", default=16),
                key_dim=fields.integer("linear_key_head_dim", default=128),
                value_heads=fields.integer("linear_num_value_heads", default=32),
                value_dim=fields.integer("linear_value_head_dim", default=128),
                taps=fields.integer("linear_conv_kernel_dim", default=4),
            ),
            encoder_parameters=qwen3_vision(fields),
            default_precision=precision,
        )


def _experts(fields: Fields, layers: int, experts: int, inner: int) -> MoE:
    shared = fields.integer("shared_expert_intermediate_size", default=0)
    return MoE(
        experts=experts,
        topk=fields.integer("num_experts_per_tok", default=10),
        intermediate=inner,
        shared_intermediate=shared,
        shared_gate=shared > 0,
        dense_layers=dense_layers(fields, layers),
    )
