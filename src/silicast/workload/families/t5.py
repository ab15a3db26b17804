"""T5, its second version (Flan-T5, mT5) and Switch: encoder and decoder, tables of distances."""

from __future__ import annotations

from dataclasses import replace
from typing import final

from silicast.workload.families._family import Family, Fields, register
from silicast.workload.model import ModelConfig, MoE
from silicast.workload.precision import Precision


@register
@final
class T5(Family):
    """``feed_forward_proj`` "gated-..." has a gate. Switch has experts in every
    ``encoder_sparse_step``-th layer of the encoder and every ``decoder_sparse_step``-th of the
    decoder; each token passes one.
    """

    architectures = (
        "T5ForConditionalGeneration", "T5WithLMHeadModel", "MT5ForConditionalGeneration",
        "UMT5ForConditionalGeneration", "SwitchTransformersForConditionalGeneration",
    )  # fmt: skip
    model_types = ("t5", "mt5", "umt5", "switch_transformers")
    structures = ("encoder", "experts")

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        layers = fields.layers("num_layers")
        projected = fields.text("feed_forward_proj", default="relu")
        kind = projected.removeprefix("gated-")
        encoder = ModelConfig(
            name=f"{name}, encoder",
            family="switch" if self._routed(fields) else "t5",
            layers=layers,
            hidden=fields.integer("d_model"),
            heads=fields.integer("num_heads"),
            kv_heads=fields.integer("num_heads"),
            head_dim=fields.integer("d_kv", default=64),
            intermediate=fields.integer("d_ff"),
            vocab=fields.integer("vocab_size", default=32128),
            gated=projected.startswith("gated-"),
            activation="gelu" if kind.startswith("gelu") else kind,
            position="none",
            relative_buckets=fields.integer("relative_attention_num_buckets", default=32),
            tied=fields.flag("tie_word_embeddings", default=True),
            causal=False,
            moe=self._experts(fields, "encoder_sparse_step", layers),
            default_precision=precision,
        )
        depth = fields.integer("num_decoder_layers", default=layers)
        return replace(
            encoder,
            name=name,
            layers=depth,
            causal=True,
            encoder=encoder,
            moe=self._experts(fields, "decoder_sparse_step", depth),
        )

    @staticmethod
    def _routed(fields: Fields) -> bool:
        return fields.integer("num_experts", default=0) > 0

    def _experts(self, fields: Fields, step: str, layers: int) -> MoE | None:
        if not self._routed(fields):
            return None
        every = max(fields.integer(step, default=2), 1)
        return MoE(
            experts=fields.integer("num_experts"),
            topk=1,
            intermediate=fields.integer("d_ff"),
            router_bias=fields.flag("router_bias", default=False),
            dense_layers=tuple(i for i in range(layers) if i % every != 1 % every),
            capacity=fields.integer("expert_capacity", default=64),
        )
