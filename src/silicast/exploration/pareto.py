"""Which of many results are best where several things count: fronts and what they enclose.

Everything here is made small; what is to be large is negated by the caller.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from silicast.core.dominance import front
from silicast.core.numerics import F64, I64


def ranks(values: F64, enough: int | None = None) -> I64:
    """Front that each point is on: 0 = the best, 1 = the best without those, and so on.

    Args:
        values: (points, objectives).
        enough: points that need one; those on later fronts share the next number.

    >>> ranks(np.array([[1.0, 1.0], [2.0, 2.0], [3.0, 0.5]])).tolist()
    [0, 1, 0]
    """
    ranks = np.full(len(values), -1, dtype=np.int64)
    most = len(values) if enough is None else min(enough, len(values))
    number = 0
    while (left := np.flatnonzero(ranks < 0)).size and len(values) - left.size < most:
        ranks[left[~dominated(values[left])]] = number
        number += 1
    ranks[ranks < 0] = number
    return ranks


def dominated(values: F64) -> NDArray[np.bool_]:
    """Which points another one beats; equal points do not beat each other.

    >>> dominated(np.array([[1.0], [1.0], [2.0]])).tolist()
    [False, False, True]
    """
    distinct, which = np.unique(values, axis=0, return_inverse=True)
    return np.asarray(~front(distinct)[which.reshape(-1)])


def crowding(values: F64) -> F64:
    """How far the neighbours of each point of a front are: infinite at its ends.

    Source: Deb et al., "A fast and elitist multiobjective genetic algorithm: NSGA-II", 2002.

    >>> crowding(np.array([[0.0, 2.0], [1.0, 1.0], [2.0, 0.0]])).tolist()
    [inf, 2.0, inf]
    """
    count, objectives = values.shape
    crowding = np.zeros(count)
    for k in range(objectives):
        order = np.argsort(values[:, k], kind="stable")
        ordered = values[order, k]
        span = ordered[-1] - ordered[0]
        crowding[order[0]] = crowding[order[-1]] = np.inf
        if count > 2 and span > 0:
            crowding[order[1:-1]] += (ordered[2:] - ordered[:-2]) / span
    return crowding


def hypervolume(values: F64, reference: F64) -> float:
    """What a set of points encloses below ``reference``; points that are not below add nothing.

    Args:
        values: (points, objectives); reference: (objectives,).

    >>> hypervolume(np.array([[1.0, 2.0], [2.0, 1.0]]), np.array([3.0, 3.0]))
    3.0
    """
    inside = values[(values < reference).all(axis=1)]
    if not len(inside):
        return 0.0
    return _enclosed(inside[front(inside)], reference)


def _enclosed(points: F64, reference: F64) -> float:
    if points.shape[1] == 1:
        return float(reference[0] - points[:, 0].min())
    order = np.argsort(points[:, -1], kind="stable")
    points = points[order]
    heights = np.append(points[1:, -1], reference[-1]) - points[:, -1]
    if points.shape[1] == 2:
        best = np.minimum.accumulate(points[:, 0])
        return float(((reference[0] - best) * heights).sum())
    total = 0.0
    for number, height in enumerate(heights):
        if height > 0:
            below = points[: number + 1, :-1]
            total += float(height) * _enclosed(below[front(below)], reference[:-1])
    return total


def empty_boxes(values: F64, reference: F64) -> tuple[F64, F64]:
    """The part below ``reference`` that no point encloses, cut into boxes.

    Args:
        values: (points, objectives).

    Returns:
        lower corners, with minus infinity, and upper corners, each (boxes, objectives).

    >>> low, high = empty_boxes(np.array([[1.0, 1.0]]), np.array([3.0, 3.0]))
    >>> low.tolist(), high.tolist()
    ([[-inf, -inf], [-inf, 1.0]], [[3.0, 1.0], [1.0, 3.0]])
    """
    inside = values[(values < reference).all(axis=1)]
    return _empty(inside[front(inside)], reference)


def _empty(points: F64, reference: F64) -> tuple[F64, F64]:
    if points.shape[1] == 1:
        top = min(float(reference[0]), float(points.min(initial=np.inf)))
        return np.array([[-np.inf]]), np.array([[top]])
    points = points[np.argsort(points[:, -1], kind="stable")]
    cuts = np.concatenate([[-np.inf], points[:, -1], [reference[-1]]])
    lows, highs = [], []
    for number in range(len(cuts) - 1):
        if cuts[number + 1] <= cuts[number]:
            continue
        below = points[:number, :-1]
        low, high = _empty(below[front(below)], reference[:-1])
        ends = np.full((len(low), 2), (cuts[number], cuts[number + 1]))
        lows.append(np.hstack([low, ends[:, :1]]))
        highs.append(np.hstack([high, ends[:, 1:]]))
    return np.vstack(lows), np.vstack(highs)
