"""Which of many points to measure next, in the coordinates that the calibration interpolates in.

What is measured is a Gaussian process with a trend (:mod:`silicast.learning.interpolation`). The
next point is the one that takes most variance off all candidates together, for the time that
measuring it takes: with C the covariance of what is left open and s2 the noise,

    gain(x) = sum over candidates r of weight(r) C(r, x)^2 / (C(x, x) + s2) / cost(x)

This is ALC (Cohn 1996; Seo et al. 2000), the greedy step on the integrated mean squared error.
Covariances never depend on times but through lengths and spreads, so that points are chosen without
fitting anew; those are fitted again whenever there are half as many rows more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from silicast.core.numerics import F64, I64
from silicast.kernels.physics import load_physics
from silicast.learning.hyperparameters import Prior
from silicast.learning.interpolation import PHYSICS, fit, matern

KNOWN = 1500
"""Measured rows that candidates are compared with, at most: the last ones."""


@final
@dataclass(frozen=True)
class Points:
    """Candidates as numbers.

    Attributes:
        where: coordinates, shape (F, n); terms: of the trend, shape (T, n).
        cost: of measuring each, any unit, shape (n,).
        weight: how much each matters, shape (n,).
    """

    where: F64
    terms: F64
    cost: F64
    weight: F64

    def __len__(self) -> int:
        return len(self.cost)

    def with_(self, other: Points) -> Points:
        """These and others behind them."""
        return Points(
            np.concatenate([self.where, other.where], axis=1),
            np.concatenate([self.terms, other.terms], axis=1),
            np.concatenate([self.cost, other.cost]),
            np.concatenate([self.weight, other.weight]),
        )


@final
@dataclass(frozen=True)
class Law:
    """Lengths and spreads of the process.

    Attributes:
        scales: one over the length of each coordinate, shape (F,).
        trend: variance of each of its terms, shape (T,).
        field, noise: log sd of the field, and of what it leaves of one row.
    """

    scales: F64
    trend: F64
    field: float
    noise: float

    @staticmethod
    def prior(points: Points) -> Law:
        """What is known before any row."""
        c = load_physics(PHYSICS).default
        usual = np.exp(Prior.of(c, len(points.where)).mean)
        return Law(usual[:-2], _trend(len(points.terms)), float(usual[-2]), float(usual[-1]))

    @staticmethod
    def fitted(points: Points, rows: I64, target: F64) -> Law:
        """After rows were measured.

        Args:
            rows: places of the points; target: logs of measured over predicted time.
        """
        offset = float(np.median(target))
        found = fit(points.where[:, rows], points.terms[:, rows], target - offset)
        return Law(found.scales, _trend(len(points.terms)), found.field_log_sd, found.noise_log_sd)

    def covariance(self, points: Points, one: I64, other: I64) -> F64:
        """Of points with others before any row, shape (one, other)."""
        scales = self.scales.reshape(-1, 1)
        a, b = points.where[:, one] * scales, points.where[:, other] * scales
        squares = (a * a).sum(axis=0).reshape(-1, 1) + (b * b).sum(axis=0) - 2.0 * (a.T @ b)
        alike = matern(np.maximum(squares, 0.0))
        terms = (points.terms[:, one].T * self.trend) @ points.terms[:, other]
        found: F64 = terms + self.field * self.field * alike
        return found

    def variance(self, points: Points, places: I64) -> F64:
        """Of points before any row."""
        terms = np.square(points.terms[:, places]).T @ self.trend
        found: F64 = terms + self.field * self.field
        return found


def _trend(count: int) -> F64:
    c = load_physics(PHYSICS).default
    spread = np.full(count, c["trend_log_sd"] ** 2)
    spread[0] = c["offset_log_sd"] ** 2
    return spread


@final
class Open:
    """What rows leave open at some points: a posterior covariance, one row after the other.

    Args:
        law: of the process; places: of the points that are asked about.
    """

    def __init__(self, points: Points, law: Law, places: I64, rows: I64) -> None:
        self.points, self.law, self.places = points, law, places
        self.variance = law.variance(points, places)
        self._parts = np.empty((max(64, 2 * len(rows)), len(places)))
        self._count = 0
        self._seen: list[int] = []
        if len(rows):
            self._start(rows[-KNOWN:])

    def _start(self, rows: I64) -> None:
        own = self.law.covariance(self.points, rows, rows)
        own[np.diag_indices(len(rows))] += self.law.noise**2
        shared = self.law.covariance(self.points, rows, self.places)
        parts = np.linalg.inv(np.linalg.cholesky(own)) @ shared
        self._count = len(rows)
        self._parts[: self._count] = parts
        self.variance -= np.square(parts).sum(axis=0)

    def covariance(self, place: int) -> F64:
        """Of all points with that of one of them, by its place among them; shape (points,)."""
        known = self._parts[: self._count]
        before = self.law.covariance(self.points, self.places[place : place + 1], self.places)[0]
        found: F64 = before - known[:, place] @ known
        return found

    def all(self, others: I64) -> F64:
        """Covariance of all points with those at ``others`` among them, shape (points, others)."""
        known = self._parts[: self._count]
        before = self.law.covariance(self.points, self.places, self.places[others])
        found: F64 = before - known.T @ known[:, others]
        return found

    def measured(self, place: int) -> F64:
        """Notes that the point at that place was measured; what it explains of every point."""
        part: F64 = self.covariance(place) / np.sqrt(
            max(float(self.variance[place]), 0.0) + self.law.noise**2
        )
        if self._count == len(self._parts):
            self._parts = np.concatenate([self._parts, np.empty_like(self._parts)])
        self._parts[self._count] = part
        self._count += 1
        self.variance -= part * part
        return part
