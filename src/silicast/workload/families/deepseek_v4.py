"""DeepSeek-V4: compressed attention, hyper-connections, experts in every layer."""

from __future__ import annotations

from typing import final

from silicast.core.errors import SilicastError
from silicast.workload.families._family import Family, Fields, register
from silicast.workload.model import ModelConfig, MoE
from silicast.workload.precision import Precision
from silicast.workload.sparse import Sparse

EXPERT_RECIPES = {"fp4": "w4a8_mxfp4_mxfp8"}
"""``expert_dtype`` -> recipe: fp4 with a scale for 32 weights."""
LIGHT, HEAVY = 4, 128


@register
@final
class DeepSeekV4(Family):
    """``compress_ratios`` says of every layer how many tokens share an entry, 0 = none: a layer
    with the smaller ratio selects entries.
    """

    architectures = ("DeepseekV4ForCausalLM",)
    model_types = ("deepseek_v4", "deepseek_ref")
    structures = ("experts", "latent", "sparse")

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        layers = fields.layers("num_hidden_layers")
        inner = fields.integer("moe_intermediate_size")
        stored = fields.text("expert_dtype", default="")
        formats = Precision.of(
            experts=None if precision.experts else EXPERT_RECIPES.get(stored),
            kv_cache="fp8",
            default=precision,
        )
        return ModelConfig(
            name=name,
            family="deepseek_v4",
            layers=layers,
            hidden=fields.integer("hidden_size"),
            heads=fields.integer("num_attention_heads"),
            kv_heads=fields.integer("num_key_value_heads", default=1),
            head_dim=fields.integer("head_dim", default=512),
            intermediate=inner,
            vocab=fields.integer("vocab_size"),
            activation=fields.activation("hidden_act", default="silu"),
            tied=fields.flag("tie_word_embeddings", default=False),
            max_positions=fields.integer("max_position_embeddings", default=0),
            mtp_layers=fields.integer("num_nextn_predict_layers", default=0),
            mixers=self._mixers(fields, layers),
            moe=MoE(
                experts=fields.integer("n_routed_experts"),
                topk=fields.integer("num_experts_per_tok"),
                intermediate=inner,
                shared_intermediate=inner * fields.integer("n_shared_experts", default=0),
                router_bias=True,
            ),
            sparse=Sparse(
                index_heads=fields.integer("index_n_heads", default=64),
                index_dim=fields.integer("index_head_dim", default=128),
                selected=fields.integer("index_topk", default=512),
                window=fields.integer("sliding_window", default=128),
                q_rank=fields.integer("q_lora_rank"),
                out_groups=fields.integer("o_groups"),
                out_rank=fields.integer("o_lora_rank"),
                rope_dim=fields.integer("qk_rope_head_dim", default=64),
                streams=fields.integer("hc_mult", default=0),
            ),
            default_precision=formats,
        )

    @staticmethod
    def _mixers(fields: Fields, layers: int) -> tuple[str, ...]:
        """One mixer a layer; entries beyond them are of layers for multi-token prediction."""
        name = "compress_ratios"
        ratios = fields.integers(name)
        if len(ratios) < layers:
            raise SilicastError(f"expected one number for each of {layers} layers", field=name)
        kinds = {0: "near", LIGHT: "csa", HEAVY: "hca"}
        unknown = [ratio for ratio in ratios if ratio not in kinds]
        if unknown:
            raise SilicastError(
                f"a ratio of {unknown[0]} is not modelled yet",
                kind="not_yet",
                field=name,
                hint="modelled: 0, 4, 128",
            )
        return tuple(kinds[ratio] for ratio in ratios[:layers])
