"""Repeats of one pass: each from its call to the end of its work."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from silicast.measurement.records import Spread
from silicast.measurement.timing import spread_of

FEWEST, MOST, WARM_UP = 3, 400, 2
PER_MS = 1e-3


def repeated(
    call: Callable[[], object],
    wait: Callable[[], object],
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Times a call until ``seconds`` are over, at least three times; seconds, in their order.

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
    return times


def spread_ms(times: Sequence[float]) -> Spread:
    """How far repeats lie apart, in milliseconds.

    >>> spread_ms([0.001, 0.001, 0.002])
    Spread(p05=1.0, p95=1.9, repeats=3, drift=1.0)
    """
    found = spread_of(times)
    return Spread(
        round(found.p05 * PER_MS, 6), round(found.p95 * PER_MS, 6), found.repeats, found.drift
    )
