"""When each kernel starts and ends: a host that launches ahead, streams that share a device.

On one stream a kernel starts when the one before it has ended and the host has launched it:

    start[i] = max(end[i - 1], issue[i])

which has a closed form: with D[i] the device time of the kernels before i,

    start[i] = D[i] + max over k <= i of (issue[k] - D[k])

A processor that runs an operation in the thread that calls it has no such queue
(:func:`in_line`).

Kernels of several streams run at once as far as they wait for nobody, and share cores and memory:
each asks for a share of both, and where the shares of those that run exceed what there is, all of
them slow down alike. Two kernels that fill the device thus gain nothing from running together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from silicast.core.numerics import F64, I64

_NEVER = float("inf")


@final
@dataclass(frozen=True, eq=False)
class Timeline:
    """One pass, kernel by kernel; arrays of shape (n,), seconds from the first launch.

    Attributes:
        issue_s: when the host has launched it.
        start_s, end_s: on the device.
        stream: which one it runs on.
        host_s: what the host takes for each launch; None = from one launch to the next.
    """

    issue_s: F64
    start_s: F64
    end_s: F64
    stream: I64
    host_s: F64 | None = None

    @cached_property
    def launch_s(self) -> F64:
        """Host time of each launch, shape (n,)."""
        if self.host_s is not None:
            return self.host_s
        found: F64 = np.diff(self.issue_s, prepend=0.0)
        return found

    @cached_property
    def total_s(self) -> float:
        """Until the last kernel has ended."""
        return float(self.end_s.max()) if len(self.end_s) else 0.0

    @cached_property
    def busy_s(self) -> float:
        """Time in which at least one kernel runs."""
        return float(self.exposed_s.sum())

    @cached_property
    def _in_order(self) -> tuple[I64, F64]:
        """Kernels by when they start, and until when those before each of them run."""
        order = np.lexsort((np.arange(len(self.start_s)), self.start_s))
        before = np.concatenate(([0.0], np.maximum.accumulate(self.end_s[order])[:-1]))
        return order, before

    @cached_property
    def exposed_s(self) -> F64:
        """Of each kernel the time in which none that started before it still runs, shape (n,).

        Exposed and waited times add up to the total.
        """
        order, before = self._in_order
        found = np.empty_like(self.end_s)
        start = np.maximum(self.start_s[order], before)
        found[order] = np.maximum(self.end_s[order] - start, 0.0)
        return found

    @cached_property
    def waited_s(self) -> F64:
        """Before each kernel, the time in which the device waits for it, shape (n,)."""
        order, before = self._in_order
        found = np.empty_like(self.end_s)
        found[order] = np.maximum(self.start_s[order] - before, 0.0)
        return found

    @property
    def idle_s(self) -> float:
        """Time in which the device waits for the host."""
        return self.total_s - self.busy_s


def one_stream(duration_s: F64, issue_s: F64) -> Timeline:
    """Kernels one after the other.

    Args:
        duration_s: of each on the device, shape (n,).
        issue_s: when the host has launched it, ascending, shape (n,).

    >>> line = one_stream(np.array([2.0, 2.0, 1.0]), np.array([1.0, 2.0, 9.0]))
    >>> line.start_s.tolist(), line.idle_s
    ([1.0, 3.0, 9.0], 5.0)
    """
    ended = np.concatenate(([0.0], np.cumsum(duration_s)))
    late = np.maximum.accumulate(issue_s - ended[:-1])
    start: F64 = ended[:-1] + late
    end = start + duration_s
    end[:-1] = np.minimum(end[:-1], start[1:])  # sums round: kernels do not overlap
    return Timeline(issue_s, start, end, np.zeros(len(start), dtype=np.int64))


def in_line(duration_s: F64, between_s: float) -> Timeline:
    """Operations that run in the thread that calls them, whatever their stream.

    Args:
        duration_s: of each, with its call, shape (n,).
        between_s: what the thread does before each.

    >>> line = in_line(np.array([2.0, 4.0]), 0.5)
    >>> line.start_s.tolist(), line.total_s, line.idle_s
    ([0.5, 3.0], 7.0, 1.0)
    """
    end = np.cumsum(duration_s + between_s)
    begin = np.concatenate(([0.0], end))[:-1]
    start: F64 = np.minimum(begin + between_s, end)
    count = len(duration_s)
    return Timeline(start, start, end, np.zeros(count, dtype=np.int64), np.full(count, between_s))


def several_streams(
    duration_s: Sequence[float],
    issue_s: Sequence[float],
    stream: Sequence[int],
    waits: Sequence[Sequence[int]],
    cores: Sequence[float],
    dram: Sequence[float],
) -> Timeline:
    """Kernels of several streams that share one device.

    Args:
        duration_s: of each where it runs alone.
        issue_s: when the host has launched it.
        stream: of each; kernels of one stream run in their order.
        waits: indices of earlier kernels that each waits for.
        cores, dram: shares of the cores and of the memory's bandwidth that each takes alone.

    Raises:
        ValueError: a kernel waits for itself or for a later one.

    >>> alone = several_streams([4.0, 4.0], [0.0, 0.0], [0, 1], [(), ()], [0.5, 0.4], [0.3, 0.2])
    >>> shared = several_streams([4.0, 4.0], [0.0, 0.0], [0, 1], [(), ()], [1.0, 1.0], [0.3, 0.2])
    >>> alone.total_s, shared.total_s
    (4.0, 8.0)
    """
    count = len(duration_s)
    queues: dict[int, list[int]] = {}
    for index in range(count):
        if any(other >= index for other in waits[index]):
            raise ValueError(f"kernel {index} waits for itself or a later one")
        queues.setdefault(stream[index], []).append(index)
    heads = dict.fromkeys(queues, 0)
    start, end = [_NEVER] * count, [_NEVER] * count
    left: dict[int, float] = {}
    now, done = 0.0, 0
    while done < count:
        upcoming = _NEVER
        for name, queue in queues.items():
            place = heads[name]
            if place == len(queue) or queue[place] in left:
                continue
            index = queue[place]
            ready = max([issue_s[index], *(end[other] for other in waits[index])])
            if ready <= now:
                start[index], left[index] = now, duration_s[index]
            else:
                upcoming = min(upcoming, ready)
        slowed = max(1.0, sum(cores[i] for i in left), sum(dram[i] for i in left))
        finish = min((remaining * slowed for remaining in left.values()), default=_NEVER)
        step = min(finish, upcoming - now)
        now = upcoming if step == upcoming - now else now + step
        for index in list(left):
            left[index] -= step / slowed
            if left[index] <= 1e-12 * duration_s[index] + 1e-18:
                del left[index]
                end[index] = now
                heads[stream[index]] += 1
                done += 1
    return Timeline(
        np.array(issue_s, dtype=np.float64),
        np.array(start),
        np.array(end),
        np.array(stream, dtype=np.int64),
    )
