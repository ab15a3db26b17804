"""When each kernel starts and ends: a host that launches ahead, streams that share a device.

On one stream a kernel starts when the one before it has ended and the host has launched it:

    start[i] = max(end[i - 1], issue[i])

which has a closed form: with D[i] the device time of the kernels before i,

    start[i] = D[i] + max over k <= i of (issue[k] - D[k])

Where the host reads a kernel's result it goes on when that has ended: host and device are level
again, and the next kernel starts a round trip later. A processor that runs an operation in the
thread that calls it has no queue: the thread's own work lies between two operations.
:func:`device_waits` is the closed form over many states; :func:`simulated` follows streams event by
event, under the law of :mod:`~silicast.composition.step.concurrency`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from silicast.composition.step.node_times import rows_summed
from silicast.core.numerics import F64, I64

_NEVER = float("inf")


@final
@dataclass(frozen=True, eq=False)
class Launches:
    """How the host launches m executions.

    Attributes:
        each_s: host time of each launch, shape (m,).
        reads: whether the host reads the result of each before it launches the next, shape (m,).
        round_trip_s: from the end of a kernel whose result is read to the start of the next.
        in_line: the thread that launches also computes: nothing is launched ahead.
    """

    each_s: F64
    reads: NDArray[np.bool_]
    round_trip_s: float = 0.0
    in_line: bool = False

    @cached_property
    def free(self) -> bool:
        """Whether the device never waits."""
        return not (self.each_s.any() or self.reads.any())

    @cached_property
    def issued_s(self) -> F64:
        """When a host that waits for nothing has launched each, shape (m,)."""
        return np.cumsum(self.each_s)

    @cached_property
    def ahead(self) -> bool:
        """Whether the host launches everything without a look at the device."""
        return not (self.in_line or self.reads.any())


@final
@dataclass(frozen=True, eq=False)
class Timeline:
    """One pass, execution by execution; arrays of shape (m,), seconds from the first launch.

    Attributes:
        issue_s: when the host has launched it.
        start_s, end_s: on the device.
        stream: which one it runs on.
        launch_s: host time of each launch.
    """

    issue_s: F64
    start_s: F64
    end_s: F64
    stream: I64
    launch_s: F64

    @cached_property
    def total_s(self) -> float:
        """Until the last execution has ended."""
        return float(self.end_s.max()) if len(self.end_s) else 0.0

    @cached_property
    def _in_order(self) -> tuple[I64, F64]:
        """Executions by when they start, and until when those before each of them run."""
        order = np.lexsort((np.arange(len(self.start_s)), self.start_s))
        before = np.concatenate(([0.0], np.maximum.accumulate(self.end_s[order])[:-1]))
        return order, before

    @cached_property
    def exposed_s(self) -> F64:
        """Of each execution the time that it adds to the total, shape (m,).

        On stream 0, the program's own, all of its time; on others the time in which neither stream
        0 nor one that started before it runs. Exposed and waited times add up to the total.
        """
        order, _ = self._in_order
        exposed_s = self.end_s - self.start_s
        main, beside = order[self.stream[order] == 0], self.stream[order] != 0
        if not beside.any():
            return exposed_s
        ends = np.stack((self.start_s[main], self.end_s[main])).T.ravel()
        busy = np.repeat(np.cumsum(exposed_s[main]), 2)
        busy[::2] -= exposed_s[main]

        def free(moment: F64) -> F64:
            """Time until a moment in which stream 0 is idle."""
            return moment - (np.interp(moment, ends, busy) if len(main) else 0.0)

        side = order[beside]
        reached = np.concatenate(([0.0], np.maximum.accumulate(self.end_s[side])[:-1]))
        start = np.maximum(self.start_s[side], reached)
        end = np.maximum(self.end_s[side], start)
        exposed_s[side] = np.maximum(free(end) - free(start), 0.0)
        return exposed_s

    @cached_property
    def waited_s(self) -> F64:
        """Before each execution, the time in which the device is idle, shape (m,)."""
        order, before = self._in_order
        waited_s = np.empty_like(self.end_s)
        waited_s[order] = np.maximum(self.start_s[order] - before, 0.0)
        return waited_s

    @property
    def idle_s(self) -> float:
        """Time in which the device waits for the host."""
        return self.total_s - float(self.exposed_s.sum())


def device_waits(duration_s: F64, launches: Launches) -> F64:
    """Before each execution on one stream, the time in which the device is idle; shape (m, n).

    Args:
        duration_s: of each on the device, shape (m, n).

    >>> launches = Launches(np.array([1.0, 1.0, 7.0]), np.zeros(3, dtype=bool))
    >>> device_waits(np.array([[2.0], [2.0], [1.0]]), launches)[:, 0].tolist()
    [1.0, 0.0, 4.0]
    """
    if launches.in_line:
        return np.broadcast_to(launches.each_s[:, None], duration_s.shape)
    if launches.free:
        return np.zeros_like(duration_s)
    ended, issued = np.cumsum(duration_s, axis=0), np.cumsum(launches.each_s)
    late = issued[:, None] - (ended - duration_s)
    device_waits = np.empty_like(late)
    first = 0
    for last in (*np.flatnonzero(launches.reads).tolist(), len(late) - 1):
        if last < first:
            continue
        part = late[first : last + 1]
        if first:  # host and device are level where a result was read
            part = part - (issued[first - 1] - ended[first - 1])
        queued = np.maximum.accumulate(part, axis=0)
        device_waits[first] = queued[0]
        device_waits[first + 1 : last + 1] = queued[1:] - queued[:-1]
        if first:
            device_waits[first] += max(launches.round_trip_s - float(launches.each_s[first]), 0.0)
        first = last + 1
    return device_waits


def total_wait_s(duration_s: F64, launches: Launches) -> F64:
    """Sum of :func:`device_waits` over all executions, shape (n,)."""
    if not launches.ahead or not len(duration_s):
        return rows_summed(device_waits(duration_s, launches))
    before = duration_s.cumsum(axis=0) - duration_s
    late: F64 = (launches.issued_s[:, None] - before).max(axis=0)
    return late


def one_stream(duration_s: F64, launches: Launches) -> Timeline:
    """Executions one after the other.

    Args:
        duration_s: of each on the device, shape (m,).

    >>> launches = Launches(np.array([1.0, 1.0, 7.0]), np.zeros(3, dtype=bool))
    >>> line = one_stream(np.array([2.0, 2.0, 1.0]), launches)
    >>> line.start_s.tolist(), line.idle_s
    ([1.0, 3.0, 9.0], 5.0)
    """
    waits = device_waits(duration_s[:, None], launches)[:, 0]
    end = np.cumsum(duration_s + waits)
    start = np.minimum(np.concatenate(([0.0], end))[:-1] + waits, end)
    issue = _issues(start, launches)
    return Timeline(issue, start, end, np.zeros(len(end), dtype=np.int64), launches.each_s)


def _issues(start_s: F64, launches: Launches) -> F64:
    """When each has been launched, given when all run."""
    if launches.in_line:
        return start_s
    issue = np.cumsum(launches.each_s)
    for position in np.flatnonzero(launches.reads).tolist():
        if position + 1 < len(issue):
            issue[position + 1 :] += start_s[position + 1] - issue[position + 1]
    return issue


def simulated(
    duration_s: F64,
    launches: Launches,
    stream: Sequence[int],
    waits: Sequence[Sequence[int]],
    shares: F64,
    turns: Sequence[Sequence[int]] = (),
) -> Timeline:
    """Executions of several streams that share one device.

    Args:
        duration_s: of each where it runs alone, shape (m,).
        stream: of each; executions of one stream run in their order.
        waits: indices of earlier executions that each waits for.
        shares: of the resources, taken alone, shape (resources, m).
        turns: executions of which one runs at a time, in this order, whatever their streams: those
            of one communicator.

    Raises:
        ValueError: an execution waits for itself or for a later one; turns contradict streams.

    >>> free = Launches(np.zeros(2), np.zeros(2, dtype=bool))
    >>> few, all_cores = np.array([[0.5, 0.4]]), np.array([[1.0, 1.0]])
    >>> [simulated(np.full(2, 4.0), free, [0, 1], [(), ()], each).total_s
    ...  for each in (few, all_cores)]
    [4.0, 8.0]
    >>> simulated(np.full(2, 4.0), free, [0, 1], [(), ()], few, [(1, 0)]).start_s.tolist()
    [4.0, 0.0]
    """
    if launches.in_line:
        return one_stream(duration_s, launches)
    return _Simulation(duration_s, launches, stream, waits, shares, turns).timeline()


@final
class _Simulation:
    """Executions event by event."""

    def __init__(
        self,
        duration_s: F64,
        launches: Launches,
        stream: Sequence[int],
        waits: Sequence[Sequence[int]],
        shares: F64,
        turns: Sequence[Sequence[int]],
    ) -> None:
        count = len(duration_s)
        for index in range(count):
            if any(other >= index for other in waits[index]):
                raise ValueError(f"execution {index} waits for itself or a later one")
        self.duration, self.stream, self.waits = duration_s.tolist(), list(stream), waits
        self.launches, self.shares = launches, shares.T.tolist()
        self.start, self.end = [_NEVER] * count, [_NEVER] * count
        self.issue = [_NEVER] * count
        self.each_s, self.reads = launches.each_s.tolist(), launches.reads.tolist()
        self.issued, self.host_s = 0, 0.0
        self.turns, self.served = turns, [0] * len(turns)
        self.turn = {index: number for number, queue in enumerate(turns) for index in queue}

    def timeline(self) -> Timeline:
        from silicast.composition.step.concurrency import slowdown

        duration, stream, turn, of_resources = self.duration, self.stream, self.turn, self.shares
        queues: dict[int, list[int]] = {name: [] for name in stream}
        for index in range(len(duration) - 1, -1, -1):
            queues[stream[index]].append(index)
        left: dict[int, float] = {}
        now = 0.0
        self._launch()
        while queues:
            upcoming = self._begin(queues, left, now)
            slower = 1.0  # one alone takes no more of anything than there is
            if len(left) > 1:
                taken = zip(*[of_resources[index] for index in left], strict=True)
                slower = slowdown([sum(shares) for shares in taken])
            finish = min([work * slower for work in left.values()], default=_NEVER)
            step = min(finish, upcoming - now)
            if step == _NEVER:
                raise ValueError("executions wait for each other: turns contradict streams")
            now = upcoming if step == upcoming - now else now + step
            for index, work in list(left.items()):
                work_left = left[index] = work - step / slower
                if work_left <= 1e-12 * duration[index] + 1e-18:
                    del left[index]
                    self.end[index] = now
                    queue = queues[stream[index]]
                    queue.pop()
                    if not queue:
                        del queues[stream[index]]
                    if index in turn:
                        self.served[turn[index]] += 1
                    self._launch()
        return Timeline(
            np.array(self.issue),
            np.array(self.start),
            np.array(self.end),
            np.array(self.stream, dtype=np.int64),
            self.launches.each_s,
        )

    def _begin(self, queues: dict[int, list[int]], left: dict[int, float], now: float) -> float:
        """Begins what can begin now; returns when the next one of the others can.

        Args:
            queues: of each stream what has not ended, the last first.
            left: work of those that run.
        """
        issue, end, waits, turn, turns = self.issue, self.end, self.waits, self.turn, self.turns
        upcoming = _NEVER
        for queue in queues.values():
            index = queue[-1]
            if index in left:
                continue
            number = turn.get(index, -1)
            if number >= 0 and turns[number][self.served[number]] != index:
                continue
            ready = issue[index]
            for other in waits[index]:
                ready = max(ready, end[other])
            if ready <= now:
                self.start[index], left[index] = now, self.duration[index]
            else:
                upcoming = min(upcoming, ready)
        return upcoming

    def _launch(self) -> None:
        """The host launches ahead until it waits for a result that is not there yet."""
        while self.issued < len(self.issue):
            each = self.each_s[self.issued]
            if self.issued and self.reads[self.issued - 1]:
                read = self.end[self.issued - 1]
                if read == _NEVER:
                    return
                trip_s = max(self.launches.round_trip_s, each)
                self.host_s = max(self.host_s, read + trip_s - each)
            self.host_s += each
            self.issue[self.issued] = self.host_s
            self.issued += 1
