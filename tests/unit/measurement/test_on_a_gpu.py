"""What only a GPU can show: every bench runs, is captured and is timed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("there is no NVIDIA GPU", allow_module_level=True)

from silicast.measurement.benches import BENCHES  # noqa: E402
from silicast.measurement.benches.bench import Bench  # noqa: E402
from silicast.measurement.benches.ranges import Ranges  # noqa: E402
from silicast.measurement.machine.conditions import watch_of  # noqa: E402
from silicast.measurement.machine.identify import find_machine  # noqa: E402
from silicast.measurement.machine.measured_machine import MeasuredMachine  # noqa: E402
from silicast.measurement.records.records import Columns, FailedRow, HostRow, KernelRow  # noqa: E402
from silicast.measurement.sweeps.host_costs import measure_hosts  # noqa: E402
from silicast.measurement.sweeps.timing import measure_kernel  # noqa: E402
from tests.unit.measurement.benches.bench_battery import check_bench, drawn_kernels  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
STREAMED = {"op": "elementwise", "kind": "add", "inputs": 2, "elements": 1 << 24, "dtype": "fp32"}
NO_TRITON = ("silu_mul", "rope", "moe")


@pytest.fixture(scope="module")
def gpu() -> MeasuredMachine:
    return find_machine("cuda:0").machine


@pytest.mark.parametrize("op", BENCHES)
def test_the_battery_of(op: str, gpu: MeasuredMachine) -> None:
    if op in NO_TRITON:
        pytest.importorskip("triton")
    assert check_bench(BENCHES[op], gpu, draws=40) > 0


@pytest.mark.parametrize("op", BENCHES)
def test_every_format_and_kernel_is_captured_or_says_why(op: str, gpu: MeasuredMachine) -> None:
    bench, ran = BENCHES[op], 0
    for kernel in drawn_kernels(bench, gpu, 20):
        row = measure_kernel(bench.tiny(kernel), gpu)
        if isinstance(row, KernelRow):
            ran += 1
        else:
            assert row.reason == "unsupported", row
    assert ran > 0


@pytest.mark.parametrize("launch", ["graph", "stream"])
@pytest.mark.parametrize("cache", ["warm", "cold"])
def test_a_row_says_how_it_was_timed(launch: str, cache: str, gpu: MeasuredMachine) -> None:
    watch = watch_of(gpu)
    kernel = {**STREAMED, "launch": launch, "cache": cache}
    row = measure_kernel(kernel, gpu, watch=watch)
    watch.close()
    assert isinstance(row, KernelRow), row
    assert row.kernel == kernel
    assert row.latency_us > 0.0
    assert row.conditions is not None


class Waits(Bench):
    """What no graph can hold: the host waits in between."""

    op: ClassVar[str] = "elementwise"

    def __init__(self, wait: Callable[[Any], object]) -> None:
        self.wait = wait

    def ranges(self, machine: MeasuredMachine) -> Ranges:
        return BENCHES[self.op].ranges(machine)

    def tiny(self, kernel: Columns) -> Columns:
        return kernel

    def bytes_needed(self, kernel: Columns) -> int:
        return 1 << 20

    def operands(self, kernel: Columns, machine: MeasuredMachine) -> tuple[Any, ...]:
        return (torch.randn(1024, device=machine.torch_device),)

    def function(self, kernel: Columns) -> Callable[..., object]:
        def call(numbers: Any) -> object:
            self.wait(numbers.sum())
            return torch.randn_like(numbers)  # its generator takes part in the capture

        return call

    def why_unsupported(self, kernel: Columns, machine: MeasuredMachine) -> str:
        return ""


@pytest.mark.parametrize(
    "wait", [lambda result: result.item(), lambda _: torch.cuda.synchronize()],
    ids=["item", "synchronize"],
)  # fmt: skip
def test_after_a_capture_that_failed_kernels_are_measured(
    wait: Callable[[Any], object], gpu: MeasuredMachine
) -> None:
    before = torch.cuda.current_stream()
    kernel = {**STREAMED, "launch": "graph"}
    failed = measure_kernel(kernel, gpu, benches={"elementwise": Waits(wait)})
    assert isinstance(failed, FailedRow), failed
    assert torch.cuda.current_stream() == before
    for launch in ("graph", "stream"):
        gemm = {"op": "gemm", "m": 512, "n": 512, "k": 512, "dtype": "bf16", "launch": launch}
        row = measure_kernel(gemm, gpu)
        assert isinstance(row, KernelRow), row


def test_the_host_costs_something(gpu: MeasuredMachine) -> None:
    rows = list(measure_hosts(gpu))
    assert all(isinstance(row, HostRow) for row in rows), rows
    assert {row.quantity for row in rows if isinstance(row, HostRow)} == {
        "dispatch", "launch", "sync", "round_trip", "graph_launch",
    }  # fmt: skip
