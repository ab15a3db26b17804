"""How much more a front is expected to enclose once a design is tried: exact, box by box.

Source: Yang et al., "Efficient computation of expected hypervolume improvement using box
decomposition algorithms", Journal of Global Optimization 75, 2019; objectives are independent.
"""

from __future__ import annotations

import math

import numpy as np

from silicast.core.numerics import F64

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
