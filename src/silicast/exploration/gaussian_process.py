"""Gaussian processes over designs: what the metrics of untried ones may be.

A linear trend, and a Matern 5/2 process with a length per parameter on what it leaves; lengths
and noise by gradient ascent on the marginal likelihood. Source: Rasmussen and Williams,
"Gaussian Processes for Machine Learning", 2006, chapters 2, 4 and 5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from silicast.core.numerics import F64, I64

_ROOT5 = math.sqrt(5.0)
STEPS = 30
RATE = 0.15
FITTED = 100
"""Points that lengths are fitted on."""
JITTER = 1e-8


@final
@dataclass(frozen=True)
class Process:
    """A process given some points.

    Attributes:
        points: (points, parameters).
        trend: coefficients of the linear part, (parameters + 1,).
        scale: of what the trend leaves.
        lengths: (parameters,).
        inverse: of the covariance of the points.
        weights: inverse times what the trend leaves, scaled.
    """

    points: F64
    trend: F64
    scale: float
    lengths: F64
    inverse: F64
    weights: F64

    def predict(self, points: F64) -> tuple[F64, F64]:
        """Mean and standard deviation at other points, each (points,)."""
        near = covariance(points, self.points, self.lengths)
        mean = _with_one(points) @ self.trend + self.scale * (near @ self.weights)
        left = np.maximum(1.0 - ((near @ self.inverse) * near).sum(axis=1), 1e-12)
        return mean, self.scale * np.sqrt(left)


def fitted(points: F64, values: F64, chosen: I64) -> Process:
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
    inverse = np.linalg.inv(
        covariance(points, points, lengths) + (noise + JITTER) * np.eye(len(points))
    )
    return Process(
        points, np.asarray(trend, float), scale, lengths, np.asarray(inverse, float), inverse @ left
    )


def covariance(a: F64, b: F64, lengths: F64) -> F64:
    """Matern 5/2 between two sets of points, (points of a, points of b)."""
    squares = _squares(a / lengths, b / lengths)
    r = _ROOT5 * np.sqrt(squares)
    found: F64 = (1.0 + r + r * r / 3.0) * np.exp(-r)
    return found


def _squares(a: F64, b: F64) -> F64:
    found: F64 = (a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1)[None] - 2.0 * (a @ b.T)
    return np.maximum(found, 0.0)


def _likeliest(points: F64, values: F64) -> tuple[F64, float]:
    """Lengths and noise by Adam on the log marginal likelihood."""
    parameters = points.shape[1]
    logs = np.concatenate([np.full(parameters, math.log(0.7)), [math.log(1e-3)]])
    low = np.concatenate([np.full(parameters, math.log(0.05)), [math.log(1e-6)]])
    high = np.concatenate([np.full(parameters, math.log(20.0)), [math.log(0.5)]])
    first, second = np.zeros_like(logs), np.zeros_like(logs)
    apart = (points.T[:, :, None] - points.T[:, None, :]) ** 2
    eye = np.eye(len(points))
    for step in range(1, STEPS + 1):
        lengths, noise = np.exp(logs[:-1]), math.exp(logs[-1])
        shares = apart / (lengths * lengths)[:, None, None]
        r = _ROOT5 * np.sqrt(shares.sum(axis=0))
        decay = np.exp(-r)
        inverse = np.linalg.inv((1.0 + r + r * r / 3.0) * decay + (noise + JITTER) * eye)
        weights = inverse @ values
        pull = np.outer(weights, weights) - inverse
        slope = np.append(
            0.5 * np.einsum("pij,ij->p", shares, pull * ((5.0 / 3.0) * (1.0 + r) * decay)),
            0.5 * noise * np.trace(pull),
        )
        # A weak pull towards the start keeps lengths of parameters that do not matter finite.
        slope[:-1] -= 0.1 * (logs[:-1] - math.log(0.7))
        first = 0.9 * first + 0.1 * slope
        second = 0.99 * second + 0.01 * slope * slope
        move = first / (1 - 0.9**step) / (np.sqrt(second / (1 - 0.99**step)) + 1e-9)
        logs = np.clip(logs + RATE * move, low, high)
    return np.exp(logs[:-1]), math.exp(logs[-1])


def _with_one(points: F64) -> F64:
    return np.hstack([np.ones((len(points), 1)), points])
