"""The protocol: when repeating ends, what is flagged, what becomes a failed row."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from itertools import count
from types import SimpleNamespace
from typing import Any, ClassVar

import msgspec
import pytest

from silicast.core.errors import SilicastError
from silicast.measurement.benches.bench import Bench
from silicast.measurement.benches.ranges import Ranges, Size
from silicast.measurement.machine.conditions import MachineMonitor
from silicast.measurement.machine.measured_machine import MeasuredMachine
from silicast.measurement.models.runner import spread_ms
from silicast.measurement.records.records import FailedRow, KernelRow, Protocol
from silicast.measurement.sweeps import runtime, timing
from silicast.measurement.sweeps.timing import (
    LEAST_SAMPLES,
    MOST_SETS,
    as_timed,
    collected,
    flags_of,
    measure_kernel,
    spread_of,
    uncertainty,
)
from tests.unit.measurement.fake_cuda import MACHINE, FakeCuda

KERNEL = {"op": "softmax", "rows": 8, "cols": 64, "dtype": "fp32"}


def clock_of(step: float) -> Callable[[], float]:
    steps = count()
    return lambda: next(steps) * step


def test_steady_samples_end_at_the_repeats() -> None:
    protocol = Protocol("perf_counter", repeats=12, seconds=100.0)
    assert len(collected(lambda: [1.0], protocol, clock_of(0.01))) == 12


def test_unsteady_samples_end_with_the_time() -> None:
    values = count(1)
    protocol = Protocol("perf_counter", repeats=5, seconds=0.5)
    result = collected(lambda: [float(next(values) % 7)], protocol, clock_of(0.01))
    assert 40 <= len(result) <= 60


def test_slow_samples_are_at_least_three() -> None:
    protocol = Protocol("perf_counter", repeats=30, seconds=0.1)
    assert len(collected(lambda: [9.0], protocol, clock_of(9.0))) == LEAST_SAMPLES


def test_the_interval_of_a_median_narrows_with_repeats() -> None:
    values = [1.0 + 0.1 * (i * 0.6180339887 % 1.0) for i in range(400)]
    assert uncertainty(values[:12]) > uncertainty(values[:100]) > uncertainty(values) > 0.0


def test_drift_beyond_the_noise_is_flagged() -> None:
    rising = [1.0 + 0.01 * i for i in range(30)]
    assert "drift" in flags_of(rising, spread_of(rising))
    even = [1.0 + 0.001 * (i % 3) for i in range(30)]
    assert flags_of(even, spread_of(even)) == []
    # as far apart, but in no order
    wild = [1.0 + 0.2 * (i * 7 % 5) for i in range(15)]
    assert flags_of(wild, spread_of(wild)) == ["noisy"]


def test_what_something_else_slowed_down_is_unsteady_in_any_unit() -> None:
    steady = [0.010 + 0.0001 * (i % 3) for i in range(30)]
    slowed = [0.002] * 10 + [0.010] * 20
    for spread in (spread_of, spread_ms):
        assert flags_of(steady, spread(steady)) == []
        assert "unsteady" in flags_of(slowed, spread(slowed))
        assert "unsteady" in flags_of(slowed[::-1], spread(slowed[::-1]))


def test_the_spread_is_in_microseconds() -> None:
    spread = spread_of([1e-6, 2e-6, 3e-6])
    assert (spread.p05, spread.p95, spread.repeats) == (1.1, 2.9, 3)


def test_launch_and_cache_are_stated() -> None:
    plain = MeasuredMachine("cpu", "", None, 1, 1)
    assert as_timed(KERNEL, plain, timing.CPU) == {**KERNEL, "cache": "warm"}
    graph = as_timed({**KERNEL, "cache": "cold"}, MACHINE, timing.CUDA_GRAPH)
    assert graph == {**KERNEL, "cache": "cold", "launch": "graph"}
    stream = msgspec.structs.replace(timing.CUDA_GRAPH, launch="stream")
    assert as_timed(KERNEL, MACHINE, stream)["launch"] == "stream"


class FakeBench(Bench):
    """A bench whose kernels are whatever a test says."""

    op: ClassVar[str] = "softmax"

    def __init__(
        self,
        make: Callable[[], Callable[[], object]],
        needed: int = 1 << 18,
        stored: int | None = None,
    ) -> None:
        self.make, self.needed, self.prepared = make, needed, 0
        self.stored = needed if stored is None else stored

    def ranges(self, machine: MeasuredMachine) -> Ranges:
        return Ranges(
            self.op, {"rows": Size(1, 8), "cols": Size(1, 64)},
            {"dtype": ("fp32",), "cache": ("warm", "cold")},
        )  # fmt: skip

    def tiny(self, kernel: dict[str, Any]) -> dict[str, Any]:
        return kernel

    def bytes_needed(self, kernel: dict[str, Any]) -> int:
        return self.needed

    def operands(self, kernel: dict[str, Any], machine: MeasuredMachine) -> tuple[Any, ...]:
        return (SimpleNamespace(nbytes=self.stored),)

    def function(self, kernel: dict[str, Any]) -> Callable[..., object]:
        self.prepared += 1
        call = self.make()
        return lambda _: call()

    def why_unsupported(self, kernel: dict[str, Any], machine: MeasuredMachine) -> str:
        return ""


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = FakeCuda()
    monkeypatch.setattr(runtime, "importlib", _Importing(fake))
    return fake


class _Importing:
    def __init__(self, module: object) -> None:
        self.module = module

    def import_module(self, name: str) -> object:
        assert name == "torch"
        return self.module


QUICK = Protocol("cuda_graph", warm_up=1, repeats=5, seconds=0.01, launch="graph")


def measured(bench: Bench, **columns: object) -> KernelRow | FailedRow:
    kernel = {**KERNEL, **columns}
    return measure_kernel(kernel, MACHINE, QUICK, session="s", benches={"softmax": bench})


def test_a_gpu_kernel_without_its_launch(cuda: FakeCuda) -> None:
    row = measured(FakeBench(lambda: cuda.kernel(20e-6)))
    assert isinstance(row, KernelRow)
    assert row.latency_us == pytest.approx(20.0, rel=1e-4)
    assert row.kernel == {**KERNEL, "launch": "graph", "cache": "warm"}
    assert row.spread is not None
    assert row.spread.repeats >= 5
    assert row.flags == []
    assert row.session == "s"


def test_cold_operands_cover_the_caches_twice(cuda: FakeCuda) -> None:
    bench = FakeBench(lambda: cuda.kernel(20e-6), needed=1 << 18)
    measured(bench, cache="cold")
    assert bench.prepared == 8  # 2 MiB of 256 KiB each
    assert not any(line.startswith("flush") for line in cuda.log)


def test_small_cold_operands_are_flushed_between_rounds(cuda: FakeCuda) -> None:
    bench = FakeBench(lambda: cuda.kernel(20e-6), needed=100)
    measured(bench, cache="cold")
    assert bench.prepared == MOST_SETS
    assert any(line.startswith("flush") for line in cuda.log)


def test_results_do_not_make_operands_cold(cuda: FakeCuda) -> None:
    bench = FakeBench(lambda: cuda.kernel(20e-6), needed=1 << 20, stored=1 << 18)
    measured(bench, cache="cold")
    assert bench.prepared == 8  # the cache twice over, by operands alone
    assert not any(line.startswith("flush") for line in cuda.log)


def test_large_results_with_small_operands_are_flushed(cuda: FakeCuda) -> None:
    bench = FakeBench(lambda: cuda.kernel(20e-6), needed=2 << 30, stored=1 << 18)
    measured(bench, cache="cold")
    assert bench.prepared == 2  # results of two sets are what memory may take
    assert any(line.startswith("flush") for line in cuda.log)
    assert "replay 2" in cuda.log  # each set once behind a flush


def test_one_large_cold_set_evicts_itself(cuda: FakeCuda) -> None:
    bench = FakeBench(lambda: cuda.kernel(20e-6), needed=4 << 20)
    measured(bench, cache="cold")
    assert bench.prepared == 1
    assert not any(line.startswith("flush") for line in cuda.log)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("CUDA out of memory. Tried to allocate 20 GiB"), "out_of_memory"),
        (MemoryError(), "out_of_memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "out_of_memory"),
        (RuntimeError("\"addmm_cuda\" not implemented for 'Float8_e4m3fn'"), "unsupported"),
        (RuntimeError("operation not permitted when stream is capturing"), "unsupported"),
        (RuntimeError("No available kernel. Aborting execution."), "unsupported"),
        (ModuleNotFoundError("No module named 'triton'"), "unsupported"),
        (AttributeError("module 'torch' has no attribute '_grouped_mm'"), "unsupported"),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), "error"),
        (ValueError("odd"), "error"),
    ],
)
def test_errors_become_failed_rows(cuda: FakeCuda, error: Exception, reason: str) -> None:
    def make() -> Callable[[], object]:
        raise error

    row = measured(FakeBench(make))
    assert isinstance(row, FailedRow)
    assert row.reason == reason
    assert type(error).__name__ in row.message
    assert str(error)[:40] in row.message
    assert row.what["op"] == "softmax"
    assert cuda.log[-1] == "empty_cache"  # memory is given back


def test_an_error_while_it_is_timed(cuda: FakeCuda) -> None:
    calls = count()
    kernel = cuda.kernel(1e-6)

    def call() -> object:
        if next(calls) == 5:
            raise RuntimeError("CUDA out of memory.")
        return kernel()

    row = measured(FakeBench(lambda: call))
    assert isinstance(row, FailedRow)
    assert row.reason == "out_of_memory"
    assert gc.isenabled()


def test_too_much_memory_is_not_tried(cuda: FakeCuda) -> None:
    cuda.free = 1 << 20
    bench = FakeBench(lambda: cuda.kernel(1e-6), needed=1 << 30)
    row = measured(bench)
    assert isinstance(row, FailedRow)
    assert (row.reason, bench.prepared) == ("out_of_memory", 0)
    assert "1.07 GB" in row.message


def test_a_call_that_takes_for_ever_is_not_repeated(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "PATIENCE", 0.0)
    row = measured(FakeBench(lambda: cuda.kernel(1e-6, "slow")))
    assert isinstance(row, FailedRow)
    assert row.reason == "timeout"
    assert cuda.log.count("slow") == 2  # the first call may have compiled it


def test_an_op_without_a_bench() -> None:
    pytest.importorskip("torch")
    row = measure_kernel({"op": "gdn"}, MeasuredMachine("cpu", "", None, 1, 1 << 30))
    assert isinstance(row, FailedRow)
    assert (row.reason, row.message) == ("unsupported", "no bench measures op = 'gdn'")


def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(SilicastError, match=r"silicast\[torch\]"):
        measure_kernel(KERNEL, MeasuredMachine("cpu", "", None, 1, 1))


def test_a_kernel_of_this_cpu() -> None:
    torch = pytest.importorskip("torch")
    machine = MeasuredMachine("cpu", "", None, 1, 1 << 33, threads=1)
    before = torch.get_num_threads()
    kernel = {**KERNEL, "library": "torch", "cache": "cold"}
    protocol = Protocol("perf_counter", warm_up=1, repeats=5, seconds=0.01, cache="warm")
    row = measure_kernel(kernel, machine, protocol, watch=MachineMonitor())
    assert isinstance(row, KernelRow), row
    assert row.kernel == kernel
    assert 0.1 < row.latency_us < 1e6
    assert row.conditions is not None
    assert torch.get_num_threads() == before


def test_a_median_of_nine_lies_between_the_third_and_the_seventh() -> None:
    """Ranks of a 90 % interval by the binomial's normal approximation: 4.5 -+ 1.645 x 3 / 2."""
    assert uncertainty([8.0, 1.0, 5.0, 3.0, 4.0, 2.0, 6.0, 7.0, 9.0]) == (7.0 - 3.0) / 2.0 / 5.0
