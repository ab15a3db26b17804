"""Gaussian processes: covariance, evidence, posterior, and the most probable hyperparameters.

Gaussian processes: a Matern covariance, the evidence for its lengths, and the posterior.

Source of all formulas: Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006,
chapters 2, 4 and 5.

The most probable lengths and spreads of a Gaussian process, by their gradients.

Steps are those of RPROP (Riedmiller and Braun 1993), which needs no line search and repeats to the
bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, final

import numpy as np

from silicast.core.numerics import F64, exp_fixed


@final
@dataclass(frozen=True)
class Matern:
    """The Matern law of a field that is differentiable once (order 3/2) or twice (5/2).

    Attributes:
        twice_order: 3 or 5.
        exp: the exponential function; :func:`.exp_fixed` gives the same bits in any batch.
    """

    twice_order: Literal[3, 5]
    exp: Callable[[F64], F64] = np.exp

    def correlation(self, squares: F64) -> F64:
        """Of points at these squared distances, in lengths.

        >>> Matern(3).correlation(np.array([0.0, 1.0])).round(4)
        array([1.    , 0.4834])
        """
        return self._with_decay(squares)[0]

    def with_slope(self, squares: F64) -> tuple[F64, F64]:
        """The correlation, and its derivative by the squared distance."""
        correlation, root, decay = self._with_decay(squares)
        if self.twice_order == 3:
            return correlation, -1.5 * decay
        return correlation, -(5.0 / 6.0) * (1.0 + root) * decay

    def _with_decay(self, squares: F64) -> tuple[F64, F64, F64]:
        if self.twice_order == 3:
            root = np.sqrt(3.0 * squares)
            decay = self.exp(-root)
            return (1.0 + root) * decay, root, decay
        root = np.sqrt(5.0) * np.sqrt(squares)
        decay = self.exp(-root)
        return (1.0 + root + root * root / 3.0) * decay, root, decay


ONCE = Matern(3, exp_fixed)
"""The law of kernels' throughput between those that were measured."""
TWICE = Matern(5)
"""The law of designs' metrics."""


def squared_distances(a: F64, b: F64) -> F64:
    """Of the columns of two tables of coordinates, (columns of a, columns of b)."""
    distances = (a * a).sum(axis=0).reshape(-1, 1) + (b * b).sum(axis=0) - 2.0 * (a.T @ b)
    positive: F64 = np.maximum(distances, 0.0)
    return positive


@final
@dataclass(frozen=True)
class LogEvidence:
    """How unlikely data are under a process: minus the log of their density, and its slopes.

    Attributes:
        value: without the constant.
        lengths: slopes by the log of each coordinate's length, (coordinates,).
        field: slope by the log of the field's variance; noise: by the noise's variance.
    """

    value: float
    lengths: F64
    field: float
    noise: float


def evidence(
    law: Matern, squares: F64, target: F64, field: float, noise: float, trend: F64 | float = 0.0
) -> LogEvidence:
    """Of values with a field and noise of these variances.

    Args:
        squares: squared distances along each coordinate, in lengths, (coordinates, n, n).
        target: the values, (n,); trend: covariance that is given beside the field, (n, n).
    """
    correlation, along = law.with_slope(squares.sum(axis=0))
    covariance = trend + field * correlation
    covariance[np.diag_indices(len(target))] += noise
    inverse = np.linalg.inv(covariance)
    pulled = inverse @ target
    slope = 0.5 * (inverse - np.outer(pulled, pulled))
    return LogEvidence(
        value=0.5 * float(target @ pulled) + 0.5 * float(np.linalg.slogdet(covariance)[1]),
        lengths=np.einsum("pij,ij->p", squares, slope * (-2.0 * field * along)),
        field=field * float((slope * correlation).sum()),
        noise=float(np.trace(slope)),
    )


