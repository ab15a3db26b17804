"""One constant from measured rows, by least squares of relative errors."""

from __future__ import annotations

from silicast.core.numerics import F64


def least_squares_share(measured: F64, known_s: F64, of: F64) -> float:
    """The share ``a`` for which ``known_s + a of`` has the least squared relative error.

    Args:
        measured: truth; known_s: what the constant does not touch; of: what it multiplies.

    >>> import numpy as np
    >>> round(least_squares_share(*np.array([[3.0, 5.0], [2.0, 3.0], [2.0, 4.0]])), 3)
    0.5
    """
    weight = of / measured
    return float((weight * (measured - known_s) / measured).sum() / (weight * weight).sum())
