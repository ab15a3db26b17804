"""The rate at which a traffic just keeps its objective, from many draws taken together.

Whether one draw keeps an objective says little near the edge: p99 of 3,000 requests moves the rate
that it allows by some per cent. Draws at rates on both sides of the edge all say something of
where it is: each statistic, as the logarithm of its value over its limit, grows about linearly
with the logarithm of the rate near the limit, and the straight line through all draws crosses zero
at the edge. What draws differ from the line by says how much one of them moves the edge, and how
sure the edge is; both make the margin below it at which fresh draws keep the objective.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, final

import numpy as np

from silicast.core.numerics import F64
from silicast.core.prediction import Z90

Excess = Mapping[str, float]
"""Statistic -> logarithm of its value over its limit; below zero it is kept."""

WIDE: Final = (0.85, 0.95, 1.05, 1.15)
"""Rates of the first draws, as parts of a first guess: p99 of the time between tokens hardly grows
with the rate, and draws closer together would not show by how much."""
NARROW: Final = (-1.0, -0.3, 0.35, 1.0)
"""How far further draws are from the edge of those before, in parts of its reach."""
REACHES: Final = (0.015, 0.085)
"""Least and most reach, as parts of a rate."""
ROUNDS: Final = 3
OUTSIDE: Final = 4
"""Rounds more whose edge lies beyond all draws: the first guess, of a short run, was far off."""
SURE: Final = 0.01
"""Error of an edge that needs no further draws."""
CLIP: Final = 0.25
"""Rates where the line is further than this from zero are left out, and logarithms are cut to it:
past saturation a statistic grows without end and says no more than that it is past. Whether a draw
counts is decided by its rate alone: to choose by its value would leave out errors of one sign."""
BOUND: Final = 1.0
"""Logarithms are cut to it where slope and spread are read: those cut to :data:`CLIP` would lie on
two steps, which no draw is off, where a statistic is steep."""
OFF_LINE: Final = 1.5
MOST_NOISE: Final = 0.027
"""Least reach in spreads of single draws, and the most spread that counts for it."""
OUTERMOST: Final = 1.2
"""Reaches that draws may be away which count: an edge moves when further ones are drawn."""
FEW: Final = 1.5
"""Residuals of n draws tell their spread too small where n is small, and draws end when they do:
it is told (1 + FEW / (n - 2)) times as large. With it, 9 of 10 edges of random draws lie within two
of their errors (``tests/unit/serving/capacity/test_edge.py``)."""
FEWEST: Final = 4
"""Draws, those nearest to the edge, that a line rests on at least."""
REFITS: Final = 4
FARTHEST: Final = 1.15
"""The edge is at most so many times the highest rate that was drawn, or the lowest over it; one of
which draws tell no more than this is off by as much."""
RUNS: Final = 3
"""Fresh draws that keep the objective together at the answer, with a probability of 95 %."""
MARGINS: Final = (0.01, 0.03)
"""Least and most margin below an edge. With the most of them three runs keep the objective with
95 % probability, and break it at 5 % more with 85 %, if the edge for them is sure to 1.8 %; where
it is less sure, a wider margin would only exchange one for the other."""


@final
@dataclass(frozen=True)
class ObjectiveEdge:
    """A rate at which an objective is just kept.

    Attributes:
        spread: standard deviation of the edges of single runs, as a part of the rate.
        error: that of this one.
        draws: it rests on.
        reach: how far from it draws tell of it, as a part of the rate.
    """

    rate_per_s: float
    spread: float = 0.0
    error: float = 0.0
    draws: int = 0
    reach: float = REACHES[1]

    @property
    def margin(self) -> float:
        """How far below the edge the answer lies, as a part of it.

        >>> [round(ObjectiveEdge(1.0, spread, 0.01).margin, 4) for spread in (0.0, 0.02, 0.1)]
        [0.0164, 0.0251, 0.03]
        """
        least, most = MARGINS
        return min(max(Z90 * math.hypot(self.spread / math.sqrt(RUNS), self.error), least), most)


def edge_rate(
    near: float,
    excess_at: Callable[[float], Excess],
    share: float = 1.0,
    most_per_s: float = math.inf,
) -> ObjectiveEdge:
    """The rate at which the first of the statistics crosses its limit.

    Args:
        near: a rate near it, requests a second.
        excess_at: what a fresh draw at a rate exceeds its limits by.
        share: of a run's requests that a draw has: longer runs differ less.
        most_per_s: that is carried at all; how far above it an edge is matters no more.
    """
    rates: list[float] = []
    draws: list[Excess] = []
    edge, inside, outside = ObjectiveEdge(near), 1 + ROUNDS, OUTSIDE
    while inside and outside:
        for part in [math.exp(edge.reach * far) for far in NARROW] if draws else WIDE:
            rates.append(edge.rate_per_s * part)
            draws.append(excess_at(rates[-1]))
        edge = crossing(rates, draws)
        beyond = most_per_s < edge.rate_per_s and most_per_s < max(rates)
        if len(draws) > len(WIDE) and (edge.error <= SURE or beyond):
            break
        if min(rates) < edge.rate_per_s < max(rates):
            inside -= 1
        else:
            outside -= 1
    return replace(edge, spread=edge.spread * math.sqrt(share))


def kept_by_fresh(draws: Sequence[Excess]) -> bool:
    """Whether :data:`RUNS` fresh draws of a load keep every limit together with a probability of
    95 %, by the mean and the spread of these.

    >>> kept_by_fresh([{"a": -0.1}, {"a": -0.3}]), kept_by_fresh([{"a": -0.1}, {"a": -0.3}] * 4)
    (False, True)
    >>> kept_by_fresh([{"a": -0.001}] * 2), kept_by_fresh([{"a": -0.3, "b": 0.1}] * 2)
    (True, False)
    """
    count = len(draws)
    student = Z90 * (1.0 + (Z90 * Z90 + 1.0) / (4.0 * max(count - 1, 1)))  # t, its first terms
    off = student * math.sqrt(1.0 / RUNS + 1.0 / count)
    for name in set().union(*draws):
        values = np.array([draw[name] for draw in draws if name in draw])
        spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
        if float(values.mean()) + off * spread > 0.0:
            return False
    return True


def told(rate_per_s: float) -> float:
    """The highest rate, not above this one, that three digits tell: a run at the rate as it is
    printed is then the run that was judged.

    >>> told(20.389), told(20.4), told(0.0), told(1234.5)
    (20.3, 20.4, 0.0, 1230.0)
    """
    near = float(f"{rate_per_s:.2e}")
    if near <= rate_per_s:
        return near
    step = 10.0 ** (math.floor(math.log10(rate_per_s)) - 2)
    return float(f"{near - step:.2e}")


def crossing(rates: Sequence[float], draws: Sequence[Excess]) -> ObjectiveEdge:
    """Where the lowest of the statistics' lines crosses zero.

    A statistic that does not grow with the rate limits nothing, unless it is above its limit
    throughout.

    >>> rates = [1.0, 2.0, 4.0]
    >>> draws = [{"a": math.log(rate / 2.5) / 10, "b": -0.1} for rate in rates]
    >>> round(crossing(rates, draws).rate_per_s, 6)
    2.5
    """
    x = np.log(np.asarray(rates))
    lowest, highest = min(rates) / FARTHEST, max(rates) * FARTHEST
    unsure = FARTHEST - 1.0
    edges = [ObjectiveEdge(highest, 0.0, unsure, len(draws))]
    for name in sorted(set().union(*draws)):
        is_present = np.array([name in draw for draw in draws])
        y = np.array([draw.get(name, 0.0) for draw in draws])[is_present]
        line = _line(x[is_present], np.clip(y, -CLIP, CLIP))
        if line.slope > 0.0:
            edges.append(_refitted(line, x[is_present], y, len(draws), highest))
        elif y.mean() > 0.0:
            edges.append(ObjectiveEdge(lowest, 0.0, unsure, len(draws)))
    first = min(edges, key=lambda edge: edge.rate_per_s)
    return replace(first, rate_per_s=max(first.rate_per_s, lowest))


@final
@dataclass(frozen=True)
class _Line:
    """A straight line by least squares; ``residual``: standard deviation of what is off it."""

    x: float
    y: float
    slope: float
    residual: float
    count: int
    spanned: float

    @property
    def zero(self) -> float:
        """Where it crosses zero."""
        return self.x - self.y / self.slope


def _line(x: F64, y: F64) -> _Line:
    away = x - x.mean()
    spanned = max(float(away @ away), 1e-12)
    slope = float(away @ y) / spanned
    residuals = y - y.mean() - slope * away
    residual = math.sqrt(float(residuals @ residuals) / max(len(y) - 2, 1))
    return _Line(float(x.mean()), float(y.mean()), slope, residual, len(y), spanned)


def _refitted(line: _Line, x: F64, y: F64, draws: int, highest: float) -> ObjectiveEdge:
    """The edge, at most the highest rate, of the draws where the line is near zero.

    Where it is comes from logarithms cut to :data:`CLIP`, how steep it is, how much single runs
    differ and where draws are near from those cut to :data:`BOUND`.
    """
    steep = max(_line(x, np.clip(y, -BOUND, BOUND)), line, key=lambda each: each.slope)
    for _ in range(REFITS):
        away = np.abs(x - line.zero)
        near = away <= OUTERMOST * _reach(steep)
        if near.sum() < FEWEST:
            near = away <= np.sort(away)[min(FEWEST, len(away)) - 1]
        cuts = OUTERMOST * CLIP, BOUND
        again, bounded = (_line(x[near], np.clip(y[near], -most, most)) for most in cuts)
        if again.slope <= 0.0 or bounded.slope <= 0.0:
            break
        line, steep = again, bounded
    spread = max(each.residual / each.slope for each in (line, steep))
    spread *= 1.0 + FEW / max(line.count - 2, 1)
    error = spread * math.sqrt(1.0 / line.count + (line.zero - line.x) ** 2 / line.spanned)
    rate = math.exp(min(line.zero, math.log(highest)))
    return ObjectiveEdge(rate, spread, error, draws, min(_reach(steep), REACHES[1]))


def _reach(line: _Line) -> float:
    """How far from its zero a line is near it; at least as far as single draws are off, since
    draws closer together do not show the slope.
    """
    noise = min(line.residual / line.slope, MOST_NOISE)
    return max(CLIP / line.slope, OFF_LINE * noise, REACHES[0])
