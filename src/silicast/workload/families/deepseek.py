"""DeepSeek-V2 and V3 (R1, Kimi-K2, Moonlight): latent attention, dense first layers, experts."""

from __future__ import annotations

from typing import final

from silicast.workload.families._encoders import moon_vit
from silicast.workload.families._family import Family, Fields, register
from silicast.workload.model import MLA, ModelConfig, MoE
from silicast.workload.precision import Precision


@register
@final
class DeepSeek(Family):
    """V3 differs from V2 in a correction per expert in the router, and in multi-token prediction.
    Kimi-K2.5 is the same behind a vision encoder.
    """

    architectures = (
        "DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "KimiK2ForCausalLM",
        "KimiK25ForConditionalGeneration",
    )  # fmt: skip
    model_types = ("deepseek_v2", "deepseek_v3", "kimi_k2", "kimi_k25")
    structures = ("experts", "latent", "vision")
    text_part = True

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        layers = fields.layers("num_hidden_layers")
        heads = fields.integer("num_attention_heads")
        inner = fields.integer("moe_intermediate_size", default=2048)
        mla = MLA(
            kv_lora_rank=fields.integer("kv_lora_rank", default=512),
            qk_nope_head_dim=fields.integer("qk_nope_head_dim", default=128),
            qk_rope_head_dim=fields.integer("qk_rope_head_dim", default=64),
            v_head_dim=fields.integer("v_head_dim", default=128),
            q_lora_rank=fields.integer("q_lora_rank", default=0),
        )
        return ModelConfig(
            name=name,
            family="deepseek_v3" if self._corrected(fields) else "deepseek_v2",
            layers=layers,
            hidden=fields.integer("hidden_size"),
            heads=heads,
            kv_heads=heads,
            head_dim=mla.qk_head_dim,
            intermediate=fields.integer("intermediate_size"),
            vocab=fields.integer("vocab_size"),
            activation=fields.activation("hidden_act", default="silu"),
            o_bias=fields.flag("attention_bias", default=False),
            tied=fields.flag("tie_word_embeddings", default=False),
            max_positions=fields.integer("max_position_embeddings", default=4096),
            mtp_layers=fields.integer("num_nextn_predict_layers", default=0),
            moe=MoE(
                experts=fields.integer("n_routed_experts", default=256),
                topk=fields.integer("num_experts_per_tok", default=8),
                intermediate=inner,
                shared_intermediate=inner * fields.integer("n_shared_experts", default=0),
                router_bias=self._corrected(fields),
                dense_layers=self._dense(fields, layers),
            ),
            mla=mla,
            encoder_parameters=moon_vit(fields),
            default_precision=precision,
        )

    @staticmethod
    def _corrected(fields: Fields) -> bool:
        return fields.text("topk_method", default="greedy") == "noaux_tc"

    @staticmethod
    def _dense(fields: Fields, layers: int) -> tuple[int, ...]:
        """The first layers, and beyond them all but every ``moe_layer_freq``-th."""
        first = fields.integer("first_k_dense_replace", default=0)
        every = max(fields.integer("moe_layer_freq", default=1), 1)
        return tuple(i for i in range(layers) if i < first or i % every)
