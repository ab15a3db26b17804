from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from silicast.measurement.records.dataset import REFERENCE
from silicast.measurement.records.records import (
    CollectiveRow,
    Columns,
    FailedRow,
    HostRow,
    KernelRow,
    Session,
    read_measurements,
)
from silicast.measurement.records.store import MeasurementFile
from silicast.measurement.sweeps.session import (
    MeasuringSession,
    SessionResult,
    Tools,
    is_fatal,
    reason_of,
)
from silicast.scenario.kernels.kernel_case import kernel_case


class Clock:
    """Time passes when something is measured."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Queue:
    """Asks for kernels in their order; forgets those that are known."""

    kernels: list[Columns]
    told: list[int] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)

    def next(self, left_s: float) -> Columns | None:
        seen = {*self.told, *self.refused}
        left = (kernel for kernel in self.kernels if kernel["m"] not in seen)
        return next(left, None) if left_s >= 1.0 else None

    def tell(self, kernel: Columns, latency_us: float) -> None:
        self.told.append(kernel["m"])

    def failed(self, kernel: Columns, reason: str) -> None:
        assert reason
        self.refused.append(kernel["m"])


def gemms(count: int) -> Queue:
    return Queue([{"op": "gemm", "m": m, "n": 8, "k": 8} for m in range(1, count + 1)])


REFERENCE_KERNEL = {"op": "gemm", "m": 512, "n": 512, "k": 512}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "measured.jsonl"


def timed(clock: Clock, wall_s: float = 1.0) -> Callable[[Columns], KernelRow | FailedRow]:
    def measure(kernel: Columns) -> KernelRow | FailedRow:
        clock.now += wall_s
        return KernelRow("", kernel, float(kernel["m"]))

    return measure


def run(
    path: Path,
    tools: Tools,
    clock: Clock,
    budget_s: float = 100.0,
    stop: Callable[[], str] = str,
    device: str = "H100",
) -> SessionResult:
    session = Session(f"at {clock.now}", "2026-01-01", device=device)
    with MeasurementFile.open(path, session) as file:
        return MeasuringSession(file, tools, budget_s, stop=stop, clock=clock).run()


def test_ends_within_the_budget(path: Path) -> None:
    clock = Clock()
    outcome = run(path, Tools(timed(clock), gemms(1000)), clock, budget_s=20.0)
    rows = read_measurements(path).kernels
    assert 15 <= len(rows) <= 20
    assert outcome.seconds <= 20.0
    assert (outcome.ended, outcome.exhausted) == ("", False)
    assert len({row.at for row in rows}) == len(rows)


def test_ends_when_nothing_is_left(path: Path) -> None:
    clock = Clock()
    outcome = run(path, Tools(timed(clock), gemms(3)), clock)
    assert [row.kernel["m"] for row in read_measurements(path).kernels] == [1, 2, 3]
    assert (outcome.rows, outcome.ended, outcome.exhausted) == (3, "", True)


def test_goes_on_with_what_is_not_there_yet(path: Path) -> None:
    clock = Clock()
    run(path, Tools(timed(clock), gemms(9)), clock, budget_s=6.0)
    first = len(read_measurements(path).kernels)
    assert 0 < first < 9
    run(path, Tools(timed(clock), gemms(9)), clock)
    measurements = read_measurements(path)
    assert [row.kernel["m"] for row in measurements.kernels] == list(range(1, 10))
    assert len(measurements.sessions) == 1


def test_rows_that_are_no_kernels_to_choose_from_do_not_stop_it(path: Path) -> None:
    clock = Clock()
    with MeasurementFile.open(path, Session("imported", "2026-01-01", device="H100")) as file:
        file.append(
            KernelRow("imported", {"op": "novel"}, 1.0),
            KernelRow("imported", {"op": "gemm", "m": 1, "n": 8, "k": 8}, 1.0),
            FailedRow("imported", {"op": "all_reduce", "bytes": 8}, "error"),
        )

    class Strict(Queue):
        def tell(self, kernel: Columns, latency_us: float) -> None:
            kernel_case(kernel)
            super().tell(kernel, latency_us)

        def failed(self, kernel: Columns, reason: str) -> None:
            kernel_case(kernel)
            super().failed(kernel, reason)

    run(path, Tools(timed(clock), Strict(gemms(3).kernels)), clock)
    rows = read_measurements(path).kernels[2:]
    assert [row.kernel["m"] for row in rows] == [2, 3]


def test_another_device_starts_anew(path: Path) -> None:
    clock = Clock()
    run(path, Tools(timed(clock), gemms(3)), clock)
    run(path, Tools(timed(clock), gemms(3)), clock, device="H200")
    assert len(read_measurements(path).kernels) == 6


def test_failures_are_rows_and_are_not_tried_again(path: Path) -> None:
    clock = Clock()

    def measure(kernel: Columns) -> KernelRow | FailedRow:
        clock.now += 1.0
        if kernel["m"] == 1:
            return FailedRow("", kernel, "out_of_memory", "too large")
        if kernel["m"] == 2:
            raise MemoryError("no more")
        if kernel["m"] == 3:
            raise ValueError("odd\nsizes")
        return KernelRow("", kernel, 1.0)

    outcome = run(path, Tools(measure, gemms(5)), clock)
    measurements = read_measurements(path)
    assert [row.reason for row in measurements.failed] == [
        "out_of_memory",
        "out_of_memory",
        "error",
    ]
    assert measurements.failed[2].message == "ValueError: odd sizes"
    assert [row.kernel["m"] for row in measurements.kernels] == [4, 5]
    assert outcome.ended == ""
    again = gemms(5)
    run(path, Tools(measure, again), clock)
    assert again.refused == [1, 2, 3]
    assert len(read_measurements(path).failed) == 3


def test_a_lost_gpu_ends_the_session(path: Path) -> None:
    clock = Clock()

    def measure(kernel: Columns) -> KernelRow:
        clock.now += 1.0
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    outcome = run(path, Tools(measure, gemms(5)), clock)
    assert "run the command again" in outcome.ended
    assert len(read_measurements(path).failed) == 1


TRAILER = """
Search for `{}' in https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for \
more information.
CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace \
below might be incorrect.
For debugging consider passing CUDA_LAUNCH_BLOCKING=1
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.

Device-side assertion tracking was not enabled by user.
"""
"""What PyTorch adds to errors of CUDA."""


@pytest.mark.parametrize(
    ("said", "name", "fatal"),
    [
        ("invalid argument", "cudaErrorInvalidValue", False),
        ("out of memory", "cudaErrorMemoryAllocation", False),
        ("operation not permitted when stream is capturing", "cudaErrorStreamCaptureUnsupported",
         False),
        ("an illegal memory access was encountered", "cudaErrorIllegalAddress", True),
        ("device-side assert triggered", "cudaErrorAssert", True),
        ("unspecified launch failure", "cudaErrorLaunchFailure", True),
    ],
)  # fmt: skip
def test_only_some_errors_say_that_the_gpu_is_lost(
    path: Path, said: str, name: str, fatal: bool
) -> None:
    clock = Clock()
    message = f"CUDA error: {said}{TRAILER.format(name)}"
    reason, remaining = reason_of(RuntimeError(message))
    assert is_fatal(FailedRow("", {}, reason, remaining)) is fatal  # as a row keeps it

    def measure(kernel: Columns) -> KernelRow | FailedRow:
        clock.now += 1.0
        if kernel["m"] == 1:
            return FailedRow("", kernel, "error", message)
        return KernelRow("", kernel, 1.0)

    outcome = run(path, Tools(measure, gemms(3)), clock)
    assert ("run the command again" in outcome.ended) is fatal
    assert len(read_measurements(path).kernels) == (0 if fatal else 2)


LOST = "CUDA error: an illegal memory access was encountered"


def test_a_kernel_that_loses_the_gpu_twice_is_left(path: Path) -> None:
    clock = Clock()

    def measure(kernel: Columns) -> KernelRow | FailedRow:
        clock.now += 1.0
        if kernel["m"] == 1:
            return FailedRow("", kernel, "error", LOST)
        return KernelRow("", kernel, 1.0)

    ended = [run(path, Tools(measure, gemms(3)), clock).ended for _ in range(3)]
    assert [bool(each) for each in ended] == [True, True, False]
    assert [row.kernel["m"] for row in read_measurements(path).kernels] == [2, 3]


@pytest.mark.parametrize("kind", ["hosts", "collectives"])
def test_a_gpu_lost_before_the_kernels_ends_the_session_and_the_row_is_measured_again(
    path: Path, kind: str
) -> None:
    clock = Clock()
    lost = [True]
    what: Columns = {"host": "sync"} if kind == "hosts" else {"collective": "all", "gpus": 2}
    after: list[str] = []
    measured: dict[str, Any] = {}

    def rows() -> Iterator[FailedRow]:
        remark = LOST if lost.pop(0) else "no such symbol"
        yield FailedRow("", what, "error", remark)
        after.append(remark)

    measured[kind] = rows
    ended = run(path, Tools(timed(clock), gemms(2), **measured), clock).ended
    assert "run the command again" in ended
    assert after == []
    assert read_measurements(path).kernels == ()
    lost.append(False)
    assert run(path, Tools(timed(clock), gemms(2), **measured), clock).ended == ""
    measurements = read_measurements(path)
    assert [row.message for row in measurements.failed] == [LOST, "no such symbol"]
    assert len(measurements.kernels) == 2


def test_a_reference_that_fails_is_a_row(path: Path) -> None:
    clock = Clock()

    def measure(kernel: Columns) -> KernelRow | FailedRow:
        clock.now += 1.0
        if kernel == REFERENCE_KERNEL:
            return FailedRow("", kernel, "out_of_memory", "no room")
        return KernelRow("", kernel, 1.0)

    run(path, Tools(measure, gemms(3), reference=REFERENCE_KERNEL), clock)
    measurements = read_measurements(path)
    assert [(row.what, row.reason) for row in measurements.failed] == [
        (REFERENCE_KERNEL, "out_of_memory")
    ]
    assert len(measurements.kernels) == 3


def test_ends_when_somebody_asks(path: Path) -> None:
    clock = Clock()
    outcome = run(
        path, Tools(timed(clock), gemms(99)), clock,
        stop=lambda: "SIGTERM" if clock.now >= 105.0 else "",
    )  # fmt: skip
    assert outcome.ended == "SIGTERM"
    assert len(read_measurements(path).kernels) == 5


def test_an_interrupt_keeps_what_was_measured(path: Path) -> None:
    clock = Clock()

    def measure(kernel: Columns) -> KernelRow:
        if kernel["m"] == 3:
            raise KeyboardInterrupt
        return KernelRow("", kernel, 1.0)

    assert run(path, Tools(measure, gemms(5)), clock).ended == "interrupted"
    assert len(read_measurements(path).kernels) == 2


def hosts() -> Iterator[HostRow | FailedRow]:
    yield HostRow("", "dispatch", 3.0, states={"operator": "add"})
    yield HostRow("", "dispatch", 3.0, states={"operator": "linear"})
    yield FailedRow("", {"host": "graph_launch"}, "unsupported")


def test_host_and_collectives_come_once(path: Path) -> None:
    clock = Clock()
    calls = []

    def collectives() -> Iterator[CollectiveRow]:
        calls.append(clock.now)
        yield CollectiveRow("", {"op": "all_reduce", "bytes": 8, "gpus": 2}, 4.0)

    for _ in range(2):
        run(path, Tools(timed(clock), gemms(1), hosts, collectives), clock)
    measurements = read_measurements(path)
    assert (len(measurements.hosts), len(measurements.collectives), len(measurements.failed)) == (
        2,
        1,
        1,
    )
    assert len(calls) == 1


def test_host_times_that_a_kill_cut_short_are_completed(path: Path) -> None:
    clock = Clock()

    def cut() -> Iterator[HostRow]:
        yield HostRow("", "dispatch", 9.0, states={"operator": "add"})
        raise KeyboardInterrupt

    run(path, Tools(timed(clock), gemms(1), cut), clock)
    run(path, Tools(timed(clock), gemms(1), hosts), clock)
    measurements = read_measurements(path)
    assert [row.value_us for row in measurements.hosts] == [9.0, 3.0]
    assert (len(measurements.failed), len(measurements.kernels)) == (1, 1)


def test_collectives_leave_time_for_kernels(path: Path) -> None:
    clock = Clock()

    def collectives() -> Iterator[CollectiveRow]:
        for size in range(1, 1000):
            clock.now += 1.0
            yield CollectiveRow("", {"op": "all_reduce", "bytes": size, "gpus": 2}, 4.0)

    run(path, Tools(timed(clock), gemms(999), collectives=collectives), clock, budget_s=100.0)
    measurements = read_measurements(path)
    assert 30 <= len(measurements.collectives) <= 32
    assert len(measurements.kernels) >= 60


def test_models_get_the_rest_of_the_time(path: Path) -> None:
    clock = Clock()
    given: list[float] = []

    def models(file: MeasurementFile, seconds: float, tell: object) -> None:
        given.append(seconds)

    run(path, Tools(timed(clock), gemms(999), models=models), clock, budget_s=100.0)
    assert 40.0 <= given[0] <= 42.0


def test_the_reference_says_when_the_machine_slows_down(path: Path) -> None:
    clock = Clock()

    def measure(kernel: Columns) -> KernelRow:
        clock.now += 1.0
        return KernelRow("", kernel, 20.0 if clock.now > 150.0 else 10.0)

    tools = Tools(measure, gemms(999), reference=REFERENCE_KERNEL)
    run(path, tools, clock)
    rows = read_measurements(path).kernels
    assert sum(row.name == REFERENCE for row in rows) >= 5
    current = [row for row in rows if row.name != REFERENCE]
    assert current[0].conditions is not None
    assert current[0].conditions.reference == 1.0
    assert current[0].flags == []
    assert current[-1].conditions is not None
    assert current[-1].conditions.reference == 2.0
    assert current[-1].flags == ["drift"]

    clock.now = 1000.0  # another process, the same session: the first time is that of the file
    run(path, tools, clock)
    last = read_measurements(path).kernels[-1]
    assert last.conditions is not None
    assert last.conditions.reference == 2.0
