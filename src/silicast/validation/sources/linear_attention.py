"""Rows of linear attention."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from silicast.learning.training import MeasuredKernels
from silicast.validation.source import AIC, SMALL, Read, Source
from silicast.validation.suites import _linear_attention_rows


def _recurrent(family: str) -> Read:
    def read(data: Path) -> Iterator[MeasuredKernels]:
        for part in _linear_attention_rows.read_rows(data, family):
            yield MeasuredKernels(part.batch, part.device, part.seconds, part.held_out)

    return read


SOURCES = tuple(
    Source(name, (AIC + f"{name}.parquet",), "one shape in several, by hash", _recurrent(name),
           SMALL)
    for name in ("gdn", "kda", "mamba2")
)  # fmt: skip
