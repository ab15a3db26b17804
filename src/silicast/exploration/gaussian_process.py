"""What untried designs may be worth: a Gaussian process, and the expected gain of a front.

Metrics have a linear trend and a Gaussian process about it. The process is of Matern's order 5/2
with a length for each parameter; lengths and noise by gradient ascent (Adam) on the evidence, see
:mod:`silicast.learning.gaussian_process`.

How much more a front is expected to enclose once a design is tried is exact, box by box. Source:
Yang et al., "Efficient computation of expected hypervolume improvement using box decomposition
algorithms", Journal of Global Optimization 75, 2019; objectives are independent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from silicast.core.numerics import F64, I64
from silicast.learning.gaussian_process import TWICE, FieldPosterior, evidence

_ERFC = np.frompyfunc(math.erfc, 1, 1)


def below(mean: F64, deviation: F64, ends: F64) -> F64:
    """Expected ``max(0, end - x)`` of normal x, (designs, ends); 0 at minus infinity.

    >>> round(float(below(np.array([0.0]), np.array([1.0]), np.array([0.0]))[0, 0]), 4)
    0.3989
    """
    finite = np.where(np.isfinite(ends), ends, 0.0)
    z = (finite[None] - mean[:, None]) / deviation[:, None]
    chance = 0.5 * np.asarray(_ERFC(-z / math.sqrt(2.0)), dtype=float)
    density = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    value: F64 = deviation[:, None] * (z * chance + density)
    return np.where(np.isfinite(ends)[None], np.maximum(value, 0.0), 0.0)


def expected_gain(mean: F64, deviation: F64, lows: F64, highs: F64) -> F64:
    """Expected growth of the enclosed volume, (designs,).

    Args:
        mean, deviation: of each design's objectives, (designs, objectives).
        lows, highs: boxes that are not enclosed yet, (boxes, objectives).
    """
    product = np.ones((len(mean), len(lows)))
    for k in range(mean.shape[1]):
        ends, position = np.unique(np.concatenate([lows[:, k], highs[:, k]]), return_inverse=True)
        areas = below(mean[:, k], deviation[:, k], ends)
        product *= areas[:, position[len(lows) :]] - areas[:, position[: len(lows)]]
    total: F64 = product.sum(axis=1)
    return total


STEPS = 30
RATE = 0.15
FITTED = 100
"""Points that lengths are fitted on."""
JITTER = 1e-8


@final
@dataclass(frozen=True)
class ConditionedProcess:
    """A process given some points.

    Attributes:
        trend: coefficients of the linear part, (parameters + 1,).
        scale: of what the trend leaves; field: what is known of that, scaled.
        lengths: (parameters,).
    """

    trend: F64
    scale: float
    lengths: F64
    field: FieldPosterior

    def predict(self, points: F64) -> tuple[F64, F64]:
        """Mean and standard deviation at other points, each (points,)."""
        mean, sd = self.field.predict((points / self.lengths).T)
        return _with_one(points) @ self.trend + self.scale * mean, self.scale * sd


def fitted(points: F64, values: F64, chosen: I64) -> ConditionedProcess:
    """The process of some points.

    Args:
        points: (points, parameters), between 0 and 1; values: (points,).
        chosen: places of the points that lengths and noise are fitted on.

    >>> line = np.linspace(0, 1, 6)[:, None]
    >>> process = fitted(line, 3 * line[:, 0], np.arange(6))
    >>> round(float(process.predict(np.array([[0.5]]))[0][0]), 3)
    1.5
    """
    ones = _with_one(points)
    trend = np.linalg.solve(ones.T @ ones + 1e-6 * np.eye(ones.shape[1]), ones.T @ values)
    left = values - ones @ trend
    scale = float(left.std()) or 1.0
    if scale < 1e-9 * max(1.0, float(np.abs(values).max())):
        scale = max(1e-9, 1e-6 * float(values.std()))
    left = left / scale
    lengths, noise = _likeliest(points[chosen], left[chosen])
    field = FieldPosterior.fit(TWICE, (points / lengths).T, left, noise + JITTER)
    return ConditionedProcess(np.asarray(trend, float), scale, lengths, field)


def _likeliest(points: F64, values: F64) -> tuple[F64, float]:
    """Lengths and noise by Adam on the log of the evidence."""
    parameters = points.shape[1]
    logs = np.concatenate([np.full(parameters, math.log(0.7)), [math.log(1e-3)]])
    low = np.concatenate([np.full(parameters, math.log(0.05)), [math.log(1e-6)]])
    high = np.concatenate([np.full(parameters, math.log(20.0)), [math.log(0.5)]])
    first, second = np.zeros_like(logs), np.zeros_like(logs)
    apart = (points.T[:, :, None] - points.T[:, None, :]) ** 2
    for step in range(1, STEPS + 1):
        lengths, noise = np.exp(logs[:-1]), math.exp(logs[-1])
        shares = apart / (lengths * lengths)[:, None, None]
        least = evidence(TWICE, shares, values, 1.0, noise + JITTER)
        slope = -np.append(least.lengths, noise * least.noise)
        # A weak pull towards the start keeps lengths of parameters that do not matter finite.
        slope[:-1] -= 0.1 * (logs[:-1] - math.log(0.7))
        first = 0.9 * first + 0.1 * slope
        second = 0.99 * second + 0.01 * slope * slope
        move = first / (1 - 0.9**step) / (np.sqrt(second / (1 - 0.99**step)) + 1e-9)
        logs = np.clip(logs + RATE * move, low, high)
    return np.exp(logs[:-1]), math.exp(logs[-1])


def _with_one(points: F64) -> F64:
    return np.hstack([np.ones((len(points), 1)), points])
