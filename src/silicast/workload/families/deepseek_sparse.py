"""DeepSeek-V3.2 and GLM-5: DeepSeek-V3's structure with sparse attention."""

from __future__ import annotations

from dataclasses import replace
from typing import final

from silicast.workload.families._family import Family, Fields, register
from silicast.workload.families.deepseek import DeepSeek
from silicast.workload.model import ModelConfig
from silicast.workload.precision import Precision
from silicast.workload.sparse import Sparse


@register
@final
class DeepSeekSparse(Family):
    """In GLM-5.2 three of four layers use the selection of the layer before (``indexer_types``)."""

    architectures = ("DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM")
    model_types = ("deepseek_v32", "glm_moe_dsa")
    structures = ("experts", "latent", "sparse")

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        model = DeepSeek().read(fields, name, precision)
        kinds = fields.texts("indexer_types", model.layers, ("full", "shared"))
        mixers = {"full": "dsa", "shared": "dsa_shared"}
        return replace(
            model,
            family="deepseek_v32",
            mixers=tuple(mixers[kind] for kind in kinds) or ("dsa",) * model.layers,
            sparse=Sparse(
                index_heads=fields.integer("index_n_heads", default=64),
                index_dim=fields.integer("index_head_dim", default=128),
                selected=fields.integer("index_topk", default=2048),
            ),
        )
