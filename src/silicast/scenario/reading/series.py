"""Values as a user writes them: ``1,2,4..256``."""

from __future__ import annotations

import math
from collections.abc import Callable


def series(
    words: str, number: Callable[[str], float], most: int, wrong: Callable[[str], Exception]
) -> list[float]:
    """Values with commas between; two points go on from the two values before, by their ratio if
    the next is the same ratio away, else by their difference, and by 1 after a single one.

    Args:
        number: reads one value.
        most: values at which a run of points ends in any case, one more than the caller takes.
        wrong: makes the error of a run that does not grow.

    >>> series("1,2,4..20", float, 64, ValueError)
    [1.0, 2.0, 4.0, 8.0, 16.0, 20.0]
    """
    values: list[float] = []
    for word in words.split(","):
        first, dots, last = word.partition("..")
        values.append(number(first))
        if dots:
            values += _going_on(values, number(last), most, wrong)
    return values


def _going_on(
    values: list[float], last: float, most: int, wrong: Callable[[str], Exception]
) -> list[float]:
    """Values after the given ones up to ``last``, which is one of them."""
    now = values[-1]
    if last <= now:
        raise wrong(f"{now:g}..{last:g} does not grow")
    step, ratio = 1.0, 0.0
    if len(values) > 1:
        step = now - values[-2]
        # three values, or a doubling, tell a ratio from a difference
        if len(values) > 2 and math.isclose(now * values[-3], values[-2] ** 2):
            ratio = now / values[-2]
    items: list[float] = []
    while len(items) <= most:
        now = now * ratio if ratio > 1.0 else now + step
        if now >= last * (1.0 - 1e-9):
            break
        items.append(round(now, 9))
    return [*items, last]
