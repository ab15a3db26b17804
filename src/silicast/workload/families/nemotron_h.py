"""Nemotron-H and Nemotron-3: layers of Mamba 2, of attention, of an MLP or of experts alone."""

from __future__ import annotations

from typing import final

from silicast.core.errors import SilicastError
from silicast.workload.families._family import Family, Fields, register
from silicast.workload.model import ModelConfig, MoE, Recurrent
from silicast.workload.precision import Precision

_LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
_MIXERS = {"mamba": "mamba2", "attention": "heads"}
_FEEDS = {"mlp": "mlp", "moe": "experts"}


@register
@final
class NemotronH(Family):
    """Each layer has one norm and one part. MLPs and experts square a ReLU and have no gate;
    attention has no positions; the experts of the larger ones work in a latent.
    """

    architectures = ("NemotronHForCausalLM",)
    model_types = ("nemotron_h",)
    structures = ("experts", "mamba")

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        blocks = _blocks(fields)
        heads = fields.integer("num_attention_heads")
        bias = fields.flag("attention_bias", default=False)
        fields.refuse("use_bias", "a bias in projections of Mamba layers")
        return ModelConfig(
            name=name,
            family="nemotron_h",
            layers=len(blocks),
            hidden=fields.integer("hidden_size"),
            heads=heads,
            kv_heads=fields.integer("num_key_value_heads", default=heads),
            head_dim=fields.integer("head_dim", "attention_head_dim", default=128),
            intermediate=fields.integer("intermediate_size"),
            vocab=fields.integer("vocab_size"),
            gated=False,
            activation=fields.activation("mlp_hidden_act", default="relu2"),
            qkv_bias=bias,
            o_bias=bias,
            mlp_bias=fields.flag("mlp_bias", default=False),
            position="none",
            tied=fields.flag("tie_word_embeddings", default=False),
            max_positions=fields.integer("max_position_embeddings", default=8192),
            mtp_layers=fields.integer("num_nextn_predict_layers", default=0),
            mixers=tuple(_MIXERS.get(block, "") for block in blocks),
            feeds=tuple(_FEEDS.get(block, "") for block in blocks),
            moe=_experts(fields) if "moe" in blocks else None,
            recurrent=Recurrent(
                key_heads=fields.integer("n_groups", default=8),
                key_dim=fields.integer("ssm_state_size", default=128),
                value_heads=fields.integer("mamba_num_heads"),
                value_dim=fields.integer("mamba_head_dim", default=64),
                taps=fields.integer("conv_kernel", default=4),
                taps_bias=fields.flag("use_conv_bias", default=True),
                chunk=fields.integer("chunk_size", default=128),
            ),
            default_precision=precision,
        )


def _blocks(fields: Fields) -> tuple[str, ...]:
    """The part of each layer: a pattern of letters, or a list of words."""
    pattern = fields.text("hybrid_override_pattern", default="")
    if not pattern:
        names = fields.words("layers_block_type")
    else:
        names = tuple(_LETTERS.get(letter, letter) for letter in pattern)
    field = "hybrid_override_pattern" if pattern else "layers_block_type"
    layers = fields.integer("num_hidden_layers", default=len(names))
    if len(names) != layers or not names:
        raise SilicastError(f"{len(names)} parts for {layers} layers", field=field)
    for part in names:
        if part not in _LETTERS.values():
            raise SilicastError(
                f"layers of {part[:40]!r} are not modelled yet",
                kind="not_yet",
                field=field,
                hint=f"modelled: {', '.join(_LETTERS.values())}",
            )
    return names


def _experts(fields: Fields) -> MoE:
    return MoE(
        experts=fields.integer("n_routed_experts"),
        topk=fields.integer("num_experts_per_tok"),
        intermediate=fields.integer("moe_intermediate_size"),
        shared_intermediate=fields.integer("moe_shared_expert_intermediate_size", default=0),
        router_bias=True,
        latent=fields.integer("moe_latent_size", default=0),
    )
