"""Sequential choice of points to measure.

The next point removes most variance from all candidates together per unit of cost: with C the
posterior covariance and s2 the noise,

    gain(x) = sum over candidates r of weight(r) C(r, x)^2 / (C(x, x) + s2) / cost(x)

This is ALC (Cohn 1996; Seo et al. 2000), the greedy step on the integrated mean squared error.
Hyperparameters are fitted again whenever there are half as many rows more.

Kernels of a family are not equally predictable. Where measured rows lie further from what the other
rows predict than the process expects, candidates nearby count for more: with z the error of a row
that is left out over its standard deviation, smoothed over a wider neighbourhood, a candidate
weighs z^2 times as much.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, final

import numpy as np

from silicast.core.numerics import F64, I64
from silicast.measurement.design.points import KNOWN, PointCovariance, Points, ProcessParameters

REFERENCES = 300
"""Most candidates that the variance is summed over."""
POOL = 1200
"""Most candidates that are compared; drawn anew with every fit."""
FIRST_FIT = 10
GROWTH = 1.5
"""Hyperparameters are fitted from this many rows on, and again with this many times as many."""
WIDER = 2.0
"""Length scale over which errors are smoothed, in length scales of the field."""
USUAL_ROWS = 4.0
"""Weight, in rows, of the prior that errors are the same everywhere."""

Rule = Literal["variance", "largest", "spread"]
"""Choice of the next point: most variance removed per unit of cost; largest variance; farthest from
all measured points by the prior's length scales."""


@final
@dataclass(frozen=True)
class PointChoice:
    """A point and its benefit.

    Attributes:
        gain: variance, in squared logs, removed from a typical candidate per unit of cost.
    """

    place: int
    gain: float


@final
class PointDesign:
    """Chooses points, given the results of those chosen before.

    Args:
        points: candidates; seed: of the random subsets where they are too many.
        rule: see :data:`Rule`; local: whether candidates near large errors weigh more.
    """

    def __init__(
        self, points: Points, seed: int = 0, *, rule: Rule = "variance", local: bool = True
    ) -> None:
        self.points = points
        self.process = ProcessParameters.prior(points)
        self._rule, self._local = rule, local
        self._random = np.random.default_rng(seed)
        self._rows: list[int] = []
        self._target: list[float] = []
        self._gone = np.zeros(len(points), dtype=np.bool_)
        self._fit_at = FIRST_FIT
        self._state: _State | None = None

    @property
    def rows(self) -> tuple[int, ...]:
        """Places of the measured points, in order."""
        return tuple(self._rows)

    def best(self) -> PointChoice | None:
        """The next point, the same if asked again; None if none is left."""
        if self._gone.all():
            return None
        state = self._current()
        if not state.free.any():
            self._state = None  # the pool is used up, the candidates are not
            state = self._current()
        index = int(np.argmax(np.where(state.free, state.gain(self._rule), -1.0)))
        return PointChoice(int(state.places[index]), float(state.gain("variance")[index]))

    def tell(self, index: int, log_ratio: float) -> None:
        """Adds a measured point: log of measured over predicted time."""
        self._rows.append(index)
        self._target.append(log_ratio)
        self._gone[index] = True
        if len(self._rows) >= self._fit_at:
            self._fit_at = math.ceil(GROWTH * len(self._rows))
            rows, target = np.array(self._rows), np.array(self._target)
            self.process = ProcessParameters.fitted(self.points, rows, target)
            if self._rule == "spread":
                self.process = replace(
                    self.process, scales=ProcessParameters.prior(self.points).scales
                )
            self._state = None
        elif self._state is not None and not self._state.measured(index):
            self._state = None

    def gone(self, indices: I64) -> None:
        """Removes points that cannot be measured."""
        self._gone[indices] = True
        if self._state is not None:
            self._state.free &= ~self._gone[self._state.places[: len(self._state.free)]]

    def add(self, point: Points) -> int:
        """Adds a point that was no candidate; returns its place."""
        self.points = self.points.with_(point)
        self._gone = np.append(self._gone, np.ones(len(point), dtype=np.bool_))
        self._state = None
        return len(self.points) - 1

    def _current(self) -> _State:
        if self._state is None:
            pool = np.sort(self._random.permutation(np.flatnonzero(~self._gone))[:POOL])
            wanted = np.flatnonzero(self.points.weight > 0.0)
            requested = np.sort(self._random.permutation(wanted)[:REFERENCES])
            rows = np.array(self._rows, dtype=np.int64)
            weight = self.points.weight[requested]
            if self._local and self._fit_at > FIRST_FIT and self._rule == "variance":
                rough = _roughness(self.points, self.process, rows, self._target, requested)
                weight = weight * rough**2
            weight = weight / weight.sum()
            self._state = _State(self.points, self.process, pool, requested, rows, weight)
        return self._state


@final
class _State:
    """Posterior of a pool of candidates and of the points whose variance is summed."""

    def __init__(
        self,
        points: Points,
        process: ProcessParameters,
        pool: I64,
        asked: I64,
        rows: I64,
        weight: F64,
    ) -> None:
        self.places = np.concatenate([pool, asked])
        self.free = np.ones(len(pool), dtype=np.bool_)
        self._posterior = PointCovariance(points, process, self.places, rows)
        self._weight, self._noise = weight, process.noise
        self._cost = points.cost[pool]
        count = len(pool)
        self._shared = self._posterior.all(np.arange(count, len(self.places)))[:count]

    def gain(self, rule: Rule) -> F64:
        """Of each point of the pool, shape (pool,)."""
        variance = np.maximum(self._posterior.variance[: len(self.free)], 0.0)
        if rule != "variance":
            return variance
        removed = np.square(self._shared) @ self._weight
        gain: F64 = removed / (variance + self._noise**2) / self._cost
        return gain

    def measured(self, index: int) -> bool:
        """Conditions on a row; whether its point is in the pool."""
        result = np.flatnonzero(self.places[: len(self.free)] == index)
        if not len(result):
            return False
        part = self._posterior.measured(int(result[0]))
        count = len(self.free)
        self._shared -= np.outer(part[:count], part[count:])
        self.free[result[0]] = False
        return True


def _roughness(
    points: Points, process: ProcessParameters, rows: I64, target: Sequence[float], requested: I64
) -> F64:
    """Size of errors near some points over what the process expects, shape (asked,)."""
    rows, logs = rows[-KNOWN:], np.array(target)[-KNOWN:]
    covariance = process.covariance(points, rows, rows)
    covariance[np.diag_indices(len(rows))] += process.noise**2
    inverse = np.linalg.inv(covariance)
    # each row's error when left out, over its sd (Rasmussen and Williams 2006, 5.12)
    errors = np.abs(inverse @ (logs - np.median(logs))) / np.sqrt(np.diag(inverse))
    near = ProcessParameters(process.scales / WIDER, np.zeros_like(process.trend), 1.0, 0.0)
    alike = near.covariance(points, requested, rows)
    usual = float(errors.mean())
    if usual <= 0.0:  # all rows agree exactly
        return np.ones(len(requested))
    value: F64 = (USUAL_ROWS * usual + alike @ errors) / (USUAL_ROWS + alike.sum(axis=1))
    return np.asarray(value / value.mean())
