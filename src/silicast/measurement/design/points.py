"""Kernels as points of the Gaussian process by which calibrations interpolate.

The process has a trend (:mod:`silicast.learning.interpolation`). Its covariances depend on measured
times only through length scales and spreads, so that the variance after further measurements is
known before they are taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from silicast.core.numerics import F64, I64
from silicast.hardware.device import Device
from silicast.kernels.implementation import Implementation
from silicast.kernels.physics.constants import load_physics
from silicast.learning.features import Kernels, all_names
from silicast.learning.gaussian_process import ONCE, squared_distances
from silicast.learning.hyperparameters import Prior
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
            rows: places of the points; target: logs of measured over predicted time.
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
        places: of the points; rows: places of the measured ones.
    """

    def __init__(self, points: Points, process: ProcessParameters, places: I64, rows: I64) -> None:
        self.points, self.process, self.places = points, process, places
        self.variance = process.variance(points, places)
        self._parts = np.empty((max(64, 2 * len(rows)), len(places)))
        self._count = 0
        if len(rows):
            self._start(rows[-KNOWN:])

    def _start(self, rows: I64) -> None:
        covariance = self.process.covariance(self.points, rows, rows)
        covariance[np.diag_indices(len(rows))] += self.process.noise**2
        shared = self.process.covariance(self.points, rows, self.places)
        parts = np.linalg.inv(np.linalg.cholesky(covariance)) @ shared
        self._count = len(rows)
        self._parts[: self._count] = parts
        self.variance -= np.square(parts).sum(axis=0)

    def covariance(self, index: int) -> F64:
        """Of all points with one of them, by its place among them; shape (points,)."""
        known = self._parts[: self._count]
        one = self.places[index : index + 1]
        before = self.process.covariance(self.points, one, self.places)[0]
        covariance: F64 = before - known[:, index] @ known
        return covariance

    def all(self, others: I64) -> F64:
        """Of all points with those at ``others`` among them, shape (points, others)."""
        known = self._parts[: self._count]
        before = self.process.covariance(self.points, self.places, self.places[others])
        value: F64 = before - known.T @ known[:, others]
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
