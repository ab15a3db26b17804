"""Measured rows of all families as corrections take them, in samples that can be scored."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from silicast.hardware.catalog import find_device
from silicast.kernels.check import take
from silicast.kernels.implementation import Implementation, KernelTimes, implementation_for
from silicast.learning.training import MeasuredKernels
from silicast.validation.source import sources
from silicast.validation.suite import subsample, timed

ONE_METRIC = frozenset(
    {"elementwise", "softmax", "layernorm", "rmsnorm", "silu_mul", "rope", "embedding"}
)
"""Families whose formats are reported together."""

Parts = list[MeasuredKernels]


def by_device(data: Path) -> dict[tuple[str, str], Parts]:
    """(metric, device) -> its rows, one part a variant; sorted."""
    found: dict[tuple[str, str], Parts] = {}
    for source in sources().values():
        for part in source.read(data):
            key = (metric_of(part), find_device(part.device).name)
            found.setdefault(key, []).append(part)
    return dict(sorted(found.items()))


def metric_of(part: MeasuredKernels) -> str:
    """The metric that a part is scored under: its family, and its format where they differ."""
    family, dtype = part.batch.family, part.batch.variant.dtype
    return f"{family}_us" if family in ONE_METRIC else f"{family}_{dtype}_us"


def some_rows(parts: Sequence[MeasuredKernels], count: int, *, held_out: bool) -> Parts:
    """About ``count`` of the held-out or of the other rows, the same share of every part."""
    chosen = [part.held_out == held_out for part in parts]
    whole = sum(int(rows.sum()) for rows in chosen)
    found = []
    for part, mask in zip(parts, chosen, strict=True):
        rows = np.flatnonzero(mask)
        if len(rows):
            share = max(1, round(count * len(rows) / max(whole, 1)))
            found.append(taken(part, rows[subsample(len(rows), share)]))
    return found


def taken(part: MeasuredKernels, rows: NDArray[np.int64]) -> MeasuredKernels:
    """Some rows of a part."""
    return MeasuredKernels(
        take(part.batch, rows), part.device, part.seconds[rows], part.held_out[rows]
    )


def model_of(part: MeasuredKernels) -> Implementation:
    """The model of a part's family."""
    model = implementation_for(part.batch.family, "simt")
    assert model is not None
    return model


def predicted(part: MeasuredKernels) -> KernelTimes:
    """Times of a part on the evidence that suites are scored with."""
    return timed(model_of(part), part.batch, find_device(part.device))
