"""gpt-oss: windows in every other layer, sinks, biases everywhere, experts in MXFP4."""

from __future__ import annotations

from typing import final

from silicast.workload.families._family import Family, Fields, register
from silicast.workload.model import ModelConfig, MoE
from silicast.workload.precision import Precision


@register
@final
class GptOss(Family):
    """``layer_types`` names the layers that see ``sliding_window`` keys; else every other one."""

    architectures = ("GptOssForCausalLM",)
    model_types = ("gpt_oss",)
    structures = ("experts",)

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        layers = fields.layers("num_hidden_layers")
        bias = fields.flag("attention_bias", default=True)
        inner = fields.integer("intermediate_size")
        usual = tuple("full_attention" if i % 2 else "sliding_attention" for i in range(layers))
        window = fields.integer("sliding_window", default=128)
        return ModelConfig(
            name=name,
            family="gpt_oss",
            layers=layers,
            hidden=fields.integer("hidden_size"),
            heads=fields.integer("num_attention_heads"),
            kv_heads=fields.integer("num_key_value_heads", default=8),
            head_dim=fields.integer("head_dim", default=64),
            intermediate=inner,
            vocab=fields.integer("vocab_size"),
            activation=fields.activation("hidden_act", default="silu"),
            qkv_bias=bias,
            o_bias=bias,
            mlp_bias=True,
            sinks=True,
            tied=fields.flag("tie_word_embeddings", default=False),
            windows=tuple(
                window if kind == "sliding_attention" else 0
                for kind in fields.layer_types(layers, usual)
            ),
            max_positions=fields.integer("max_position_embeddings", default=131072),
            moe=MoE(
                experts=fields.integer("num_local_experts", default=128),
                topk=fields.integer("num_experts_per_tok", "experts_per_token", default=4),
                intermediate=inner,
                router_bias=True,
            ),
            default_precision=precision,
        )
