"""A race over the points of a space: simulated with a few seeds, the better half with more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from silicast.core.errors import SilicastError, over_limit
from silicast.core.naming import near
from silicast.core.numerics import F64
from silicast.exploration.belonging import sign_of
from silicast.exploration.racing import RaceResult, race
from silicast.exploration.scenario_space import ScenarioPoint
from silicast.runner.points import PointCase, PointKeys
from silicast.runner.results import stored_rows
from silicast.runner.store import AnswerStore
from silicast.runner.sweep import Sweep

MOST = 4096
SEED = "seed"
FIELD = "--race"

Answer = Callable[[Iterator[PointCase]], object]
"""Answers cases into the store."""


@final
@dataclass(frozen=True)
class SpaceRace:
    """A race that is over.

    Attributes:
        points: in the order of the race, the winner first; values: the mean of the metric over the
            seeds that each had, None where it has none.
    """

    result: RaceResult
    metric: str
    points: tuple[ScenarioPoint, ...]
    values: tuple[float | None, ...]


def raced(sweep: Sweep, store: AnswerStore, metric: str, answer: Answer) -> SpaceRace:
    """Finds the point whose metric is best in the mean over seeds; answers stay in the store.

    Args:
        metric: that is wanted little of, or much of a rate.

    Raises:
        SilicastError: the space has an axis of seeds, more than :data:`MOST` points, or no point
            that has the metric.
    """
    if SEED in sweep.space.fields or SEED in sweep.space.base:
        raise SilicastError("is what a race varies", field=SEED, hint="leave it out of the space")
    points = [point for part in sweep.space.points() for point in part]
    if len(points) > MOST:
        raise over_limit(f"{len(points):,} points race", FIELD, f"{MOST:,} at most")
    keys = PointKeys(sweep.folder, sweep.calibrations)
    sign = sign_of(metric)
    reasons, metrics = list[str](), set[str]()
    seen: dict[int, list[float]] = {index: [] for index in range(len(points))}

    def simulate(candidates: Sequence[int], seeds: Sequence[int]) -> F64:
        cases = [
            [keys.case(sweep.space.base, _seeded(points[index], seed)) for seed in seeds]
            for index in candidates
        ]
        answer(case for each in cases for case in each)
        answered = stored_rows(store)
        rows = {row["key"]: row for row in answered.fitting.rows}
        metrics.update(name for row in answered.fitting.rows for name in row)
        reasons.extend(row["error_message"] for row in answered.rows if row["error_message"])
        table = np.full((len(candidates), len(seeds)), np.inf)
        for at, index in enumerate(candidates):
            values = [_value(rows.get(case.key), metric) for case in cases[at]]
            seen[index] += [value for value in values if value is not None]
            table[at] = [np.inf if value is None else sign * value for value in values]
        return table

    result = race(len(points), simulate)
    means = tuple(float(np.mean(seen[index])) if seen[index] else None for index in result.order)
    if means[0] is None:
        hint = near(metric, sorted(metrics)) if metrics else next(iter(reasons), "")
        raise SilicastError(f"no point that fits has {metric}", field=FIELD, hint=hint)
    return SpaceRace(result, metric, tuple(points[index] for index in result.order), means)


def _seeded(point: ScenarioPoint, seed: int) -> ScenarioPoint:
    return ScenarioPoint(point.code, {**point.fields, SEED: seed})


def _value(row: Any, metric: str) -> float | None:
    value = None if row is None else row.get(metric)
    return None if value is None else float(value)
