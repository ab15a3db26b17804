"""The next point, one after the other: see :mod:`.points` for the rule.

Kernels of one family are not equally hard to predict. Where measured rows lie further from what all
other rows say of them than the process expects, candidates nearby count for more: with z the error
of a row over its sd when it is left out, smoothed over a wider neighbourhood, a candidate weighs
z^2 times as much.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, final

import numpy as np

from silicast.core.numerics import F64, I64
from silicast.measurement.design.points import KNOWN, Law, Open, Points

REFERENCES = 300
"""Candidates that the variance is summed over, at most."""
POOL = 1200
"""Candidates that are weighed against each other, at most; drawn anew with every fit."""
FIRST_FIT = 10
GROWTH = 1.5
"""Lengths are fitted from so many rows on, and again with so many times as many."""
WIDER = 2.0
"""Lengths that errors are smoothed over, in those of the field."""
USUAL_ROWS = 4.0
"""Rows that say that errors are the usual ones everywhere."""

Rule = Literal["variance", "largest", "spread"]
"""What is chosen: most variance off all candidates a unit of cost; the least certain candidate; the
one furthest from all measured ones, by the lengths known before any row."""


@final
@dataclass(frozen=True)
class Choice:
    """A point and what it brings.

    Attributes:
        gain: variance, in squared logs, that it takes off a usual candidate, a unit of cost.
    """

    place: int
    gain: float


@final
class PointDesign:
    """Chooses among points, given what those chosen before have shown.

    Args:
        points: candidates. seed: of what is drawn among them where they are too many.
        rule: see :data:`Rule`; local: whether candidates near large errors count for more.
    """

    def __init__(
        self, points: Points, seed: int = 0, *, rule: Rule = "variance", local: bool = True
    ) -> None:
        self.points = points
        self.law = Law.prior(points)
        self._rule, self._local = rule, local
        self._random = np.random.default_rng(seed)
        self._rows: list[int] = []
        self._target: list[float] = []
        self._gone = np.zeros(len(points), dtype=np.bool_)
        self._fit_at = FIRST_FIT
        self._state: _State | None = None

    @property
    def rows(self) -> tuple[int, ...]:
        """Places of the rows that were told, in order."""
        return tuple(self._rows)

    def best(self) -> Choice | None:
        """The next point; None if none is left. Asking twice gives the same."""
        if self._gone.all():
            return None
        state = self._made()
        if not state.free.any():
            self._state = None  # the pool is used up, the candidates are not
            state = self._made()
        place = int(np.argmax(np.where(state.free, state.gain(self._rule), -1.0)))
        reached = float(state.gain("variance")[place])
        return Choice(int(state.places[place]), reached)

    def tell(self, place: int, log_ratio: float) -> None:
        """A point was measured: log of measured over predicted time."""
        self._rows.append(place)
        self._target.append(log_ratio)
        self._gone[place] = True
        if len(self._rows) >= self._fit_at:
            self._fit_at = math.ceil(GROWTH * len(self._rows))
            target = np.array(self._target)
            self.law = Law.fitted(self.points, np.array(self._rows), target)
            if self._rule == "spread":
                self.law = replace(self.law, scales=Law.prior(self.points).scales)
            self._state = None
        elif self._state is not None and not self._state.measured(place):
            self._state = None

    def gone(self, places: I64) -> None:
        """Points that cannot be measured."""
        self._gone[places] = True
        if self._state is not None:
            self._state.free &= ~self._gone[self._state.places[: len(self._state.free)]]

    def add(self, point: Points) -> int:
        """Takes in a point that was no candidate; its place."""
        self.points = self.points.with_(point)
        self._gone = np.append(self._gone, np.ones(len(point), dtype=np.bool_))
        self._state = None
        return len(self.points) - 1

    def _made(self) -> _State:
        if self._state is None:
            left = np.flatnonzero(~self._gone)
            pool = np.sort(self._random.permutation(left)[:POOL])
            wanted = np.flatnonzero(self.points.weight > 0.0)
            asked = np.sort(self._random.permutation(wanted)[:REFERENCES])
            rows = np.array(self._rows, dtype=np.int64)
            weight = self.points.weight[asked]
            if self._local and self._fit_at > FIRST_FIT and self._rule == "variance":
                weight = weight * _roughness(self.points, self.law, rows, self._target, asked) ** 2
            self._state = _State(self.points, self.law, pool, asked, rows, weight / weight.sum())
        return self._state


@final
class _State:
    """What the rows so far leave open of a pool of candidates, and of those it is asked about."""

    def __init__(
        self, points: Points, law: Law, pool: I64, asked: I64, rows: I64, weight: F64
    ) -> None:
        self.places = np.concatenate([pool, asked])
        self.free = np.ones(len(pool), dtype=np.bool_)
        self._open = Open(points, law, self.places, rows)
        self._weight, self._noise = weight, law.noise
        self._cost = points.cost[pool]
        count = len(pool)
        self._shared = self._open.all(np.arange(count, len(self.places)))[:count]

    def gain(self, rule: Rule) -> F64:
        """Of each of the pool, shape (pool,)."""
        variance = np.maximum(self._open.variance[: len(self.free)], 0.0)
        if rule != "variance":
            return variance
        taken = np.square(self._shared) @ self._weight
        found: F64 = taken / (variance + self._noise**2) / self._cost
        return found

    def measured(self, place: int) -> bool:
        """Notes a row; whether its point is one of the pool."""
        found = np.flatnonzero(self.places[: len(self.free)] == place)
        if not len(found):
            return False
        part = self._open.measured(int(found[0]))
        count = len(self.free)
        self._shared -= np.outer(part[:count], part[count:])
        self.free[found[0]] = False
        return True


def _roughness(points: Points, law: Law, rows: I64, target: Sequence[float], asked: I64) -> F64:
    """How much larger errors are near some points than the process expects, shape (asked,)."""
    rows, logs = rows[-KNOWN:], np.array(target)[-KNOWN:]
    covariance = law.covariance(points, rows, rows)
    covariance[np.diag_indices(len(rows))] += law.noise**2
    inverse = np.linalg.inv(covariance)
    # each row's error when left out, over its sd (Rasmussen and Williams 2006, 5.12)
    errors = np.abs(inverse @ (logs - np.median(logs))) / np.sqrt(np.diag(inverse))
    near = Law(law.scales / WIDER, np.zeros_like(law.trend), 1.0, 0.0)
    alike = near.covariance(points, asked, rows)
    usual = float(errors.mean())
    if usual <= 0.0:  # all rows said the same
        return np.ones(len(asked))
    found: F64 = (USUAL_ROWS * usual + alike @ errors) / (USUAL_ROWS + alike.sum(axis=1))
    return np.asarray(found / found.mean())
