"""Costs of the host, on this CPU and on a GPU that is a clock."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from silicast.measurement.machine.measured_machine import MeasuredMachine
from silicast.measurement.records.records import FailedRow, HostRow, Protocol
from silicast.measurement.sweeps import host_costs
from silicast.measurement.sweeps.collectives import (
    BYTES,
    OPS,
    counts,
    elements,
    measure_collectives,
)
from silicast.measurement.sweeps.host_costs import measure_hosts
from silicast.measurement.sweeps.runtime import CudaRuntime
from silicast.scenario.decode import decode
from tests.unit.measurement.fake_cuda import MACHINE, FakeCuda


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = Protocol("perf_counter", warm_up=1, repeats=3, seconds=0.01)
    monkeypatch.setattr(host_costs, "PROTOCOL", quick)


def test_a_cpu_has_dispatch_alone() -> None:
    pytest.importorskip("torch")
    rows = list(measure_hosts(MeasuredMachine("cpu", "", None, 1, 1 << 33, torch="x"), "s"))
    assert {row.quantity for row in rows if isinstance(row, HostRow)} == {"dispatch"}
    assert all(isinstance(row, HostRow) and row.engine == "torch-eager" for row in rows)
    assert all(0.2 < row.value_us < 1e5 for row in rows if isinstance(row, HostRow))


def test_what_a_gpu_cannot_do_is_a_failed_row(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        """A runtime whose PyTorch has no tensors."""

        kind, machine = "cuda", MACHINE

        def __init__(self) -> None:
            self.torch: Any = object()

        def ready(self) -> Any:
            from contextlib import nullcontext

            return nullcontext()

        def synchronize(self) -> None:
            pass

    monkeypatch.setattr(host_costs, "runtime_of", lambda _: Broken())
    rows = list(measure_hosts(MACHINE, "s"))
    failed = [row for row in rows if isinstance(row, FailedRow)]
    assert {row.what["host"] for row in failed} == {
        "dispatch",
        "launch",
        "graph_launch",
        "round_trip",
    }
    assert {row.reason for row in failed} == {"unsupported"}
    # waiting needs no tensor
    assert [row.quantity for row in rows if isinstance(row, HostRow)] == ["sync"]


def test_a_round_trip_is_a_period_less_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock: 5 us to launch, 2 us on the device, 19 us until its result is read."""
    torch = FakeCuda()
    torch.launch_s = 5e-6

    def add_(_: float) -> None:
        torch.kernel(2e-6)()

    def item() -> float:
        torch.now_s += 19e-6
        return 1.0

    class Event:
        """Of the device alone, to which all launches behind the spinning one are free."""

        def __init__(self, *, enable_timing: bool) -> None:
            assert enable_timing
            self.kernels = 0

        def record(self) -> None:
            self.kernels = torch.log.count("kernel")

        def elapsed_time(self, end: Event) -> float:
            return (end.kernels - self.kernels) * 2e-3

    monkeypatch.setattr(torch, "Event", Event)
    monkeypatch.setattr(
        torch, "randn", lambda *_, **__: SimpleNamespace(add_=add_, item=item), raising=False
    )
    monkeypatch.setattr(host_costs, "perf_counter_ns", lambda: torch.now_s * 1e9)
    host = host_costs._HostCosts(CudaRuntime(MACHINE, torch))
    assert host._round_trip()() == pytest.approx([24e-6])


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_nobody_to_talk_to_is_said(kind: Any) -> None:
    (row,) = measure_collectives(MeasuredMachine(kind, "", None, 1, 1), "s")
    assert isinstance(row, FailedRow)
    assert row.reason == "unsupported"


@pytest.mark.parametrize("op", OPS)
def test_bytes_are_those_of_nccl_tests(op: str) -> None:
    """The larger of a rank's input and output."""
    for size in BYTES:
        assert max(elements(op, size, 8)) * 2 == size
    given, taken = elements(op, 1 << 20, 8)
    ratio = {"all_gather": 8, "reduce_scatter": 1 / 8}.get(op, 1)
    assert taken == given * ratio


def test_rows_are_scenarios() -> None:
    table = {
        "op": "all_reduce", "bytes": 1024, "gpus": 2, "dtype": "bf16", "implementation": "nccl",
        "launch": "eager",
    }  # fmt: skip
    decode({"task": "collective", "device": "H100", "workload": table})
    assert counts(2) == [2]
