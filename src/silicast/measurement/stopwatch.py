"""How one sample of a kernel's time is taken: by the host's clock, by events, by a graph's replay.

A stopwatch is given calls of the same kernel on operands of their own. With one call caches are
warm. With several, each runs once before any runs again, and what they touch together, or a flush
between the rounds, is more than the caches hold: each finds its operands in memory.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any, ClassVar, final

from silicast.measurement.capture import capturing
from silicast.measurement.runtime import Runtime

Call = Callable[[], object]

GROUP_S = 20e-6
"""Quicker calls are timed several at a time: reading the clock takes a tenth of a microsecond."""
MOST_GROUPED = 64
REPLAY_S = 500e-6
"""Of a replayed graph, so that starting it is lost in it."""
MOST_CAPTURED = 256
BUSY_CLOCKS = 200_000
"""The device spins so long (0.1 ms) while the host enqueues what is timed behind it."""


class Stopwatch(ABC):
    """Samples of one kernel's time.

    Args:
        runtime: of the device.
        calls: of the kernel, see above.
        flushes: caches are flushed before each round.

    Attributes:
        timer: what a protocol calls it.
    """

    timer: ClassVar[str]

    def __init__(self, runtime: Runtime, calls: Sequence[Call], *, flushes: bool) -> None:
        self.runtime, self.calls, self.flushes = runtime, list(calls), flushes

    @abstractmethod
    def prepare(self, usual_s: float) -> None:
        """Gets ready for a kernel that takes about so long."""

    @abstractmethod
    def sample(self) -> list[float]:
        """One round: seconds a call, one number or several."""

    def first(self) -> float:
        """Seconds of a round of all calls, a call, by the host's clock: after it they are warm."""
        start = perf_counter_ns()
        for call in self.calls:
            call()
        self.runtime.synchronize()
        return (perf_counter_ns() - start) * 1e-9 / len(self.calls)

    def _flush(self) -> None:
        if self.flushes:
            self.runtime.flush()


@final
class HostClock(Stopwatch):
    """The host's clock around calls that return when they are done, as those of a CPU do."""

    timer: ClassVar[str] = "perf_counter"

    def prepare(self, usual_s: float) -> None:
        """See :class:`Stopwatch`: quick calls share a reading of the clock; behind a flush each
        call runs once.
        """
        group = min(MOST_GROUPED, max(1, math.ceil(GROUP_S / max(usual_s, 1e-9))))
        if len(self.calls) == 1 and not self.flushes:
            self._rounds = [self.calls * group]
        else:
            self._rounds = [self.calls[i : i + group] for i in range(0, len(self.calls), group)]

    def sample(self) -> list[float]:
        """See :class:`Stopwatch`."""
        self._flush()
        found = []
        for calls in self._rounds:
            start = perf_counter_ns()
            for call in calls:
                call()
            found.append((perf_counter_ns() - start) * 1e-9 / len(calls))
        return found


@final
class EventClock(Stopwatch):
    """Events of the device around one call that the host launches while the device is idle: what
    the host takes to launch it is in the time, as in a program that waits for each result.
    """

    timer: ClassVar[str] = "cuda_event"

    def prepare(self, usual_s: float) -> None:  # noqa: ARG002
        """See :class:`Stopwatch`."""
        cuda = self.runtime.torch.cuda
        self._start, self._end = (cuda.Event(enable_timing=True) for _ in range(2))

    def sample(self) -> list[float]:
        """See :class:`Stopwatch`."""
        self._flush()
        found = []
        for call in self.calls:
            self.runtime.synchronize()
            self._start.record()
            call()
            self._end.record()
            self.runtime.synchronize()
            found.append(float(self._start.elapsed_time(self._end)) * 1e-3)
        return found


@final
class GraphClock(Stopwatch):
    """Events around a graph that holds the calls back to back, replayed behind a device that is
    still busy: neither the host nor the start of the graph is in the time.
    """

    timer: ClassVar[str] = "cuda_graph"

    def prepare(self, usual_s: float) -> None:
        """See :class:`Stopwatch`.

        Raises:
            RuntimeError: PyTorch cannot capture the kernel.
        """
        torch = self.runtime.torch
        self._start, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for call in self.calls:  # libraries allocate before they can be captured
                call()
        torch.cuda.current_stream().wait_stream(aside)
        rounds = self._rounds(usual_s)
        while True:
            self._capture(rounds)
            wanted = self._rounds(self.sample()[0])
            if wanted < 2 * rounds:  # launched one by one it seemed slower than it is
                return
            rounds = wanted

    def _rounds(self, each_s: float) -> int:
        """Rounds of all calls that a graph needs; behind a flush each call runs once."""
        own = len(self.calls)
        wanted = math.ceil(REPLAY_S / max(each_s, 1e-9) / own)
        return 1 if self.flushes else max(1, min(wanted, MOST_CAPTURED // own))

    def _capture(self, rounds: int) -> None:
        torch = self.runtime.torch
        self.runtime.synchronize()
        self._count = rounds * len(self.calls)
        self._graph: Any = None  # the shorter one, whose memory is free then
        graph = torch.cuda.CUDAGraph()
        kept: list[object] = []
        with capturing(torch, graph):
            for number in range(rounds):
                for call in self.calls:
                    result = call()
                    if number == 0 and len(self.calls) > 1:
                        kept.append(result)  # results of their own too
        self._graph, self._kept = graph, kept
        self.runtime.synchronize()

    def sample(self) -> list[float]:
        """See :class:`Stopwatch`."""
        self._flush()
        self._busy()
        self._start.record()
        self._graph.replay()
        self._end.record()
        self.runtime.synchronize()
        return [float(self._start.elapsed_time(self._end)) * 1e-3 / self._count]

    def _busy(self) -> None:
        """Keeps the device busy while the host enqueues the graph."""
        spin = getattr(self.runtime.torch.cuda, "_sleep", None)
        if spin is not None:
            spin(BUSY_CLOCKS)
