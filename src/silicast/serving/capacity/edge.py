"""The rate at which a traffic just keeps its objective, from many draws taken together.

Whether one draw keeps an objective says little near the edge: p99 of 3,000 requests moves the rate
that it allows by some per cent. Draws at rates on both sides of the edge all say something of
where it is: each statistic, as the logarithm of its value over its limit, grows about linearly
with the logarithm of the rate near the limit, and the straight line through all draws crosses zero
at the edge. Its error falls with the square root of the number of draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

Excess = Mapping[str, float]
"""Statistic -> logarithm of its value over its limit; below zero it is kept."""

WIDE: Final = (0.85, 0.95, 1.05, 1.15)
"""Rates of the first draws, as parts of a first guess: p99 of the time between tokens hardly grows
with the rate, and draws closer together would not show by how much."""
NARROW: Final = (0.9, 0.94, 0.98, 1.02, 1.06, 1.1)
"""Rates of the further draws, as parts of the edge of the first ones."""
CLIP: Final = 0.25
"""Logarithms beyond this are left out, or cut to it where few are within: past saturation a
statistic grows without end and says no more than that it is past."""
FEWEST: Final = 4
"""Draws within :data:`CLIP` that suffice for a line."""
FARTHEST: Final = 1.15
"""The edge is at most so many times the highest rate that was drawn, or the lowest over it."""


def edge_rate(near: float, excess_at: Callable[[float], Excess]) -> float:
    """The rate at which the first of the statistics crosses its limit.

    Args:
        near: a rate near it, requests a second.
        excess_at: what a fresh draw at a rate exceeds its limits by.
    """
    rates: list[float] = []
    draws: list[Excess] = []
    for parts in (WIDE, NARROW):
        for part in parts:
            rates.append(near * part)
            draws.append(excess_at(rates[-1]))
        near = crossing(rates, draws)
    return near


def crossing(rates: Sequence[float], draws: Sequence[Excess]) -> float:
    """Where the lowest of the statistics' lines crosses zero.

    A statistic that does not grow with the rate limits nothing, unless it is above its limit
    throughout.

    >>> rates = [1.0, 2.0, 4.0]
    >>> draws = [{"a": math.log(rate / 2.5) / 10, "b": -0.1} for rate in rates]
    >>> round(crossing(rates, draws), 6)
    2.5
    """
    x = np.log(np.asarray(rates))
    lowest, highest = math.log(min(rates) / FARTHEST), math.log(max(rates) * FARTHEST)
    edges = [highest]
    for name in sorted(set().union(*draws)):
        known = np.array([name in draw for draw in draws])
        y, at = np.array([draw.get(name, 0.0) for draw in draws])[known], x[known]
        if (near := np.abs(y) < CLIP).sum() >= FEWEST:
            y, at = y[near], at[near]
        y = np.clip(y, -CLIP, CLIP)
        spread = at - at.mean()
        slope = float(spread @ y) / max(float(spread @ spread), 1e-12)
        if slope > 0.0:
            edges.append(float(at.mean() - y.mean() / slope))
        elif y.mean() > 0.0:
            edges.append(lowest)
    return math.exp(max(min(edges), lowest))
