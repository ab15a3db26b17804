"""What the host takes: an operator's dispatch, a launch, a graph's start, a round trip.

Rows that a CPU has none of are not there: it launches nothing and waits for nothing.

    dispatch      the next eager operator, launched while the device is busy with those before it;
                  on a CPU a whole operator on one number
    launch        an empty kernel, launched and awaited
    graph_launch  the host's part of replaying a graph, for its states["kernels"]
    sync          asking a device that has nothing to do whether it is done
    round_trip    from the end of a kernel whose result the host reads to the start of the next:
                  its answer, its reading and the next launch
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from statistics import median
from time import perf_counter_ns
from typing import Any, final

from silicast.measurement.capture import capturing
from silicast.measurement.machine import Machine
from silicast.measurement.records import Columns, FailedRow, HostRow, Protocol
from silicast.measurement.runtime import Runtime, reason_of, runtime_of
from silicast.measurement.timing import collected, flags_of, spread_of

ENGINE = "torch-eager"
CALLS = 200
"""Operators that are launched in a row; the device's queue holds more."""
SMALL, WIDE = 1, 4096
OF_PYTORCH = ("dispatch", "graph_launch", "round_trip")
"""What depends on the framework; the others are the driver's."""
GRAPHS = (1, 32, 256)
"""Kernels of the graphs that are replayed."""
PROTOCOL = Protocol("perf_counter", warm_up=3, repeats=15, seconds=0.3, launch="stream")

Sample = Callable[[], list[float]]


def measure_hosts(machine: Machine, session: str = "") -> Iterator[HostRow | FailedRow]:
    """One row a cost; what cannot be measured is a failed row.

    Raises:
        SilicastError: PyTorch is missing or does not see the machine.
    """
    runtime = runtime_of(machine)
    for quantity, states, prepare in _costs(runtime):
        at = datetime.now(UTC).isoformat(timespec="microseconds")
        try:
            with runtime.ready():
                sample = prepare()
                for _ in range(PROTOCOL.warm_up):
                    sample()
                samples = collected(sample, PROTOCOL)
        except Exception as error:
            reason, message = reason_of(error)
            what: Columns = {"host": quantity, **states}
            yield FailedRow(session, what, reason, message, at)
            continue
        spread = spread_of(samples)
        value = float(f"{median(samples) * 1e6:.6g}")
        engine = ENGINE if quantity in OF_PYTORCH else ""
        yield HostRow(
            session, quantity, value, engine, machine.torch if engine else "", states, at, spread,
            flags_of(samples, spread),
        )  # fmt: skip


def _costs(runtime: Runtime) -> Iterator[tuple[str, Columns, Callable[[], Sample]]]:
    """Quantity, states, and what gets a sample ready."""
    host = _Host(runtime)
    if runtime.kind == "cpu":
        yield "dispatch", {"operator": "add"}, host.cpu_dispatch
        yield "dispatch", {"operator": "linear"}, host.cpu_linear
        return
    yield "dispatch", {"operator": "add"}, host.dispatch
    yield "dispatch", {"operator": "linear"}, host.dispatch_linear
    yield "launch", {}, host.launch
    yield "sync", {}, host.sync
    yield "round_trip", {"operator": "add"}, host.round_trip
    for kernels in GRAPHS:

        def replayed(kernels: int = kernels) -> Sample:
            return host.graph(kernels)

        yield "graph_launch", {"kernels": kernels}, replayed


@final
class _Host:
    """Samples, in seconds each."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime, self.torch = runtime, runtime.torch

    def _numbers(self, *shape: int) -> Any:
        return self.torch.randn(shape, device=self.runtime.machine.torch_device)

    def cpu_dispatch(self) -> Sample:
        """A sum of one number: what PyTorch does around a kernel."""
        x = self._numbers(SMALL)
        add = self.torch.add
        return self._repeated(lambda: add(x, x))

    def cpu_linear(self) -> Sample:
        """A linear layer of one input and one output."""
        x, weight, bias = self._numbers(1, SMALL), self._numbers(SMALL, SMALL), self._numbers(SMALL)
        linear = self.torch.nn.functional.linear
        return self._repeated(lambda: linear(x, weight, bias))

    def dispatch(self) -> Sample:
        """Sums behind a device that is busy."""
        x = self._numbers(WIDE)
        add = self.torch.add
        return self._behind(lambda: add(x, x))

    def dispatch_linear(self) -> Sample:
        """Linear layers behind a device that is busy."""
        x, weight, bias = self._numbers(8, 256), self._numbers(256, 256), self._numbers(256)
        linear = self.torch.nn.functional.linear
        return self._behind(lambda: linear(x, weight, bias))

    def launch(self) -> Sample:
        """A kernel with nothing to do, and waiting for it."""
        x = self._numbers(SMALL)

        def call() -> None:
            x.add_(1.0)
            self.runtime.synchronize()

        return self._repeated(call)

    def sync(self) -> Sample:
        """Waiting for a device that has nothing to do."""
        return self._repeated(self.runtime.synchronize)

    def round_trip(self) -> Sample:
        """A kernel and the reading of its result, again and again, less the kernel's own time."""
        x = self._numbers(SMALL)

        def call() -> None:
            x.add_(1.0)
            x.item()

        own_s = self._on_device(lambda: x.add_(1.0))
        repeated = self._repeated(call)

        def sample() -> list[float]:
            (period_s,) = repeated()
            return [period_s - own_s]

        return sample

    def graph(self, kernels: int) -> Sample:
        """Starting a graph: until the call returns, the device has done the one before."""
        torch, x = self.torch, self._numbers(SMALL)
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            x.add_(1.0)
        torch.cuda.current_stream().wait_stream(aside)
        self.runtime.synchronize()
        graph = torch.cuda.CUDAGraph()
        with capturing(torch, graph):
            for _ in range(kernels):
                x.add_(1.0)

        def sample() -> list[float]:
            found = []
            for _ in range(CALLS // 10):
                self.runtime.synchronize()
                start = perf_counter_ns()
                graph.replay()
                found.append((perf_counter_ns() - start) * 1e-9)
            return [median(found)]

        return sample

    def _repeated(self, call: Callable[[], object]) -> Sample:
        def sample() -> list[float]:
            start = perf_counter_ns()
            for _ in range(CALLS):
                call()
            return [(perf_counter_ns() - start) * 1e-9 / CALLS]

        return sample

    def _on_device(self, call: Callable[[], object]) -> float:
        """Seconds of a call on the device, of many that were all launched before the first ran."""
        cuda = self.torch.cuda
        start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        call()
        self.runtime.synchronize()
        cuda._sleep(20_000_000)  # noqa: SLF001 - some 10 ms, longer than the launches take
        start.record()
        for _ in range(CALLS):
            call()
        end.record()
        self.runtime.synchronize()
        return float(start.elapsed_time(end)) * 1e-3 / CALLS

    def _behind(self, call: Callable[[], object]) -> Sample:
        """The host's time of calls while the device, kept busy, runs behind it."""

        def sample() -> list[float]:
            self.runtime.synchronize()
            spin = getattr(self.torch.cuda, "_sleep", None)
            if spin is not None:
                spin(20_000_000)  # some 10 ms, longer than the launches take
            start = perf_counter_ns()
            for _ in range(CALLS):
                call()
            found = (perf_counter_ns() - start) * 1e-9 / CALLS
            self.runtime.synchronize()
            return [found]

        return sample
