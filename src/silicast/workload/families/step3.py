"""Step-3.5 and 3.7 Flash: windows in three of four layers, dense first layers, a shared expert."""

from __future__ import annotations

from typing import final

from silicast.workload.families._family import Family, Fields, register
from silicast.workload.families._usual import usual, window_layers
from silicast.workload.model import ModelConfig, MoE
from silicast.workload.precision import Precision


@register
@final
class Step3(Family):
    """``layer_types`` says which layers have a window."""

    architectures = ("Step3p5ForCausalLM", "Step3p7FlashForCausalLM")
    model_types = ("step3p5", "step3p7")
    structures = ("experts",)

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        fields.refuse("attention_other_setting", "other heads in layers with a window")
        sizes = usual(fields, name, precision, "step3")
        layers = sizes["layers"]
        inner = fields.integer("moe_intermediate_size")
        shared = fields.integer("share_expert_dim", default=0)
        first = fields.integer("first_k_dense_replace", default=0)
        own = {
            "windows": window_layers(fields, layers, 4, 512),
            "mtp_layers": fields.integer("num_nextn_predict_layers", default=0),
            "moe": MoE(
                experts=fields.integer("num_experts", "moe_num_experts"),
                topk=fields.integer("num_experts_per_tok", "moe_top_k"),
                intermediate=inner,
                shared_intermediate=shared * fields.integer("n_shared_experts", default=1),
                router_bias=fields.flag("use_moe_router_bias", default=False),
                dense_layers=tuple(range(first)),
            ),
        }
        return ModelConfig(**{**sizes, **own})
