"""Samples of a kernel's time: by the host's clock, by events of the device, by a graph's replay.

A stopwatch has calls of one kernel, each on its own operands. With one call caches are warm. With
several, each runs once in a round; their operands together, or a flush before each round, exceed
the caches, so that each call reads its operands from memory.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any, ClassVar, final

from silicast.measurement.sweeps.runtime import Runtime, capturing, on_side_stream

Call = Callable[[], object]

GROUP_S = 20e-6
"""Faster calls are timed in groups: reading the clock takes a tenth of a microsecond."""
MOST_GROUPED = 64
REPLAY_S = 500e-6
"""Duration of a replayed graph that makes the cost of starting it negligible."""
MOST_CAPTURED = 256
BUSY_CLOCKS = 200_000
"""The device spins for this long (0.1 ms) while the host enqueues the timed work."""


class Stopwatch(ABC):
    """Samples of one kernel's time.

    Args:
        runtime: of the device.
        calls: of the kernel, see above; flushes: caches are flushed before each round.

    Attributes:
        timer: its name in a protocol.
    """

    timer: ClassVar[str]

    def __init__(self, runtime: Runtime, calls: Sequence[Call], *, flushes: bool) -> None:
        self.runtime, self.calls, self.flushes = runtime, list(calls), flushes

    @abstractmethod
    def prepare(self, usual_s: float) -> None:
        """Prepares for a kernel that takes about ``usual_s`` seconds."""

    @abstractmethod
    def sample(self) -> list[float]:
        """One round: seconds per call, one value or several."""

    def first(self) -> float:
        """Seconds per call of a round, by the host's clock; warms up."""
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
    """The host's clock around calls that return when they are finished, as on a CPU."""

    timer: ClassVar[str] = "perf_counter"

    def prepare(self, usual_s: float) -> None:
        """Groups fast calls; after a flush each call runs once."""
        group = min(MOST_GROUPED, max(1, math.ceil(GROUP_S / max(usual_s, 1e-9))))
        if len(self.calls) == 1 and not self.flushes:
            self._rounds = [self.calls * group]
        else:
            self._rounds = [self.calls[i : i + group] for i in range(0, len(self.calls), group)]

    def sample(self) -> list[float]:
        self._flush()
        sample = []
        for calls in self._rounds:
            start = perf_counter_ns()
            for call in calls:
                call()
            sample.append((perf_counter_ns() - start) * 1e-9 / len(calls))
        return sample


@final
class EventClock(Stopwatch):
    """Events of the device around one call on an idle device: the time includes the launch by the
    host, as in a program that waits for each result.
    """

    timer: ClassVar[str] = "cuda_event"

    def prepare(self, usual_s: float) -> None:  # noqa: ARG002
        cuda = self.runtime.torch.cuda
        self._start, self._end = (cuda.Event(enable_timing=True) for _ in range(2))

    def sample(self) -> list[float]:
        self._flush()
        sample = []
        for call in self.calls:
            self.runtime.synchronize()
            self._start.record()
            call()
            self._end.record()
            self.runtime.synchronize()
            sample.append(float(self._start.elapsed_time(self._end)) * 1e-3)
        return sample


@final
class GraphClock(Stopwatch):
    """Events around a replayed graph of back-to-back calls, enqueued on a busy device: the time
    includes neither the host nor the start of the graph.
    """

    timer: ClassVar[str] = "cuda_graph"

    def prepare(self, usual_s: float) -> None:
        """Captures a graph of sufficient duration.

        Raises:
            RuntimeError: PyTorch cannot capture the kernel.
        """
        torch = self.runtime.torch
        self._start, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        on_side_stream(torch, self.calls)
        rounds = self._rounds(usual_s)
        while True:
            self._capture(rounds)
            wanted = self._rounds(self.sample()[0])
            if wanted < 2 * rounds:  # single launches made the kernel seem slower than it is
                return
            rounds = wanted

    def _rounds(self, each_s: float) -> int:
        """Rounds of all calls that a graph needs; after a flush each call runs once."""
        current = len(self.calls)
        wanted = math.ceil(REPLAY_S / max(each_s, 1e-9) / current)
        return 1 if self.flushes else max(1, min(wanted, MOST_CAPTURED // current))

    def _capture(self, rounds: int) -> None:
        torch = self.runtime.torch
        self.runtime.synchronize()
        self._count = rounds * len(self.calls)
        self._graph: Any = None  # frees the memory of the shorter one
        graph = torch.cuda.CUDAGraph()
        remaining: list[object] = []
        with capturing(torch, graph):
            for number in range(rounds):
                for call in self.calls:
                    result = call()
                    if number == 0 and len(self.calls) > 1:
                        remaining.append(result)  # each call keeps its own result
        self._graph, self._kept = graph, remaining
        self.runtime.synchronize()

    def sample(self) -> list[float]:
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
