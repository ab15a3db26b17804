"""Rows of attention."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from silicast.learning.boosting import Settings
from silicast.learning.training import MeasuredKernels
from silicast.validation.source import AIC, Read, Source
from silicast.validation.suites import _attention_rows
from silicast.validation.suites._encoder_rows import encoder_campaigns

ROWS_PER_DEVICE = 70_000
"""Rows read of each device, older releases among them; more than that teach no more."""
ROWS_PER_ENCODER = 4_000
"""Rows read of each campaign of encoders."""
SETTINGS = Settings(trees=400, depth=8, rate=0.2, rows=0.35, columns=0.5, prior=5.0, clip=3.0)
"""Engines pick among kernels by thresholds in several sizes at once: many deep trees that are not
held back much. On held-out geometries of Hopper's decode, without regions, 400 trees are 3.9 % off
where 160 with the usual shrinkage are 5.0 %."""
PREFILL = replace(SETTINGS, trees=300)


def _attention(table: str) -> Read:
    def read(data: Path) -> Iterator[MeasuredKernels]:
        for campaign in _attention_rows.read_campaigns(data, table, ROWS_PER_DEVICE):
            if campaign.newest:
                seconds = campaign.latency_us * 1e-6
                yield MeasuredKernels(campaign.batch, campaign.device.name, seconds, campaign.held)

    return read


def _prefill(data: Path) -> Iterator[MeasuredKernels]:
    """Causal attention of decoders, and attention of encoders."""
    yield from _attention("context")(data)
    for campaign in encoder_campaigns(data, ROWS_PER_ENCODER):
        if campaign.newest:
            seconds = campaign.latency_us * 1e-6
            yield MeasuredKernels(campaign.batch, campaign.device.name, seconds, campaign.held)


_HEADS = "one head geometry in four, by hash, is held out"

SOURCES = (
    Source("attention_prefill",
           (AIC + "context_attention.parquet", AIC + "encoder_attention.parquet"),
           _HEADS, _prefill, PREFILL),
    Source("attention_decode", (AIC + "generation_attention.parquet",),
           _HEADS, _attention("generation"), SETTINGS),
)  # fmt: skip
