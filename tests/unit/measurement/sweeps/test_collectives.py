"""Collectives: their rows say what models ask for, and what any process says that failed."""

from __future__ import annotations

import queue
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from silicast.communication.collective import collective_batch_times
from silicast.core.calibrated import CollectiveCurve
from silicast.hardware.catalog import find_device
from silicast.measurement.machine.measured_machine import MeasuredMachine
from silicast.measurement.records.records import CollectiveRow, FailedRow
from silicast.measurement.sweeps import collectives
from silicast.measurement.sweeps.collectives import BYTES, OPS, measure_collectives
from silicast.workload.graphs.op import OpBatch, Variant

TWO = MeasuredMachine("cuda", "", None, 132, 1 << 37, count=2)


class Threads:
    """Processes that are threads, and the modules that they import.

    Attributes:
        broken: ranks that cannot join the others; they leave rank 0 waiting.
    """

    def __init__(self, broken: tuple[int, ...] = ()) -> None:
        self.broken = broken
        self.cuda = SimpleNamespace(set_device=lambda rank: None)
        self.ended = threading.Event()

    def import_module(self, name: str) -> Any:
        assert name.startswith("torch")
        return self

    def get_context(self, method: str) -> Any:
        assert method == "spawn"
        return SimpleNamespace(Queue=queue.Queue, Process=self._process)

    def _process(self, target: Any, args: Any, daemon: bool) -> Any:
        thread = threading.Thread(target=target, args=args, daemon=daemon)
        thread.terminate = self.ended.set  # type: ignore[attr-defined]
        return thread

    def init_process_group(self, backend: str, *, rank: int, **_: object) -> None:
        assert backend == "nccl"
        if rank in self.broken:
            raise RuntimeError(f"no NCCL on {rank}")
        if self.broken:
            self.ended.wait(20.0)

    def destroy_process_group(self) -> None:
        pass


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collectives, "END_S", 0.2)
    monkeypatch.setattr(collectives, "_timed", lambda *_: [2e-5, 2e-5, 2e-5])


def test_rows_speak_for_the_collectives_of_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collectives, "importlib", Threads())
    rows = [row for row in measure_collectives(TWO) if isinstance(row, CollectiveRow)]
    assert len(rows) == len(OPS) * len(BYTES)
    table = rows[0].collective
    curve = CollectiveCurve(
        table["op"], table["implementation"], table["launch"], 2, 1, [1024, 1 << 28], [0.3, 0.3],
        0.03, 8,
    )  # fmt: skip
    dims = {"bytes": np.array([1 << 20]), "gpus": np.array([2])}
    batch = OpBatch(table["op"], Variant("bf16", launch="stream", library="nccl"), dims)
    plain, result = (
        collective_batch_times(batch, find_device("H100"), measured=measured)
        for measured in ((), (curve,))
    )
    assert result.estimate_s / plain.estimate_s == pytest.approx([np.exp(0.3)])


@pytest.mark.parametrize("broken", [(0,), (1,)])
def test_any_process_that_fails_is_heard(
    broken: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collectives, "importlib", Threads(broken))
    (row,) = measure_collectives(TWO)
    assert isinstance(row, FailedRow)
    assert f"rank {broken[0]}: RuntimeError: no NCCL on {broken[0]}" in row.message


def test_nobody_answering_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collectives, "importlib", Threads())
    monkeypatch.setattr(collectives, "WAIT_S", 0.1)
    monkeypatch.setattr(collectives, "_rank", lambda *_: None)
    (row,) = measure_collectives(TWO)
    assert isinstance(row, FailedRow)
    assert "no process answered within 0.1 s" in row.message
