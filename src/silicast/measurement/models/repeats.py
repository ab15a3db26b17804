"""Repeats of one call: their median, how far they lie apart, and whether they drift."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import final

from silicast.measurement.records import Spread

FEWEST, MOST, WARM_UP = 3, 400, 2
NOISY = 0.2
"""Flag "noisy": the 5th and 95th percentile are this share of the median apart."""
DRIFTING = 0.1
"""Flag "drift": the last third differs from the first by this share."""


@final
@dataclass(frozen=True)
class Repeats:
    """Times of one call.

    Attributes:
        median_s: of all repeats; spread: in milliseconds; flags: what is doubtful.
    """

    median_s: float
    spread: Spread
    flags: tuple[str, ...]


def repeated(
    call: Callable[[], object],
    wait: Callable[[], object],
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> Repeats:
    """Times a call until ``seconds`` are over, at least three times.

    Args:
        wait: returns once the call's work is done.
    """
    for _ in range(WARM_UP):
        call()
        wait()
    times: list[float] = []
    end = clock() + seconds
    while len(times) < FEWEST or (clock() < end and len(times) < MOST):
        start = clock()
        call()
        wait()
        times.append(clock() - start)
    return summary(times)


def summary(times: Sequence[float]) -> Repeats:
    """Of seconds in the order in which they were taken.

    >>> found = summary([1.0] * 6 + [2.0] * 3)
    >>> found.median_s, found.spread.drift, found.flags
    (1.0, 1.0, ('noisy', 'drift'))
    """
    middle = median(times)
    cuts = quantiles(times, n=20, method="inclusive")
    third = max(len(times) // 3, 1)
    drift = median(times[-third:]) / median(times[:third]) - 1.0
    flags = []
    if cuts[-1] - cuts[0] > NOISY * middle:
        flags.append("noisy")
    if abs(drift) > DRIFTING:
        flags.append("drift")
    return Repeats(middle, Spread(cuts[0] * 1e3, cuts[-1] * 1e3, len(times), drift), tuple(flags))
