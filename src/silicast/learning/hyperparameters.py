"""The most probable lengths and spreads of a Gaussian process, by their gradients.

Steps are those of RPROP (Riedmiller and Braun 1993), which needs no line search and repeats to the
bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import final

import numpy as np

from silicast.core.numerics import F64
from silicast.learning.gaussian_process import Matern, evidence

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
