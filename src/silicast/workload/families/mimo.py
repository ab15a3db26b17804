"""MiMo (7B): Qwen2's structure and layers for multi-token prediction."""

from __future__ import annotations

from typing import final

from silicast.workload.families._family import Family, Fields, register
from silicast.workload.model import ModelConfig
from silicast.workload.precision import Precision


@register
@final
class MiMo(Family):
    """The extra layers run only in speculation; see ``ModelConfig.mtp_layers``."""

    architectures = ("MiMoForCausalLM",)
    model_types = ("mimo",)

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        hidden, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
        fields.refuse("use_sliding_window", "a sliding window in this family")
        return ModelConfig(
            name=name,
            family="mimo",
            layers=fields.layers("num_hidden_layers"),
            hidden=hidden,
            heads=heads,
            kv_heads=fields.integer("num_key_value_heads", default=heads),
            head_dim=fields.head_dim(hidden, heads),
            intermediate=fields.integer("intermediate_size"),
            vocab=fields.integer("vocab_size"),
            activation=fields.activation("hidden_act", default="silu"),
            qkv_bias=fields.flag("attention_bias", default=True),
            tied=fields.flag("tie_word_embeddings", default=False),
            max_positions=fields.integer("max_position_embeddings", default=32768),
            mtp_layers=fields.integer("num_nextn_predict_layers", default=0),
            default_precision=precision,
        )
