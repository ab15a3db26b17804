"""Kimi Linear and Kimi-K3: Kimi delta attention, every fourth layer latent attention; experts."""

from __future__ import annotations

from typing import final

from silicast.core.errors import SilicastError
from silicast.workload.families._encoders import moon_vit
from silicast.workload.families._family import Family, Fields, register
from silicast.workload.model import MLA, ModelConfig, MoE, Recurrent
from silicast.workload.precision import Precision

_ACTIVATION = "situ"
"""A gated unit of K3 that costs what SiLU costs."""


@register
@final
class KimiLinear(Family):
    """No layer rotates anything. In K3 routed experts work in a latent of their own, and every
    output gate is a whole projection; its residual over blocks of layers is not modelled (a
    weighted sum of a few hidden states).
    """

    architectures = ("KimiLinearForCausalLM", "KimiK3ForConditionalGeneration")
    model_types = ("kimi_linear", "kimi_k3")
    structures = ("experts", "latent", "linear", "vision")
    text_part = True

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        layers = fields.layers("num_hidden_layers")
        heads = fields.integer("num_attention_heads")
        linear = fields.table("linear_attn_config")
        width = linear.integer("head_dim", default=128)
        inner = fields.integer("moe_intermediate_size", default=1024)
        mla = MLA(
            kv_lora_rank=fields.integer("kv_lora_rank", default=512),
            qk_nope_head_dim=fields.integer("qk_nope_head_dim", default=128),
            qk_rope_head_dim=fields.integer("qk_rope_head_dim", default=64),
            v_head_dim=fields.integer("v_head_dim", default=128),
            q_lora_rank=fields.integer("q_lora_rank", default=0),
        )
        first = fields.integer("first_k_dense_replace", default=1)
        every = max(fields.integer("moe_layer_freq", default=1), 1)
        activation = fields.text("hidden_act", default="silu")
        return ModelConfig(
            name=name,
            family="kimi_linear",
            layers=layers,
            hidden=fields.integer("hidden_size"),
            heads=heads,
            kv_heads=heads,
            head_dim=mla.qk_head_dim,
            intermediate=fields.integer("intermediate_size"),
            vocab=fields.integer("vocab_size"),
            activation="silu"
            if activation == _ACTIVATION
            else fields.activation("hidden_act", default="silu"),
            position="none" if fields.flag("mla_use_nope", default=True) else "rope",
            tied=fields.flag("tie_word_embeddings", default=False),
            max_positions=fields.integer(
                "max_position_embeddings", "model_max_length", default=1048576
            ),
            mtp_layers=fields.integer("num_nextn_predict_layers", default=0),
            mixers=_mixers(linear, layers),
            output_gate=fields.flag("mla_use_output_gate", default=False),
            moe=MoE(
                experts=fields.integer("num_experts", default=256),
                topk=fields.integer("num_experts_per_token", default=8),
                intermediate=inner,
                shared_intermediate=inner * fields.integer("num_shared_experts", default=0),
                router_bias=True,
                dense_layers=tuple(i for i in range(layers) if i < first or i % every),
                latent=fields.integer("routed_expert_hidden_size", default=0),
            ),
            mla=mla,
            recurrent=Recurrent(
                key_heads=linear.integer("num_heads", default=heads),
                key_dim=width,
                value_heads=linear.integer("num_heads", default=heads),
                value_dim=width,
                taps=linear.integer("short_conv_kernel_size", default=4),
                decay_rank=width,
                gate_rank=0 if linear.flag("use_full_rank_gate", default=False) else width,
            ),
            encoder_parameters=moon_vit(fields),
            default_precision=precision,
        )


def _mixers(linear: Fields, layers: int) -> tuple[str, ...]:
    """Mixer of each layer; the configuration counts layers from 1."""
    full = set(linear.integers("full_attn_layers"))
    if full | set(linear.integers("kda_layers")) != set(range(1, layers + 1)):
        raise SilicastError(
            f"kda_layers and full_attn_layers do not name each of {layers} layers",
            field="linear_attn_config",
            hint="they count from 1",
        )
    return tuple("latent" if i + 1 in full else "kda" for i in range(layers))
