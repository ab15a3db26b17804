"""The best point of a space, without the points that their bounds rule out."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from silicast.core.errors import SilicastError
from silicast.core.metrics import METRICS, metric_of
from silicast.core.naming import near
from silicast.exploration.belonging import sign_of
from silicast.exploration.racing import prune
from silicast.exploration.scenario_space import ScenarioPoint
from silicast.runner.points import PointCase, PointKeys
from silicast.runner.results import stored_rows
from silicast.runner.store import AnswerStore
from silicast.runner.sweep import Sweep
from silicast.scenario.answerer import answerer_for
from silicast.scenario.decode import decode
from silicast.scenario.set_fields import with_fields

FIELD = "--prune"
_ENDS = re.compile(r"_p(?:05|95)$")
_OF_SIZES = re.compile(r"tokens_\d+_us")
"""Metrics that task tune names by numbers of tokens."""

Answer = Callable[[Iterator[PointCase]], object]
"""Answers cases into the store."""


@final
@dataclass(frozen=True)
class PrunedSpace:
    """A pruned sweep that is over.

    Attributes:
        points: that were answered, the best first; values: of the metric, None where it has none.
        pruned: points that their bounds ruled out; unbounded: answered points without a bound.
    """

    metric: str
    points: tuple[ScenarioPoint, ...]
    values: tuple[float | None, ...]
    pruned: int
    unbounded: int


def pruned(
    sweep: Sweep, store: AnswerStore, metric: str, answer: Answer, together: int = 1
) -> PrunedSpace:
    """Finds the point whose estimate of a metric is best; answers stay in the store.

    Args:
        metric: that is wanted little of, or much of a rate.
        together: points that are answered at a time.

    Raises:
        SilicastError: there is no such metric, before anything is answered; or no point has it.
    """
    _check_name(metric)
    points = [point for part in sweep.space.points() for point in part]
    keys, sign = PointKeys(sweep.folder, sweep.calibrations), sign_of(metric)
    cases = [keys.case(sweep.space.base, point) for point in points]
    limits = [
        point_bound(with_fields(sweep.space.base, point.fields), sweep.folder, metric)
        for point in points
    ]
    bounds = [-math.inf if limit is None else sign * limit for limit in limits]

    def evaluate(chosen: Sequence[int]) -> list[float]:
        answer(iter([cases[each] for each in chosen]))
        rows = {row["key"]: row.get(metric) for row in stored_rows(store).fitting.rows}
        values = [rows.get(cases[each].key) for each in chosen]
        return [math.inf if value is None else sign * float(value) for value in values]

    result = prune(bounds, evaluate, together)
    order = result.order
    if not order or math.isinf(result.values[order[0]]):
        answered = stored_rows(store)
        reasons = [row["error_message"] for row in answered.rows if row["error_message"]]
        names = {name for row in answered.fitting.rows for name in row}
        hint = near(metric, sorted(names)) if names else next(iter(reasons), "")
        raise SilicastError(f"no point that fits has {metric}", field=FIELD, hint=hint)
    values = [result.values[each] for each in order]
    return PrunedSpace(
        metric,
        tuple(points[each] for each in order),
        tuple(None if math.isinf(value) else sign * value for value in values),
        len(result.pruned),
        sum(limits[each] is None for each in order),
    )


def _check_name(metric: str) -> None:
    name = _ENDS.sub("", metric)
    if metric_of(name) is None and not _OF_SIZES.fullmatch(name):
        hint = near(metric, sorted(METRICS))
        raise SilicastError(f"unknown metric {metric!r:.80}", field=FIELD, hint=hint)


def point_bound(tree: Mapping[str, Any], folder: Path, metric: str) -> float | None:
    """The physical bound of a point's metric, where it is known before the point is answered."""
    try:
        scenario = decode(dict(tree), folder=folder)
        return answerer_for(scenario.raw.task).bounds(scenario).get(metric)
    except SilicastError:
        return None  # its answer says why
