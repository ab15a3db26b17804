"""MiniMax-M3: block-sparse attention, dense first layers, a shared expert beside routed ones."""

from __future__ import annotations

from typing import final

from silicast.workload.families._family import Family, Fields, register
from silicast.workload.model import ModelConfig, MoE
from silicast.workload.precision import Precision
from silicast.workload.sparse import Sparse


@register
@final
class MiniMaxM3(Family):
    """``sparse_attention_freq`` and ``moe_layer_freq`` say of every layer which kinds it has."""

    architectures = ("MiniMaxM3ForCausalLM",)
    model_types = ("minimax_m3",)
    structures = ("experts", "sparse")

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        layers = fields.layers("num_hidden_layers")
        hidden, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
        inner = fields.integer("moe_intermediate_size", "intermediate_size")
        shared = fields.integer("n_shared_experts", default=0)
        sparse = fields.table("sparse_attention_config")
        first = fields.integer("first_k_dense_replace", default=0)
        routed = fields.integers("moe_layer_freq") or tuple(int(i >= first) for i in range(layers))
        selects = sparse.integers("sparse_attention_freq") or (1,) * layers
        return ModelConfig(
            name=name,
            family="minimax_m3",
            layers=layers,
            hidden=hidden,
            heads=heads,
            kv_heads=fields.integer("num_key_value_heads", default=4),
            head_dim=fields.head_dim(hidden, heads),
            intermediate=fields.integer("dense_intermediate_size", default=inner),
            vocab=fields.integer("vocab_size"),
            qk_norm=fields.flag("use_qk_norm", default=False),
            output_gate=fields.flag("attention_output_gate", default=False),
            tied=fields.flag("tie_word_embeddings", default=False),
            max_positions=fields.integer("max_position_embeddings", default=0),
            mtp_layers=fields.integer("num_nextn_predict_layers", default=0),
            mixers=tuple("msa" if chosen else "heads" for chosen in selects),
            moe=MoE(
                experts=fields.integer("num_local_experts"),
                topk=fields.integer("num_experts_per_tok"),
                intermediate=inner,
                shared_intermediate=shared
                * fields.integer("shared_intermediate_size", default=inner),
                router_bias=fields.flag("use_routing_bias", default=False),
                dense_layers=tuple(i for i in range(layers) if not routed[i]),
            ),
            sparse=Sparse(
                index_heads=sparse.integer("sparse_num_index_heads", default=4),
                index_dim=sparse.integer("sparse_index_dim", default=128),
                selected=sparse.integer("sparse_topk_blocks", default=16),
                block=sparse.integer("sparse_block_size", default=128),
            ),
            default_precision=precision,
        )
