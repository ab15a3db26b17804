"""MPT: norms without bias, alibi or learned positions, plain GELU MLP, tied head."""

from __future__ import annotations

from typing import final

from silicast.core.errors import SilicastError
from silicast.workload.families._family import Family, Fields, register
from silicast.workload.model import ModelConfig
from silicast.workload.precision import Precision


@register
@final
class Mpt(Family):
    """``no_bias`` removes every bias, the norms' included."""

    architectures = ("MPTForCausalLM", "MptForCausalLM")
    model_types = ("mpt",)

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        hidden, heads = fields.integer("d_model"), fields.integer("n_heads")
        bias = not fields.flag("no_bias", default=True)
        positions = fields.integer("max_seq_len", default=2048)
        alibi = fields.table("attn_config").flag("alibi", default=False)
        learned = fields.flag("learned_pos_emb", default=True) and not alibi
        if not fields.flag("tie_word_embeddings", default=True):
            raise SilicastError(
                "MPT without tied embeddings is not modelled yet",
                kind="not_yet",
                field="tie_word_embeddings",
            )
        return ModelConfig(
            name=name,
            family="mpt",
            layers=fields.layers("n_layers"),
            hidden=hidden,
            heads=heads,
            kv_heads=heads,
            head_dim=fields.head_dim(hidden, heads),
            intermediate=fields.integer("expansion_ratio", default=4) * hidden,
            vocab=fields.integer("vocab_size", default=50368),
            norm="layernorm",
            norm_bias=bias,
            gated=False,
            activation="gelu",
            qkv_bias=bias,
            o_bias=bias,
            mlp_bias=bias,
            position="learned" if learned else ("alibi" if alibi else "none"),
            position_rows=positions if learned else 0,
            tied=True,
            max_positions=positions,
            default_precision=precision,
        )
