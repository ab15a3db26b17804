"""Values at points that were not measured, from points alike (a Gaussian process)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from silicast.core.numerics import F64

ALIKE, REACH = 0.2, 0.4
"""Log standard deviation that points with the same features share, and the distance of features,
over their spread, at which they share three fifths of it.
"""
ROUNDS, HUBER = 6, 1.3
"""Of weights, and errors over the noise beyond which a point counts less."""


@final
@dataclass(frozen=True)
class Smoothed:
    """A Gaussian process over features: linear, and alike where features are.

    Attributes:
        features: of what was measured, (n, f); middle, scale: of each feature, (f,).
        means: of the values, (boards,); weights: of each measured one, (n, boards).
        inverse: of their covariance, (n, n).
    """

    features: F64
    middle: F64
    scale: F64
    means: F64
    weights: F64
    inverse: F64

    @staticmethod
    def fitted(features: F64, values: F64, noise: F64) -> Smoothed:
        """Fits values, (n, boards), known to a noise, (n,); strays count less (Huber's weights)."""
        middle, scale = features.mean(axis=0), np.maximum(features.std(axis=0), 1e-3)
        placed = (features - middle) / scale
        covariance, means = _covariance(placed, placed), np.median(values, axis=0)
        trust = np.ones(len(placed))
        for _ in range(ROUNDS):
            inverse = np.asarray(np.linalg.inv(covariance + np.diag(noise**2 / trust)), float)
            weights = inverse @ (values - means)
            errors = np.abs((noise**2 / trust)[:, None] * weights).mean(axis=1)
            trust = 1.0 / np.maximum(1.0, errors / (HUBER * noise))
        return Smoothed(placed, middle, scale, means, weights, inverse)

    def placed(self, features: F64) -> F64:
        """Features over their spread among what was measured."""
        placed: F64 = (features - self.middle) / self.scale
        return placed

    def at(self, features: F64) -> tuple[F64, float]:
        """Values, (boards,), at features, (f,), and the standard deviation of their mean."""
        placed = self.placed(features)[None, :]
        across = _covariance(placed, self.features)[0]
        variance = float(_covariance(placed, placed)[0, 0] - across @ self.inverse @ across)
        return self.means + across @ self.weights, math.sqrt(max(variance, 0.0))


def _covariance(points: F64, others: F64) -> F64:
    """Of the logs of latencies, (n, m), by features, (n, f) and (m, f)."""
    apart = np.mean((points[:, None, :] - others[None, :, :]) ** 2, axis=2)
    alike: F64 = ALIKE**2 * np.exp(-apart / (2.0 * REACH**2)) + 1.0 + points @ others.T
    return alike
