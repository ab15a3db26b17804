"""Rows of attention over latent caches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from silicast.learning.training import MeasuredKernels
from silicast.validation.source import AIC, DEEP, Read, Source
from silicast.validation.suites import _mla_rows


def _latent(table: str) -> Read:
    def read(data: Path) -> Iterator[MeasuredKernels]:
        for part in _mla_rows.read_mla(data, table):
            yield MeasuredKernels(part.batch, part.device.name, part.latency_us * 1e-6, part.held)

    return read


def _blocks(data: Path) -> Iterator[MeasuredKernels]:
    for table in ("mla_context_module", "mla_generation_module"):
        for part in _mla_rows.read_mla_modules(data, table):
            yield MeasuredKernels(part.batch, part.device.name, part.latency_us * 1e-6, part.held)


_PAIRS = "pairs of heads and batch"

SOURCES = (
    Source("mla_prefill", (AIC + "context_mla.parquet",), _PAIRS, _latent("context_mla"), DEEP),
    Source("mla_decode", (AIC + "generation_mla.parquet",), _PAIRS, _latent("generation_mla"),
           DEEP),
    Source("mla_module",
           (AIC + "mla_context_module.parquet", AIC + "mla_generation_module.parquet"),
           _PAIRS, _blocks, DEEP),
)  # fmt: skip