@final
@dataclass(frozen=True)
class FieldPosterior:
    """A field of mean zero and variance one, given its values with noise at some points.

    Attributes:
        points: (coordinates, points), in lengths.
        inverse: of their covariance; weights: inverse times the values.
    """

    law: Matern
    points: F64
    inverse: F64
    weights: F64

    @staticmethod
    def fit(law: Matern, points: F64, values: F64, noise: float) -> FieldPosterior:
        """Given values at points, with noise of this variance."""
        correlation = law.correlation(squared_distances(points, points))
        inverse = np.asarray(np.linalg.inv(correlation + noise * np.eye(len(values))), float)
        return FieldPosterior(law, points, inverse, inverse @ values)

    def predict(self, points: F64) -> tuple[F64, F64]:
        """Mean and standard deviation at other points, each (points,)."""
        near = self.law.correlation(squared_distances(points, self.points))
        left = np.maximum(1.0 - ((near @ self.inverse) * near).sum(axis=1), 1e-12)
        return near @ self.weights, np.sqrt(left)


LAW = Matern(3)
STEPS = 40
FIRST_STEP, LARGEST_STEP = 0.2, 1.0
GROWTH, SHRINK = 1.2, 0.5
LEAST_NOISE = 0.005
"""No kernel is timed more closely than that, in logs; with less, repeats leave nothing to solve."""


@final
@dataclass(frozen=True)
class Prior:
    """Normal laws of the logs of all scales: of each coordinate, then of the field and the noise.

    Attributes:
        mean, sd: shape (F + 2,).
    """

    mean: F64
    sd: F64

    @staticmethod
    def from_constants(constants: Mapping[str, float], count: int) -> Prior:
        """For ``count`` coordinates, from the constants of calibrations."""
        c = constants
        return Prior(
            mean=np.log([*[c["scale"]] * count, c["field_log_sd"], c["noise_log_sd"]]),
            sd=np.array([*[c["scale_spread"]] * count, *[c["sd_spread"]] * 2]),
        )


def fitted_scales(where: F64, shared: F64, target: F64, prior: Prior) -> tuple[F64, float, float]:
    """Scales of coordinates, sd of the field and sd of the noise that explain ``target`` best.

    Args:
        where: coordinates, shape (F, n); shared: covariance of the trend, shape (n, n);
            target: shape (n,).
    """
    count = len(where)
    squares = np.square(where[:, :, None] - where[:, None, :])

    def unlikely(p: F64) -> tuple[float, F64]:
        weight, field, free = np.exp(2.0 * p[:count]), np.exp(2.0 * p[-2]), np.exp(2.0 * p[-1])
        shares = squares * weight[:, None, None]
        noise = free + LEAST_NOISE * LEAST_NOISE
        result = evidence(LAW, shares, target, float(field), float(noise), shared)
        away = (p - prior.mean) / prior.sd
        spreads = [2.0 * result.field, 2.0 * free * result.noise]
        gradient = np.concatenate([-result.lengths, spreads]) + away / prior.sd
        return result.value + 0.5 * float((away * away).sum()), gradient

    best = _descended(unlikely, prior.mean)
    noise = float(np.hypot(np.exp(best[-1]), LEAST_NOISE))
    return np.exp(best[:count]), float(np.exp(best[-2])), noise


def _descended(function: Callable[[F64], tuple[float, F64]], start: F64) -> F64:
    """The best point that :data:`STEPS` of RPROP come by."""
    point, step = np.array(start), np.full(len(start), FIRST_STEP)
    last = np.zeros(len(start))
    least, best = np.inf, point
    for _ in range(STEPS):
        value, gradient = function(point)
        if value < least:
            least, best = value, point
        same = np.sign(gradient) * np.sign(last)
        step = np.where(same > 0, np.minimum(step * GROWTH, LARGEST_STEP), step)
        step = np.where(same < 0, step * SHRINK, step)
        last = np.where(same < 0, 0.0, gradient)
        point = point - np.sign(last) * step
    return best
