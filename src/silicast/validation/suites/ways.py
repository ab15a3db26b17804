"""Ways to predict a kernel that was not measured, on a device that was: ours beside others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar, final

import numpy as np

from silicast.learning.tiers import Evidence
from silicast.validation.baselines.raw_shapes import RawShapes
from silicast.validation.baselines.throughput import Throughput
from silicast.validation.baselines.wave_scaling import keys
from silicast.validation.held_rows import (
    Parts,
    Predicted,
    by_device,
    model_of,
    predicted,
    scored,
    some_rows,
)
from silicast.validation.run import ANALYTIC
from silicast.validation.source import sources
from silicast.validation.suite import Scored, Suite, register_suite, resting

ROWS = 500
"""Of each metric and device, about."""
LEARNT_FROM = 6000
"""Rows of a device that the others learn from; our corrections have seen all that there are."""
FEWEST = 300
"""A device with fewer rows to learn from is left out."""


@register_suite
@final
class Ways(Suite):
    """Corrections, analytic tier and what is made again from others' papers, on the same rows."""

    name: ClassVar[str] = "ways"
    title: ClassVar[str] = "Ways to predict unseen kernels of a known device"
    split: ClassVar[str] = (
        "rows that corrections hold out, some 500 a device and format; the others learn from at "
        "most 6,000 of the remaining rows of the device. 'Best without variant' is no prediction: "
        "the median of what the campaigns of one problem measured, for problems with two or more; "
        "nobody who is not told library and version can be closer."
    )
    source: ClassVar[tuple[str, ...]] = tuple(
        sorted({table for each in sources().values() for table in each.tables})
    )
    both_tiers: ClassVar[bool] = False
    thresholds: ClassVar[Mapping[str, Mapping[str, float]]] = {}

    def score(self, data: Path, limit: int | None = None) -> list[Scored]:
        """One metric a family and format."""
        found: dict[str, list[Predicted]] = {}
        for (metric, _), parts in by_device(data).items():
            if limit is None or metric not in found:
                found.setdefault(metric, []).extend(_device_rows(parts, limit))
        return [scored(metric, found[metric]) for metric in sorted(found) if found[metric]]


def _device_rows(parts: Parts, limit: int | None) -> Iterator[Predicted]:
    taught = some_rows(parts, LEARNT_FROM if limit is None else FEWEST, held_out=False)
    if sum(len(part.seconds) for part in taught) < FEWEST:
        return
    model = model_of(parts[0])
    trees, table = RawShapes(model, taught), Throughput(model, taught)
    medians = _medians(parts)
    for part in some_rows(parts, ROWS if limit is None else 20, held_out=True):
        with resting(Evidence(learned=False)):
            analytic = predicted(part).estimate_s
        yield Predicted(
            part,
            predicted(part),
            {
                ANALYTIC: analytic,
                "trees over raw sizes": trees.seconds(part),
                "interpolated throughput": table.seconds(part),
                "best without variant": np.array([medians.get(k, np.nan) for k in keys(part)]),
            },
        )


def _medians(parts: Parts) -> dict[tuple[object, ...], float]:
    """Per problem that several campaigns measured, the median of their times."""
    found: dict[tuple[object, ...], list[float]] = {}
    for part in parts:
        for key, value in zip(keys(part), part.seconds.tolist(), strict=True):
            found.setdefault(key, []).append(value)
    return {key: float(np.median(values)) for key, values in found.items() if len(values) > 1}
