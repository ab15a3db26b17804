"""Rows of the exchange of tokens between experts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from silicast.learning.boosting import Settings
from silicast.learning.training import MeasuredKernels
from silicast.validation.source import AIC, Read, Source
from silicast.validation.suites import _moe_exchange_rows

_TABLES = tuple(
    f"{AIC}{name}.parquet"
    for name in ("moe_a2a", "wideep_deepep_ll", "wideep_deepep_normal", "trtllm_alltoall")
)

_SETTINGS = Settings(trees=200, depth=6, rate=0.12, rows=0.6, prior=8.0)


def _exchange(family: str) -> Read:
    def read(data: Path) -> Iterator[MeasuredKernels]:
        for part in _moe_exchange_rows.load_rows(data):
            if part.batch.family == family:
                yield MeasuredKernels(part.batch, part.device, part.seconds, part.held_out)

    return read


SOURCES = tuple(
    Source(family, _TABLES, "one in four layers; between nodes and over NVLink alone one in two "
           "pairs of tokens and nodes", _exchange(family), _SETTINGS)
    for family in ("dispatch", "combine")
)  # fmt: skip
