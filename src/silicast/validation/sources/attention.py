"""Rows of attention."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from silicast.learning.training import MeasuredKernels
from silicast.validation.source import AIC, DEEP, MANY, Read, Source
from silicast.validation.suites import _attention_rows
from silicast.validation.suites._encoder_rows import encoder_campaigns


def _attention(table: str) -> Read:
    def read(data: Path) -> Iterator[MeasuredKernels]:
        for campaign in _attention_rows.read_campaigns(data, table, 3 * MANY):
            if campaign.newest:
                seconds = campaign.latency_us * 1e-6
                yield MeasuredKernels(campaign.batch, campaign.device.name, seconds, campaign.held)

    return read


def _prefill(data: Path) -> Iterator[MeasuredKernels]:
    """Causal attention of decoders, and attention of encoders."""
    yield from _attention("context")(data)
    for campaign in encoder_campaigns(data):
        if campaign.newest:
            seconds = campaign.latency_us * 1e-6
            yield MeasuredKernels(campaign.batch, campaign.device.name, seconds, campaign.held)


_HEADS = "one head geometry in four, by hash, is held out"

SOURCES = (
    Source("attention_prefill",
           (AIC + "context_attention.parquet", AIC + "encoder_attention.parquet"),
           _HEADS, _prefill, DEEP),
    Source("attention_decode", (AIC + "generation_attention.parquet",),
           _HEADS, _attention("generation"), DEEP),
)  # fmt: skip
