"""The best of stored rows under limits, where metrics are beliefs, and why the others lost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from silicast.core.errors import SilicastError
from silicast.core.prediction import Z90
from silicast.exploration.belonging import UncertainPoint, expected_worth, meeting, sign_of
from silicast.runner.results import Condition, StoredRows
from silicast.runner.stored_front import belief_of, having_metrics

MOST = 256
"""Rows whose chances are drawn: those that are worth most by a closed form."""
NONE_KEEPS = "misses the limits, as all rows do"


@final
@dataclass(frozen=True)
class RowChance:
    """What may become of a row.

    Attributes:
        confidence: the probability that it keeps all limits.
        worth: of the best row's, 1 for the best: the metric (its inverse where less is better)
            times the chance that it counts, in the mean.
        why_not: why it is not the best; "" = it is.
    """

    confidence: float
    worth: float
    why_not: str


def best_of(
    rows: StoredRows, metric: str, limits: Sequence[Condition]
) -> tuple[StoredRows, dict[str, RowChance]]:
    """Rows in the order of what they are worth, and the chances of each by its key.

    Where no row keeps the limits in any draw, none is the best, and each says so.

    A row is worth its metric where it keeps the limits and nothing where it misses one; the best
    has the largest mean of that over what is believed. Errors of one row move its metrics together.

    Args:
        metric: what is wanted: little of times, costs and counts, much of rates.
        limits: METRIC<=VALUE, or >= of a rate; none = the estimates alone decide.

    Raises:
        SilicastError: a name is no metric, a limit has another comparison, or no row has all.
    """
    bounds = _bounds(limits)
    having = having_metrics(rows, [metric, *bounds], "--best")
    value = np.array([row[metric] ** -sign_of(metric) for row in having])
    closed = value * [_chance(row, bounds) for row in having]
    near = sorted(np.argsort(-closed, kind="stable")[:MOST].tolist())
    chosen = [having[index] for index in near]
    points = [
        UncertainPoint({name: belief_of(row, name) for name in (metric, *bounds)}) for row in chosen
    ]
    meets = meeting(points, bounds)
    confidence, worth = meets.mean(axis=0), expected_worth(points, metric, meets)
    order = np.argsort(-worth, kind="stable").tolist()
    first = order[0]
    most = float(worth[first]) or 1.0
    chances = {
        chosen[i]["key"]: RowChance(
            float(confidence[i]),
            float(worth[i]) / most,
            NONE_KEEPS
            if not worth[first]
            else ""
            if i == first
            else _why_not(float(value[near[i]] / value[near[first]]), float(confidence[i])),
        )
        for i in order
    }
    return StoredRows([chosen[i] for i in order], rows.fields, rows.metrics, rows.others), chances


def _bounds(limits: Sequence[Condition]) -> dict[str, float]:
    bounds: dict[str, float] = {}
    for each in limits:
        wanted = "<=" if sign_of(each.column) > 0 else ">="
        if each.comparison != wanted or isinstance(each.value, bool | str) or not each.value > 0:
            raise SilicastError(
                f"expected {each.column}{wanted}NUMBER above zero, found "
                f"{each.column}{each.comparison}{each.value}",
                field="--keep",
            )
        bounds[each.column] = float(each.value)
    return bounds


def _chance(row: Mapping[str, Any], bounds: Mapping[str, float]) -> float:
    """The probability that a row keeps its limits, as if its metrics were independent."""
    chance = 1.0
    for name, bound in bounds.items():
        belief, sign = belief_of(row, name), sign_of(name)
        room = sign * math.log(bound / belief.estimate)
        worse = belief.p95 if sign > 0 else belief.p05
        better = belief.p05 if sign > 0 else belief.p95
        edge = worse if room > 0.0 else better
        sd = abs(math.log(edge / belief.estimate)) / Z90
        chance *= 0.5 * math.erfc(-room / max(sd, 1e-12) / math.sqrt(2.0))
    return chance


def _why_not(ratio: float, confidence: float) -> str:
    """Against the best row: ``ratio`` is that of the estimates, above 1 = this one is better."""
    if ratio < 1.0:
        return f"{1.0 - ratio:.0%} worse"
    better = f"{ratio - 1.0:.0%} better" if ratio > 1.0 else "as good"
    return f"{better}, but it keeps the limits with {confidence:.0%} only"
