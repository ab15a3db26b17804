"""Bidirectional attention of encoders: FlashAttention 2 to 4, TensorRT-LLM and Triton kernels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, final

import numpy as np

from silicast.kernels.check import take
from silicast.kernels.implementation import implementation_for
from silicast.validation.suite import Labels, Scored, Suite, register_suite, subsample, timed
from silicast.validation.suites._encoder_rows import Campaign, encoder_campaigns
from silicast.validation.suites.attention import roofline_s

MICRO = 1e6
COLUMNS = ("measured", "estimate", "p05", "p95", "roofline")
GROUPS = ("device", "engine", "width", "regime")


@register_suite
@final
class EncoderAttention(Suite):
    """Head geometries that no constant was fitted on."""

    name: ClassVar[str] = "encoder-attention"
    title: ClassVar[str] = "Bidirectional attention of encoders (aiconfigurator)"
    split: ClassVar[str] = (
        "Newest version of each engine on each device (earlier ones of some engines ran two to "
        "five times slower). 13 of 36 head geometries (heads, head width), by hash, are never "
        "fitted and scored here; the others give the constants "
        "(benchmarks/fit_encoder_attention.py)."
    )
    source: ClassVar[tuple[str, ...]] = ("aiconfigurator/encoder_attention.parquet",)
    thresholds: ClassVar[Mapping[str, Mapping[str, float]]] = {
        "latency_us": {"mean_ape": 16.0, "bias_pct": 8.0}
    }

    def score(self, data: Path, limit: int | None = None) -> list[Scored]:
        """One row a shape, device and engine."""
        parts = [
            _scored(campaign)
            for campaign in encoder_campaigns(data)
            if campaign.newest and campaign.held.any()
        ]
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        rows = subsample(len(columns["measured"]), limit)
        return [
            Scored(
                metric="latency_us",
                **{name: columns[name][rows] for name in COLUMNS},  # type: ignore[arg-type]
                groups={name: columns[name][rows] for name in GROUPS},
            )
        ]


def _scored(campaign: Campaign) -> dict[str, np.ndarray]:
    rows = np.flatnonzero(campaign.held)
    batch = take(campaign.batch, rows)
    model = implementation_for("attention_prefill", "simt")
    assert model is not None
    times = timed(model, batch, campaign.device)
    return {
        "measured": campaign.latency_us[rows],
        "estimate": times.estimate_s * MICRO,
        "p05": times.p05_s * MICRO,
        "p95": times.p95_s * MICRO,
        "roofline": roofline_s(times, batch, campaign.device) * MICRO,
        "device": np.full(len(rows), campaign.device.name),
        "engine": np.full(len(rows), f"{campaign.backend} {campaign.version}"),
        "width": np.array([f"head width {width}" for width in batch.dims["head_dim"].tolist()]),
        "regime": _lengths(batch.dims["q_len"]),
    }


def _lengths(tokens: np.ndarray) -> Labels:
    labels: Labels = np.where(
        tokens <= 256, "<= 256 tokens", np.where(tokens <= 2048, "257 to 2048", "> 2048 tokens")
    )
    return labels
