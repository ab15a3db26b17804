"""Rows of experts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from silicast.learning.boosting import Settings
from silicast.learning.training import MeasuredKernels
from silicast.validation.source import AIC, MANY, Source
from silicast.validation.suites import _moe_rows
from silicast.workload.op import OpBatch

SHARE = 16
"""One in so many rows of a campaign is read: more teach little and cost minutes."""
SETTINGS = Settings(trees=100, depth=7, rate=0.2, rows=0.5, columns=0.4, prior=6.0, clip=2.5)


def _moe(data: Path) -> Iterator[MeasuredKernels]:
    parts = _moe_rows.aic_rows(data, MANY, share=SHARE) + _moe_rows.pipeweave_rows(data, MANY)
    for part in parts:
        batch = OpBatch("moe", part.variant, part.dims)
        yield MeasuredKernels(batch, part.device, part.seconds, part.held_out)


SOURCES = (
    Source("moe", (AIC + "moe.parquet", "pipeweave/kernel_moe_w13.parquet"),
           "one layer in five, by hash, is held out on every device; of the others one share of a "
           "rank in five (layer, ep, tp), and of w13 one problem in five", _moe, SETTINGS),
)  # fmt: skip
