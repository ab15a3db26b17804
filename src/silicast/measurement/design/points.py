"""Choice of the kernels to measure next: as points of a Gaussian process, one after the other.

The process is the one by which calibrations interpolate. It has a trend
(:mod:`silicast.learning.interpolation`). Its covariances depend on measured times only through
length scales and spreads, so that the variance after further measurements is known before they are
taken.

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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, final

import numpy as np

from silicast.core.numerics import F64, I64
from silicast.hardware.device import Device
from silicast.kernels.implementation import Implementation
from silicast.kernels.physics.constants import load_physics
from silicast.learning.features import Kernels, all_names
from silicast.learning.gaussian_process import ONCE, Prior, squared_distances
from silicast.learning.interpolation import PHYSICS, coordinates, fit, placed, trend_names, trend_of
from silicast.learning.tiers import ALL_SHIPPED, Evidence, kernel_times
from silicast.workload.graphs.op import Op, OpBatch

KNOWN = 1500
"""Most recent measured rows that a posterior is conditioned on."""

Cost = Callable[[F64], F64]
"""Predicted seconds of kernels -> approximate seconds of measuring each."""


@final
@dataclass(frozen=True)
class Points:
    """Candidates.

    Attributes:
        where: coordinates, shape (F, n); terms: of the trend, shape (T, n).
        cost: of measuring each, any unit, shape (n,); weight: importance of each, shape (n,).
    """

    where: F64
    terms: F64
    cost: F64
    weight: F64

    def __len__(self) -> int:
        return len(self.cost)

    def with_(self, other: Points) -> Points:
        """These points followed by others."""
        return Points(
            np.concatenate([self.where, other.where], axis=1),
            np.concatenate([self.terms, other.terms], axis=1),
            np.concatenate([self.cost, other.cost]),
            np.concatenate([self.weight, other.weight]),
        )


@final
class KernelPoints:
    """Turns kernels of one family and format into points.

    Args:
        model: of the family; cost: of measuring; ops: define the coordinates by their features.
    """

    def __init__(
        self,
        model: Implementation,
        ops: Sequence[Op],
        device: Device,
        cost: Cost,
        evidence: Evidence = ALL_SHIPPED,
    ) -> None:
        self.model, self.device, self.cost, self.evidence = model, device, cost, evidence
        parts = [(OpBatch.from_ops([ops[i] for i in batch]), device) for batch in _batches(ops)]
        names = all_names(model, parts)
        self._where = coordinates(names, model.ragged)
        self._terms = trend_names(names)

    def points(self, ops: Sequence[Op], weight: F64) -> tuple[Points, F64]:
        """Kernels as points, and their predicted seconds, shape (n,).

        Args:
            weight: importance of each, shape (n,).
        """
        where = np.empty((len(self._where), len(ops)))
        terms = np.empty((len(self._terms), len(ops)))
        seconds = np.empty(len(ops))
        for positions in _batches(ops):
            batch = OpBatch.from_ops([ops[i] for i in positions])
            times = kernel_times(self.model, batch, self.device, self.evidence)
            kernels = Kernels.from_analysis(self.model, times.analysis, batch, self.device)
            where[:, positions] = placed(self._where, kernels)
            terms[:, positions] = trend_of(self._terms, kernels)
            seconds[positions] = times.estimate_s
        return Points(where, terms, self.cost(seconds), weight), seconds


def _batches(ops: Sequence[Op]) -> list[I64]:
    """Places of ops that one call of a model predicts."""
    table: dict[object, list[int]] = {}
    for index, op in enumerate(ops):
        lists = any(isinstance(dim, tuple) for _, dim in op.dims)
        key = (op.variant, tuple(name for name, _ in op.dims), lists)
        table.setdefault(key, []).append(index)
    return [np.array(positions, dtype=np.int64) for positions in table.values()]


@final
@dataclass(frozen=True)
class ProcessParameters:
    """Hyperparameters of the Gaussian process.

    Attributes:
        scales: one over the length scale of each coordinate, shape (F,).
        trend: prior variance of each of its terms, shape (T,).
        field, noise: log standard deviation of the field, and of a row about it.
    """

    scales: F64
    trend: F64
    field: float
    noise: float

    @staticmethod
    def prior(points: Points) -> ProcessParameters:
        usual = np.exp(Prior.from_constants(load_physics(PHYSICS).default, len(points.where)).mean)
        return ProcessParameters(
            usual[:-2], _trend(len(points.terms)), float(usual[-2]), float(usual[-1])
        )

    @staticmethod
    def fitted(points: Points, rows: I64, target: F64) -> ProcessParameters:
        """Fitted to measured rows.

        Args:
            rows: positions of the points; target: logs of measured over predicted time.
        """
        offset = float(np.median(target))
        result = fit(points.where[:, rows], points.terms[:, rows], target - offset)
        trend = _trend(len(points.terms))
        return ProcessParameters(result.scales, trend, result.field_log_sd, result.noise_log_sd)

    def covariance(self, points: Points, one: I64, other: I64) -> F64:
        """Prior covariance of points with others, shape (one, other)."""
        scales = self.scales.reshape(-1, 1)
        a, b = points.where[:, one] * scales, points.where[:, other] * scales
        alike = ONCE.correlation(squared_distances(a, b))
        terms = (points.terms[:, one].T * self.trend) @ points.terms[:, other]
        covariance: F64 = terms + self.field * self.field * alike
        return covariance

    def variance(self, points: Points, indices: I64) -> F64:
        """Prior variance of points."""
        terms = np.square(points.terms[:, indices]).T @ self.trend
        variance: F64 = terms + self.field * self.field
        return variance


def _trend(count: int) -> F64:
    c = load_physics(PHYSICS).default
    spread = np.full(count, c["trend_log_sd"] ** 2)
    spread[0] = c["offset_log_sd"] ** 2
    return spread


@final
class PointCovariance:
    """Covariance of some points given measured rows, updated one row at a time.

    Args:
        positions: of the points; rows: positions of the measured ones.
    """

    def __init__(
        self, points: Points, process: ProcessParameters, positions: I64, rows: I64
    ) -> None:
        self.points, self.process, self.positions = points, process, positions
        self.variance = process.variance(points, positions)
        self._parts = np.empty((max(64, 2 * len(rows)), len(positions)))
        self._count = 0
        if len(rows):
            self._start(rows[-KNOWN:])

    def _start(self, rows: I64) -> None:
        covariance = self.process.covariance(self.points, rows, rows)
        covariance[np.diag_indices(len(rows))] += self.process.noise**2
        shared = self.process.covariance(self.points, rows, self.positions)
        parts = np.linalg.inv(np.linalg.cholesky(covariance)) @ shared
        self._count = len(rows)
        self._parts[: self._count] = parts
        self.variance -= np.square(parts).sum(axis=0)

    def covariance(self, index: int) -> F64:
        """Of all points with one of them, by its place among them; shape (points,)."""
        parts = self._parts[: self._count]
        position = self.positions[index : index + 1]
        before = self.process.covariance(self.points, position, self.positions)[0]
        covariance: F64 = before - parts[:, index] @ parts
        return covariance

    def all(self, others: I64) -> F64:
        """Of all points with those at ``others`` among them, shape (points, others)."""
        parts = self._parts[: self._count]
        before = self.process.covariance(self.points, self.positions, self.positions[others])
        value: F64 = before - parts.T @ parts[:, others]
        return value

    def measured(self, index: int) -> F64:
        """Conditions on the point at ``index``; returns what it explains of every point."""
        part: F64 = self.covariance(index) / np.sqrt(
            max(float(self.variance[index]), 0.0) + self.process.noise**2
        )
        if self._count == len(self._parts):
            self._parts = np.concatenate([self._parts, np.empty_like(self._parts)])
        self._parts[self._count] = part
        self._count += 1
        self.variance -= part * part
        return part


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
        return PointChoice(int(state.positions[index]), float(state.gain("variance")[index]))

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
            self._state.free &= ~self._gone[self._state.positions[: len(self._state.free)]]

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
        further: I64,
        rows: I64,
        weight: F64,
    ) -> None:
        self.positions = np.concatenate([pool, further])
        self.free = np.ones(len(pool), dtype=np.bool_)
        self._posterior = PointCovariance(points, process, self.positions, rows)
        self._weight, self._noise = weight, process.noise
        self._cost = points.cost[pool]
        count = len(pool)
        self._shared = self._posterior.all(np.arange(count, len(self.positions)))[:count]

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
        result = np.flatnonzero(self.positions[: len(self.free)] == index)
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
