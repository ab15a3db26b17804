"""GPT-NeoX and Pythia: attention and MLP side by side on two norms, rotary positions."""

from __future__ import annotations

from typing import final

from silicast.workload.families._family import Family, Fields, register
from silicast.workload.model import ModelConfig
from silicast.workload.precision import Precision


@register
@final
class GptNeoX(Family):
    """``use_parallel_residual`` false puts the MLP after attention."""

    architectures = ("GPTNeoXForCausalLM",)
    model_types = ("gpt_neox",)

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        hidden, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
        bias = fields.flag("attention_bias", default=True)
        parallel = fields.flag("use_parallel_residual", default=True)
        return ModelConfig(
            name=name,
            family="gpt_neox",
            layers=fields.layers("num_hidden_layers"),
            hidden=hidden,
            heads=heads,
            kv_heads=heads,
            head_dim=fields.head_dim(hidden, heads),
            intermediate=fields.integer("intermediate_size"),
            vocab=fields.integer("vocab_size"),
            norm="layernorm",
            norm_bias=True,
            gated=False,
            activation=fields.activation("hidden_act", default="gelu"),
            qkv_bias=bias,
            o_bias=bias,
            mlp_bias=True,
            residual="parallel_two_norms" if parallel else "sequential",
            tied=fields.flag("tie_word_embeddings", default=False),
            max_positions=fields.integer("max_position_embeddings", default=2048),
            default_precision=precision,
        )
