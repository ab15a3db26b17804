"""Ways to predict a kernel that was not measured, on a device that was: ours beside others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from lab.scorecard.baselines.raw_shapes import RawShapes
from lab.scorecard.baselines.throughput import Throughput
from lab.scorecard.baselines.wave_scaling import keys
from lab.scorecard.kernel_suite import LabelOf, scored_part
from lab.scorecard.results import ANALYTIC
from lab.scorecard.rows import MeasuredRows, shares_of
from lab.scorecard.suite import Scored, Suite, predicted, resting
from lab.scorecard.training import all_tables, by_metric_and_device
from silicast.learning.tiers import Evidence

ROWS = 500
"""Of each metric and device, about."""
LEARNT_FROM = 6000
"""Rows of a device that the others learn from; our corrections have seen all that there are."""
FEWEST = 300
"""A device with fewer rows to learn from is left out."""
LABELS: Mapping[str, LabelOf] = {
    "device": lambda rows, _: rows.hardware.name,
    "architecture": lambda rows, _: rows.hardware.architecture,
}


def _score(data: Path, limit: int | None) -> list[Scored]:
    """One metric a family and format; of a sample, the first device of each that has any rows."""
    table: dict[str, list[Scored]] = {}
    for (metric, _), parts in by_metric_and_device(data).items():
        if limit is None or not table.get(metric):
            table.setdefault(metric, []).extend(_of_device(metric, parts, limit))
    return [Scored.joined(metric, table[metric]) for metric in sorted(table) if table[metric]]


def _of_device(metric: str, parts: Sequence[MeasuredRows], limit: int | None) -> Iterator[Scored]:
    taught = shares_of(parts, LEARNT_FROM if limit is None else 2 * FEWEST, held=False)
    if sum(len(part) for part in taught) < FEWEST:
        return
    model = parts[0].model
    trees, table = RawShapes(model, taught), Throughput(model, taught)
    medians = _medians(parts)
    for part in shares_of(parts, ROWS if limit is None else max(20, limit // 4), held=True):
        with resting(Evidence(learned=False)):
            analytic = predicted(part).estimate_s
        ways = {
            ANALYTIC: analytic,
            "trees over raw sizes": trees.seconds(part),
            "interpolated throughput": table.seconds(part),
            "best without variant": np.array([medians.get(k, np.nan) for k in keys(part)]),
        }
        yield scored_part(metric, part, predicted(part), lambda _, x: x.bound_s, LABELS, ways)


def _medians(parts: Sequence[MeasuredRows]) -> dict[tuple[object, ...], float]:
    """Per problem that several campaigns measured, the median of their times."""
    table: dict[tuple[object, ...], list[float]] = {}
    for part in parts:
        for key, value in zip(keys(part), part.seconds.tolist(), strict=True):
            table.setdefault(key, []).append(value)
    return {key: float(np.median(values)) for key, values in table.items() if len(values) > 1}


SUITES = (Suite("ways", all_tables(), _score, both_tiers=False),)
