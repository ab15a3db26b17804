"""Rows of experts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from silicast.learning.training import MeasuredKernels
from silicast.validation.source import AIC, DEEP, MANY, Source
from silicast.validation.suites import _moe_rows
from silicast.workload.op import OpBatch


def _moe(data: Path) -> Iterator[MeasuredKernels]:
    parts = [*_moe_rows.aic_rows(data, MANY // 10), *_moe_rows.pipeweave_rows(data, MANY)]
    for part in parts:
        batch = OpBatch("moe", part.variant, part.dims)
        yield MeasuredKernels(batch, part.device, part.seconds, part.held_out)


SOURCES = (
    Source("moe", (AIC + "moe.parquet", "pipeweave/kernel_moe_w13.parquet"),
           "one layer in five, by hash, is held out on every device", _moe, DEEP),
)  # fmt: skip
