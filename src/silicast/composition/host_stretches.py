"""Time in which the device waits for the host within a pass whose kernels run in order.

Launches run ahead of the device until the host asks it for a number: then the host waits for all
that it launched, and the device for the host's next launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise

import numpy as np

from silicast.composition.placed import Placed
from silicast.composition.timeline import one_stream
from silicast.core.numerics import F64
from silicast.workload.gradients import HOST_WAITS


def stretches_s(placed: Sequence[Placed], each_s: F64, launch_s: float, trip_s: float) -> float:
    """Seconds that the device is idle, over all executions.

    Args:
        placed: kernels in their order; those of a block run as often as it does, one repeat after
            the other.
        each_s: of one execution of each on the device, shape (kernels,).
        launch_s: host time of a launch.
        trip_s: from the end of a kernel whose result the host reads to the start of the next.
    """
    runs = _blocks(placed)
    if not any(p.op.variant.flag(HOST_WAITS) for p in placed):
        parts = [
            np.tile(each_s[start : start + len(members)], members[0].count)
            for members, start in runs
        ]
        return _idle_s(np.concatenate(parts), launch_s) if parts else 0.0
    idle = 0.0
    for members, start in runs:
        seconds = each_s[start : start + len(members)]
        idle += members[0].count * _answered_s(members, seconds, launch_s, trip_s)
    return idle


def _blocks(placed: Sequence[Placed]) -> list[tuple[list[Placed], int]]:
    found: list[tuple[list[Placed], int]] = []
    start = 0
    for _, members in groupby(placed, key=lambda each: (each.stage, each.block)):
        run = list(members)
        found.append((run, start))
        start += len(run)
    return found


def _answered_s(placed: Sequence[Placed], each_s: F64, launch_s: float, trip_s: float) -> float:
    """Idle time of one repeat of a block; host and device are level where it starts."""
    ends = [index + 1 for index, each in enumerate(placed) if each.op.variant.flag(HOST_WAITS)]
    bounds = [0, *ends, len(placed)]
    pieces = (each_s[first:last] for first, last in pairwise(bounds) if last > first)
    # the launch behind an answer is part of its trip
    return sum(_idle_s(piece, launch_s) for piece in pieces) + len(ends) * (trip_s - launch_s)


def _idle_s(each_s: F64, launch_s: float) -> float:
    """Kernels one after the other, launched from zero on."""
    if not len(each_s) or launch_s <= 0.0:
        return 0.0
    issue = np.arange(1, len(each_s) + 1, dtype=np.float64) * np.float64(launch_s)
    return one_stream(each_s, issue).idle_s
