"""The most that is carried: whole numbers exactly, loads to a tolerance.

What carries a load is asked of a function, by simulation or in closed form; what a number carries,
every smaller one is taken to carry too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

TOLERANCE = 0.02
"""Between the largest load that is carried and the smallest that is not."""


def largest(
    left: Callable[[int], float], most: int, *, guess: int | None = None, known: int = 0
) -> int:
    """The largest whole number up to ``most`` that fits; ``known`` where no larger one does.

    Args:
        left: what a number leaves free, below zero = what is missing: it is tried where a straight
            line between what is known crosses zero. Or only whether the number fits.
        guess: near which it is looked for; left out, the distance from ``known`` is halved.
        known: a number that fits; 0 = none is known.

    >>> [largest(lambda n: n <= 37, 99, guess=guess) for guess in (None, 1, 36, 37, 38, 500)]
    [37, 37, 37, 37, 37, 37]
    >>> [largest(lambda n: 1000 - n * n, most, guess=1) for most in (9, 1 << 20)]
    [9, 31]
    >>> largest(lambda n: False, 9), largest(lambda n: True, 9)
    (0, 9)
    >>> largest(lambda n: n < 50, 99, known=7), largest(lambda n: n < 50, 99, known=7, guess=14)
    (49, 49)
    """
    low, high = known, most + 1
    free: float | None = None
    missing: float | None = None
    step, tries = max(2 * known, 1), 0
    at = (low + high) // 2 if guess is None else guess
    while high - low > 1:
        at = min(max(at, low + 1), high - 1)
        value, further, tries = _margin(left(at)), 0, tries + 1
        if value >= 0:
            if free is not None and free > value:  # a little further than it seems
                further = int(value * (at - low) * 9 // ((free - value) * 8))
            low, free = at, value
        else:
            high, missing = at, value
        if free is not None and missing is not None and tries % 4:
            at = low + int((high - low) * free // (free - missing))
        elif guess is None or (low and high <= most):
            at = (low + high) // 2
        else:
            at = low + max(step, further) if low else high - step
        step *= 2
    return low


def _margin(left: float) -> float:
    """Yes and no are as far from what just fits."""
    if left.__class__ is bool:
        return 1 if left else -1
    return left


@final
@dataclass(frozen=True, slots=True)
class Bracket:
    """A load that is carried (0 = none is known) and one that is not (infinite = none is)."""

    carried: float
    broken: float


def bracketed(
    carries: Callable[[float], bool],
    start: float,
    *,
    least: float,
    most: float,
    whole: bool = False,
    factor: float = 2.0,
    tolerance: float = TOLERANCE,
) -> Bracket:
    """The largest load that is carried, and the smallest that is not, to a tolerance.

    Args:
        carries: of a load; taken as monotone.
        start: first to be tried; ``factor``: between those tried until one is carried and one not.
        least, most: loads between which it looks.
        whole: loads are whole numbers.

    >>> bracketed(lambda load: load <= 77, 1.0, least=1.0, most=1000.0, whole=True)
    Bracket(carried=77.0, broken=78.0)
    >>> bracketed(lambda load: False, 8.0, least=1.0, most=1000.0)
    Bracket(carried=0.0, broken=1.0)
    >>> bracketed(lambda load: True, 8.0, least=1.0, most=100.0)
    Bracket(carried=100.0, broken=inf)
    """

    def rounded(load: float) -> float:
        return float(round(load)) if whole else load

    load, carried, broken = min(max(rounded(start), least), most), 0.0, math.inf
    while not (carried and math.isfinite(broken)):
        if carries(load):
            carried = load
            if load >= most:
                break
            after = min(rounded(load * factor), most)
            load = max(after, load + 1.0) if whole else after
        else:
            broken = load
            if load <= least:
                break
            before = max(rounded(load / factor), least)
            load = min(before, load - 1.0) if whole else before
        if whole:
            load = min(max(load, least), most)
    while carried and math.isfinite(broken) and broken > carried * (1.0 + tolerance):
        middle = rounded(math.sqrt(carried * broken))
        if whole and broken - carried < 1.5:
            break
        if middle in (carried, broken):
            middle = rounded((carried + broken) / 2.0)
            if middle in (carried, broken):
                break
        carried, broken = (middle, broken) if carries(middle) else (carried, middle)
    return Bracket(carried, broken)
