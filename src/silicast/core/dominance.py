"""Which of many points are best where several numbers count, all made small."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from silicast.core.numerics import F64

BLOCK = 256


def front(values: F64) -> NDArray[np.bool_]:
    """Which points no other point beats: none is as small everywhere; of equal ones, the first.

    Args:
        values: (points, columns).

    >>> front(np.array([[1.0, 3.0], [2.0, 2.0], [2.0, 3.0], [1.0, 3.0]])).tolist()
    [True, True, False, False]
    """
    count, columns = values.shape
    on_front = np.zeros(count, dtype=bool)
    # In this order no point beats one before it.
    order = np.lexsort((np.arange(count), *values.T[::-1]))
    best = np.empty((0, columns))
    for start in range(0, count, BLOCK):
        rows = order[start : start + BLOCK]
        rows = rows[~_beaten(values[rows], best)]
        block = values[rows]
        no_more = (block[:, None] <= block[None]).all(axis=2)
        # Only one that stands before it beats a point; np.triu keeps those.
        rows = rows[~np.triu(no_more, 1).any(axis=0)]
        on_front[rows] = True
        best = np.vstack([best, values[rows]])
    return on_front


def _beaten(points: F64, best: F64) -> NDArray[np.bool_]:
    """Which points one of ``best`` is no larger than in every column, shape (points,)."""
    beaten = np.ones((len(best), len(points)), dtype=bool)
    for k in range(points.shape[1]):
        beaten &= best[:, k, None] <= points[None, :, k]
    return np.asarray(beaten.any(axis=0), dtype=bool)
