"""Costs of the host: dispatch of an operator, a launch, a graph's start, a round trip.

A CPU as the device has fewer of them: it launches nothing and waits for nothing.

    dispatch      the next eager operator, launched while the device is busy with earlier ones;
                  on a CPU a whole operator on one number
    launch        an empty kernel, launched and awaited
    graph_launch  the host's part of replaying a graph of states["kernels"] kernels
    sync          synchronisation with an idle device
    round_trip    from the end of a kernel whose result the host reads to the start of the next:
                  its answer, its reading and the next launch
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from time import perf_counter_ns
from typing import Any, final

from silicast.measurement.machine.measured_machine import MeasuredMachine
from silicast.measurement.records.records import Columns, FailedRow, HostRow, Protocol, utc_now
from silicast.measurement.sweeps.runtime import Runtime, capturing, on_side_stream, runtime_of
from silicast.measurement.sweeps.session import reason_of
from silicast.measurement.sweeps.timing import collected, summarised

ENGINE = "torch-eager"
CALLS = 200
"""Operators launched in a row; the device's queue holds more."""
SMALL, WIDE = 1, 4096
OF_PYTORCH = ("dispatch", "graph_launch", "round_trip")
"""Costs that depend on the framework; the others are the driver's."""
GRAPHS = (1, 32, 256)
"""Kernels of the replayed graphs."""
SPIN_CLOCKS = 20_000_000
"""Some 10 ms, longer than the launches take."""
PROTOCOL = Protocol("perf_counter", warm_up=3, repeats=15, seconds=0.3, launch="stream")

Sample = Callable[[], list[float]]


def measure_hosts(machine: MeasuredMachine, session: str = "") -> Iterator[HostRow | FailedRow]:
    """A row for each cost; a failed row for what cannot be measured.

    Raises:
        SilicastError: PyTorch is missing or does not see the machine.
    """
    runtime = runtime_of(machine)
    for quantity, states, prepare in _HostCosts(runtime).all():
        at = utc_now()
        try:
            with runtime.ready():
                sample = prepare()
                for _ in range(PROTOCOL.warm_up):
                    sample()
                samples = collected(sample, PROTOCOL)
        except Exception as error:
            failed: Columns = {"host": quantity, **states}
            yield FailedRow(session, failed, *reason_of(error), at)
            continue
        value_us, spread, flags = summarised(samples)
        engine = ENGINE if quantity in OF_PYTORCH else ""
        version = machine.torch if engine else ""
        yield HostRow(session, quantity, value_us, engine, version, states, at, spread, flags)


@final
class _HostCosts:
    """Prepares samples of each cost, in seconds."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime, self.torch = runtime, runtime.torch

    def all(self) -> Iterator[tuple[str, Columns, Callable[[], Sample]]]:
        """Quantity, states, and a function that prepares its samples."""
        cpu = self.runtime.kind == "cpu"
        dispatched = self._repeated if cpu else self._behind
        yield "dispatch", {"operator": "add"}, lambda: dispatched(self._add(SMALL if cpu else WIDE))
        yield "dispatch", {"operator": "linear"}, lambda: dispatched(self._linear(small=cpu))
        if cpu:
            return
        yield "launch", {}, self._launch
        yield "sync", {}, lambda: self._repeated(self.runtime.synchronize)
        yield "round_trip", {"operator": "add"}, self._round_trip
        for kernels in GRAPHS:
            yield "graph_launch", {"kernels": kernels}, partial(self._graph, kernels)

    def _numbers(self, *shape: int) -> Any:
        return self.torch.randn(shape, device=self.runtime.machine.torch_device)

    def _add(self, width: int) -> Callable[[], object]:
        x, add = self._numbers(width), self.torch.add
        return lambda: add(x, x)

    def _linear(self, *, small: bool) -> Callable[[], object]:
        rows, width = (1, SMALL) if small else (8, 256)
        x, weight, bias = (self._numbers(*s) for s in ((rows, width), (width, width), (width,)))
        linear = self.torch.nn.functional.linear
        return lambda: linear(x, weight, bias)

    def _launch(self) -> Sample:
        """Launches an empty kernel and waits for it."""
        x = self._numbers(SMALL)

        def call() -> None:
            x.add_(1.0)
            self.runtime.synchronize()

        return self._repeated(call)

    def _round_trip(self) -> Sample:
        """A kernel whose result is read, again and again, less the kernel's own time."""
        x = self._numbers(SMALL)

        def call() -> None:
            x.add_(1.0)
            x.item()

        own_s = self._on_device(lambda: x.add_(1.0))
        repeated = self._repeated(call)
        return lambda: [repeated()[0] - own_s]

    def _graph(self, kernels: int) -> Sample:
        """The call that replays a graph on an idle device."""
        x = self._numbers(SMALL)
        on_side_stream(self.torch, [lambda: x.add_(1.0)])
        self.runtime.synchronize()
        graph = self.torch.cuda.CUDAGraph()
        with capturing(self.torch, graph):
            for _ in range(kernels):
                x.add_(1.0)

        def sample() -> list[float]:
            seconds = []
            for _ in range(CALLS // 10):
                self.runtime.synchronize()
                start = perf_counter_ns()
                graph.replay()
                seconds.append((perf_counter_ns() - start) * 1e-9)
            return [median(seconds)]

        return sample

    def _repeated(self, call: Callable[[], object]) -> Sample:
        """The host's time of a call."""

        def sample() -> list[float]:
            start = perf_counter_ns()
            for _ in range(CALLS):
                call()
            return [(perf_counter_ns() - start) * 1e-9 / CALLS]

        return sample

    def _behind(self, call: Callable[[], object]) -> Sample:
        """The host's time of a call while the device is busy."""
        repeated = self._repeated(call)

        def sample() -> list[float]:
            self.runtime.synchronize()
            spin = getattr(self.torch.cuda, "_sleep", None)
            if spin is not None:
                spin(SPIN_CLOCKS)
            result = repeated()
            self.runtime.synchronize()
            return result

        return sample

    def _on_device(self, call: Callable[[], object]) -> float:
        """Seconds of a call on the device, of many that were launched before the first ran."""
        cuda = self.torch.cuda
        start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        call()
        self.runtime.synchronize()
        cuda._sleep(SPIN_CLOCKS)  # noqa: SLF001 - PyTorch has no public one
        start.record()
        for _ in range(CALLS):
            call()
        end.record()
        self.runtime.synchronize()
        return float(start.elapsed_time(end)) * 1e-3 / CALLS
