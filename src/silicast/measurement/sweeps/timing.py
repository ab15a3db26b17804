"""How a kernel is timed: the protocol, and the stopwatches that it uses.

The protocol by which a kernel is timed; docs/explanation/measuring.md gives the reasons.

Samples of a kernel's time: by the host's clock, by events of the device, by a graph's replay.

A stopwatch has calls of one kernel, each on its own operands. With one call caches are warm. With
several, each runs once in a round; their operands together, or a flush before each round, exceed
the caches, so that each call reads its operands from memory.
"""

from __future__ import annotations

import gc
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from statistics import median
from time import perf_counter_ns
from typing import Any, ClassVar, final

import numpy as np

from silicast.core.prediction import Z90
from silicast.measurement.benches import BENCHES
from silicast.measurement.benches.bench import Bench
from silicast.measurement.machine.conditions import MachineMonitor
from silicast.measurement.machine.measured_machine import MeasuredMachine
from silicast.measurement.records.records import (
    Columns,
    FailedRow,
    KernelRow,
    MachineConditions,
    Protocol,
    RepeatSpread,
    utc_now,
)
from silicast.measurement.sweeps.runtime import Runtime, capturing, on_side_stream, runtime_of
from silicast.measurement.sweeps.session import reason_of

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
        count = len(self.calls)
        wanted = math.ceil(REPLAY_S / max(each_s, 1e-9) / count)
        return 1 if self.flushes else max(1, min(wanted, MOST_CAPTURED // count))

    def _capture(self, rounds: int) -> None:
        torch = self.runtime.torch
        self.runtime.synchronize()
        self._count = rounds * len(self.calls)
        self._graph: Any = None  # frees the memory of the shorter one
        graph = torch.cuda.CUDAGraph()
        outputs: list[object] = []
        with capturing(torch, graph):
            for number in range(rounds):
                for call in self.calls:
                    result = call()
                    if number == 0 and len(self.calls) > 1:
                        outputs.append(result)  # each call keeps its own result
        self._graph, self._kept = graph, outputs
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


SHARE_OF_FREE = 0.5
"""Share of the free memory for all sets of operands of one kernel."""
MOST_SETS = 64
"""Sets of operands used in turn, where caches are cold."""
SPAN = 2
"""Last-level caches that the sets should cover."""
SETS_BYTES = 4 << 30
"""Limit on all sets; beyond it caches are flushed between rounds."""

LEAST_SAMPLES, MOST_SAMPLES = 3, 4000
STEADY = 0.005
"""Half of the median's 90 % interval, relative, at which repeating ends early."""
DRIFTED = 0.05
"""Flag "drift": relative difference of the last third of the repeats from the first, if more than
noise."""
NOISY = 0.03
"""Flag "noisy": half of the median's 90 % interval, relative, at the end."""
UNSTEADY = 3.0
"""Flag "unsteady": ratio of the median to the 5 % quantile: something else ran."""
PATIENCE = 40.0
"""A call that takes this many times the protocol's seconds is not repeated: "timeout"."""

CPU = Protocol("perf_counter", warm_up=3, repeats=15, seconds=0.2, launch="", cache="warm")
CUDA_GRAPH = Protocol("cuda_graph", warm_up=3, repeats=15, seconds=0.1, launch="graph")


def usual_protocol(machine: MeasuredMachine) -> Protocol:
    """Default protocol for kernels of a machine."""
    return CPU if machine.kind == "cpu" else CUDA_GRAPH


def measure_kernel(
    kernel: Columns,
    machine: MeasuredMachine,
    protocol: Protocol | None = None,
    *,
    session: str = "",
    watch: MachineMonitor | None = None,
    benches: Mapping[str, Bench] = BENCHES,
) -> KernelRow | FailedRow:
    """Times one kernel.

    Args:
        kernel: a ``kernel`` table; its ``launch`` and ``cache`` override the protocol's.
        session: id of the row's session.
        watch: reads the machine's state meanwhile.

    Returns:
        A row whose table states launch and cache; a failed row for whatever the machine, PyTorch
        or the bench does not support. Memory is freed either way.

    Raises:
        SilicastError: PyTorch is missing or does not see the machine.
    """
    protocol = protocol or usual_protocol(machine)
    timed = as_timed(kernel, machine, protocol)
    runtime = runtime_of(machine)
    at = utc_now()

    def failed(reason: str, message: str) -> FailedRow:
        return FailedRow(session, timed, reason, message[:2000], at)

    bench = benches.get(str(kernel.get("op", "")))
    if bench is None:
        return failed("unsupported", f"no bench measures op = {kernel.get('op')!r}")
    try:
        reason = bench.why_unsupported(timed, machine)
        if reason:
            return failed("unsupported", reason)
        needed, free = bench.bytes_needed(timed), runtime.free_bytes()
        if needed > SHARE_OF_FREE * free:
            return failed(
                "out_of_memory", f"takes {needed / 1e9:.2f} GB, {free / 1e9:.2f} GB are free"
            )
        with runtime.ready(), bench.context(timed, machine), watch or nullcontext():
            samples = _samples(bench, timed, machine, runtime, protocol)
    except _TooSlowError as slow:
        reason, message = "timeout", str(slow)
    except Exception as error:
        reason, message = reason_of(error)
    else:
        runtime.release()
        return _row(samples, timed, session, at, watch)
    runtime.release(failed=True)
    return failed(reason, message)


def _row(
    samples: Sequence[float], kernel: Columns, session: str, at: str, watch: MachineMonitor | None
) -> KernelRow:
    latency_us, spread, flags = summarised(samples)
    conditions: MachineConditions | None = None
    if watch is not None:
        conditions, seen = watch.read()
        flags += [flag for flag in seen if flag not in flags]
    return KernelRow(session, kernel, latency_us, at, spread, conditions, flags)


def as_timed(kernel: Columns, machine: MeasuredMachine, protocol: Protocol) -> Columns:
    """The table with the launch and cache state of the measurement; a CPU has no launch."""
    timed = dict(kernel)
    if machine.kind == "cuda":
        timed.setdefault("launch", protocol.launch or "graph")
    elif not timed.get("launch"):
        timed.pop("launch", None)
    timed.setdefault("cache", protocol.cache or "warm")
    return timed


@final
class _TooSlowError(Exception):
    """A call takes too long for a sweep."""


def _samples(
    bench: Bench, kernel: Columns, machine: MeasuredMachine, runtime: Runtime, protocol: Protocol
) -> list[float]:
    """Seconds per call, in order."""
    cold, needed = kernel["cache"] == "cold", bench.bytes_needed(kernel)
    room = int(min(SHARE_OF_FREE * runtime.free_bytes(), SETS_BYTES) / max(needed, 1))
    calls, sets, flushes = [bench.prepare(kernel, machine)], 1, False
    if cold:
        touched = bench.bytes_touched(kernel, calls[0].args)
        sets, flushes = _sets(touched, room, runtime.cache_bytes())
        calls += [bench.prepare(kernel, machine) for _ in range(sets - 1)]
    watch = _stopwatch(kernel, machine, runtime, calls, flushes=flushes)
    usual = watch.first()
    limit = PATIENCE * protocol.seconds
    if usual * sets > limit:  # the first round may have compiled something
        usual = watch.first()
    if usual > limit:
        raise _TooSlowError(f"a call takes {usual:.1f} s")
    for _ in range(max(protocol.warm_up, 1) - 1):
        if usual * sets > protocol.seconds:
            break
        usual = min(usual, watch.first())
    with _no_collection():
        watch.prepare(usual)
        if usual * sets < protocol.seconds:
            watch.sample()
        return collected(watch.sample, protocol)


def _sets(touched: int, room: int, cache: int) -> tuple[int, bool]:
    """Number of sets of operands that evict each other from the caches, and whether they are too
    small or too few for that, so that caches must be flushed.

    Args:
        touched: bytes of a set that a call reads or writes; not its results, whose memory the next
            call may reuse.
        room: sets that fit into memory, with results and intermediate tensors.
        cache: capacity of the last level.

    >>> _sets(1 << 20, 100, 32 << 20), _sets(1 << 20, 10, 32 << 20), _sets(64 << 20, 0, 32 << 20)
    ((64, False), (10, True), (1, False))
    """
    wanted = math.ceil(SPAN * cache / max(touched, 1))
    sets = max(1, min(wanted, MOST_SETS, room))
    return sets, sets < wanted


def _stopwatch(
    kernel: Columns,
    machine: MeasuredMachine,
    runtime: Runtime,
    calls: Sequence[Any],
    *,
    flushes: bool,
) -> Stopwatch:
    if machine.kind == "cpu":
        return HostClock(runtime, calls, flushes=flushes)
    kind = GraphClock if kernel["launch"] == "graph" else EventClock
    return kind(runtime, calls, flushes=flushes)


def collected(
    sample: Callable[[], list[float]],
    protocol: Protocol,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Samples, at least three, until the protocol's seconds are over, or its repeats are taken and
    the median is known to :data:`STEADY`.
    """
    collected: list[float] = []
    start = clock()
    while True:
        collected += sample()
        if len(collected) < LEAST_SAMPLES:
            continue
        enough = len(collected) >= protocol.repeats and uncertainty(collected) < STEADY
        if enough or clock() - start >= protocol.seconds or len(collected) >= MOST_SAMPLES:
            return collected


def uncertainty(samples: Sequence[float]) -> float:
    """Half of the 90 % interval of the median, relative to it, by the ranks of the samples.

    >>> uncertainty([1.0] * 9), uncertainty([1.0, 2.0])
    (0.0, 1.0)
    """
    count = len(samples)
    if count < LEAST_SAMPLES:
        return 1.0
    ordered = sorted(samples)
    reach = Z90 * math.sqrt(count) / 2.0
    low = max(0, math.floor(count / 2.0 - reach))
    high = min(count - 1, math.ceil(count / 2.0 + reach) - 1)
    return (ordered[high] - ordered[low]) / 2.0 / ordered[count // 2]


def spread_of(samples: Sequence[float]) -> RepeatSpread:
    """Quantiles in microseconds, and drift.

    >>> spread_of([1e-6] * 3 + [2e-6] * 3).drift
    1.0
    """
    low, high = np.quantile(np.array(samples), (0.05, 0.95)).tolist()
    third = len(samples) // 3
    drift = median(samples[-third:]) / median(samples[:third]) - 1.0 if third else 0.0
    return RepeatSpread(_microseconds(low), _microseconds(high), len(samples), round(drift, 5))


def flags_of(samples: Sequence[float], spread: RepeatSpread) -> list[str]:
    """Flags that follow from the repeats alone."""
    flags = []
    third = len(samples) // 3
    if third >= LEAST_SAMPLES:
        first, last = samples[:third], samples[-third:]
        noise = uncertainty(first) + uncertainty(last)
        if abs(spread.drift) > max(DRIFTED, noise):
            flags.append("drift")
    if uncertainty(samples) > NOISY:
        flags.append("noisy")
    if float(np.quantile(samples, 0.05)) * UNSTEADY < median(samples):
        flags.append("unsteady")
    return flags


def summarised(samples: Sequence[float]) -> tuple[float, RepeatSpread, list[str]]:
    """Median in microseconds, spread and flags of samples in seconds."""
    spread = spread_of(samples)
    return _microseconds(median(samples)), spread, flags_of(samples, spread)


def _microseconds(seconds: float) -> float:
    return float(f"{seconds * 1e6:.6g}")


@contextmanager
def _no_collection() -> Iterator[None]:
    """Disables Python's garbage collector."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
