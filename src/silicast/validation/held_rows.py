"""Measured rows of all families as corrections take them, in samples that can be scored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
from numpy.typing import NDArray

from silicast.core.numerics import F64
from silicast.hardware.catalog import find_device
from silicast.kernels.check import take
from silicast.kernels.implementation import Implementation, KernelTimes, implementation_for
from silicast.learning.training import MeasuredKernels
from silicast.validation.source import sources
from silicast.validation.suite import Scored, subsample, timed

ONE_METRIC = frozenset(
    {"elementwise", "softmax", "layernorm", "rmsnorm", "silu_mul", "rope", "embedding"}
)
"""Families whose formats are reported together."""

Parts = list[MeasuredKernels]


@final
@dataclass(frozen=True)
class Predicted:
    """Rows of one device and variant, predicted in every way.

    Attributes:
        part: the rows as measured.
        times: what is scored; others: what stands beside it, seconds, each of shape (n,).
    """

    part: MeasuredKernels
    times: KernelTimes
    others: Mapping[str, F64]


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


def scored(metric: str, rows: Sequence[Predicted]) -> Scored:
    """Predicted rows as a suite reports them: microseconds, by device and architecture."""

    def joined(columns: Iterator[F64]) -> F64:
        return 1e6 * np.concatenate(list(columns))

    lengths = [len(each.part.seconds) for each in rows]
    devices = [find_device(each.part.device) for each in rows]
    return Scored(
        metric=metric,
        measured=joined(each.part.seconds for each in rows),
        estimate=joined(each.times.estimate_s for each in rows),
        p05=joined(each.times.p05_s for each in rows),
        p95=joined(each.times.p95_s for each in rows),
        roofline=joined(each.times.bound_s for each in rows),
        baselines={name: joined(each.others[name] for each in rows) for name in rows[0].others},
        groups={
            "device": np.repeat([device.name for device in devices], lengths),
            "architecture": np.repeat([device.architecture for device in devices], lengths),
        },
    )
