"""MiMo-V2-Flash: windows with sinks in five of six layers, values narrower than keys, experts."""

from __future__ import annotations

from typing import final

from silicast.workload.families._family import Family, Fields, register
from silicast.workload.model import LayerSizes, ModelConfig, MoE
from silicast.workload.precision import Precision


@register
@final
class MiMoV2(Family):
    """``hybrid_layer_pattern``: layers with a window; ``moe_layer_freq``: those with experts."""

    architectures = ("MiMoV2FlashForCausalLM",)
    model_types = ("mimo_v2_flash",)
    structures = ("experts", "sizes")

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        layers = fields.layers("num_hidden_layers")
        heads, groups = fields.integer("num_attention_heads"), fields.integer("num_key_value_heads")
        width, values = fields.integer("head_dim"), fields.integer("v_head_dim", default=0)
        window = fields.integer("sliding_window", default=128)
        near = fields.integers("hybrid_layer_pattern") or (0,) * layers
        routed = fields.integers("moe_layer_freq") or (1,) * layers
        local = LayerSizes(
            heads=fields.integer("swa_num_attention_heads", default=heads),
            kv_heads=fields.integer("swa_num_key_value_heads", default=groups),
            head_dim=fields.integer("swa_head_dim", default=width),
            v_head_dim=fields.integer("swa_v_head_dim", default=values),
            sinks=fields.flag("add_swa_attention_sink_bias", default=False),
        )
        whole = LayerSizes(
            v_head_dim=values, sinks=fields.flag("add_full_attention_sink_bias", default=False)
        )
        shared = fields.integer("n_shared_experts", default=0)
        inner = fields.integer("moe_intermediate_size")
        corrected = fields.text("topk_method", default="greedy") == "noaux_tc"
        bias = fields.flag("attention_bias", default=False)
        return ModelConfig(
            name=name,
            family="mimo_v2",
            layers=layers,
            hidden=fields.integer("hidden_size"),
            heads=heads,
            kv_heads=groups,
            head_dim=width,
            intermediate=fields.integer("intermediate_size"),
            vocab=fields.integer("vocab_size"),
            activation=fields.activation("hidden_act", default="silu"),
            qkv_bias=bias,
            o_bias=bias,
            tied=fields.flag("tie_word_embeddings", default=False),
            windows=tuple(window if mark else 0 for mark in near),
            sizes=tuple(local if mark else whole for mark in near),
            max_positions=fields.integer("max_position_embeddings", default=262144),
            moe=MoE(
                experts=fields.integer("n_routed_experts", default=256),
                topk=fields.integer("num_experts_per_tok", default=8),
                intermediate=inner,
                shared_intermediate=inner * shared,
                router_bias=corrected,
                dense_layers=tuple(i for i, mark in enumerate(routed) if not mark),
            ),
            default_precision=precision,
        )
