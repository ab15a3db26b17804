"""Whisper: an encoder of spectrograms behind two convolutions, and a decoder on its outputs."""

from __future__ import annotations

from dataclasses import replace
from typing import final

from silicast.workload.families._family import Family, Fields, register
from silicast.workload.model import ModelConfig
from silicast.workload.precision import Precision


@register
@final
class Whisper(Family):
    """Lengths of prompts are the encoder's: 1,500 tokens are 30 s of sound. Keys have no bias."""

    architectures = ("WhisperForConditionalGeneration", "WhisperModel")
    model_types = ("whisper",)
    structures = ("encoder",)

    def read(self, fields: Fields, name: str, precision: Precision) -> ModelConfig:
        """See :meth:`Family.read`."""
        hidden, heads = fields.integer("d_model"), fields.integer("encoder_attention_heads")
        frames = fields.integer("max_source_positions", default=1500)
        tokens = fields.integer("max_target_positions", default=448)
        encoder = ModelConfig(
            name=f"{name}, encoder",
            family="whisper",
            layers=fields.layers("encoder_layers"),
            hidden=hidden,
            heads=heads,
            kv_heads=heads,
            head_dim=fields.head_dim(hidden, heads),
            intermediate=fields.integer("encoder_ffn_dim"),
            vocab=fields.integer("vocab_size", default=51865),
            norm="layernorm",
            norm_bias=True,
            gated=False,
            activation=fields.activation("activation_function", default="gelu"),
            qkv_bias=True,
            k_bias=False,
            o_bias=True,
            mlp_bias=True,
            position="learned",
            position_rows=frames,
            mel_bins=fields.integer("num_mel_bins", default=80),
            tied=True,
            causal=False,
            max_positions=frames,
            default_precision=precision,
        )
        groups = fields.integer("decoder_attention_heads", default=heads)
        return replace(
            encoder,
            name=name,
            layers=fields.layers("decoder_layers"),
            heads=groups,
            kv_heads=groups,
            head_dim=fields.head_dim(hidden, groups),
            intermediate=fields.integer("decoder_ffn_dim"),
            position_rows=tokens,
            mel_bins=0,
            causal=True,
            encoder=encoder,
            max_positions=frames + tokens,
        )
