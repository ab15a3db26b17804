"""Whole models: rows, what is skipped, what fails, and that a file is continued."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="measuring models needs torch (extra `torch`)")

from silicast.core.errors import SilicastError  # noqa: E402
from silicast.measurement.machine.conditions import watch_of  # noqa: E402
from silicast.measurement.machine.measured_machine import MeasuredMachine  # noqa: E402
from silicast.measurement.models import runner  # noqa: E402
from silicast.measurement.models.model_case import ModelCall, ModelCase, Place, Sizes  # noqa: E402
from silicast.measurement.models.python_overhead import python_overhead  # noqa: E402
from silicast.measurement.models.runner import FEWEST, WARM_UP, repeated  # noqa: E402
from silicast.measurement.records.records import (  # noqa: E402
    Columns,
    FailedRow,
    RunRow,
    Session,
    read_measurements,
)
from silicast.measurement.records.store import MeasurementFile  # noqa: E402
from silicast.measurement.sweeps.runtime import runtime_of  # noqa: E402
from silicast.measurement.sweeps.session import MeasuringSession, SessionResult, Tools  # noqa: E402
from silicast.scenario.decode import decode  # noqa: E402
from silicast.scenario.run import run  # noqa: E402

DEVICE = "EPYC 7742"
MACHINE = MeasuredMachine(
    "cpu", "a CPU", None, 1, 1 << 34, torch=str(torch.__version__), named=DEVICE
)


def linear(position: Place, sizes: Sizes) -> ModelCall:
    module = torch.nn.Linear(sizes["width"], sizes["width"], dtype=position.torch_dtype())
    return ModelCall(module, (torch.randn(2, sizes["width"]),))


def broken(position: Place, sizes: Sizes) -> ModelCall:
    if position.device == "meta":
        return linear(position, sizes)
    raise RuntimeError("out of memory: no room for it")


SIZES = {"width": 8}
GOOD = ModelCase("toy-good", linear, SIZES, "small")
BAD = ModelCase("toy-bad", broken, SIZES, "small")
LARGE_ONE = ModelCase("toy-large", linear, SIZES, "large")


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {case.name: case for case in (BAD, GOOD, LARGE_ONE)}
    monkeypatch.setattr(runner, "model_cases", lambda: table)
    monkeypatch.setattr(runner, "SHORTEST_S", 0.0)
    monkeypatch.setattr(runner, "LONGEST_S", 0.0)


def measured(path: Path, **requested: Any) -> list[runner.Row]:
    with MeasurementFile.open(path, Session("one", "2026-01-01T00:00:00")) as file:
        return runner.measure_models(MACHINE, file, modes=["eager"], **requested)


def test_a_row_is_a_scenario_that_is_answered_where_the_file_is(tmp_path: Path) -> None:
    measured(tmp_path / "here.jsonl", names=["toy-good"])
    (row,) = read_measurements(tmp_path / "here.jsonl").runs
    assert row.name == "toy-good-fp32 eager"
    assert row.scenario["device"] == DEVICE
    assert row.scenario["engine"] == "torch-eager"
    assert row.scenario["workload"] == {"graph": "here.graphs/toy-good-fp32.json"}
    spread = row.spread["e2e_ms"]
    assert spread.p05 <= row.metrics["e2e_ms"] <= spread.p95
    assert spread.repeats >= FEWEST
    answer = run(decode(row.scenario, folder=tmp_path))
    assert answer.metrics["e2e_ms"].estimate > 0.0
    nodes = json.loads(tmp_path.joinpath("here.graphs/toy-good-fp32.json").read_text())["nodes"]
    assert [node["op"] for node in nodes] == ["gemm"]


def test_a_steady_run_is_not_flagged_and_an_unsteady_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for times, flagged in (([0.010] * 20, False), ([0.002] * 10 + [0.010] * 20, True)):
        monkeypatch.setattr(runner, "repeated", lambda *_, found=times: found)
        path = tmp_path / f"{flagged}.jsonl"
        measured(path, names=["toy-good"])
        (row,) = read_measurements(path).runs
        assert ("unsteady" in row.flags) is flagged


def test_graphs_come_before_what_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "runtime_of", lambda _: runtime_of(MACHINE))
    monkeypatch.setattr(runner, "watch_of", lambda _: watch_of(MACHINE))
    gpu = replace(MACHINE, kind="cuda")
    with MeasurementFile.open(tmp_path / "x.jsonl", Session("one", "2026-01-01")) as file:
        rows = runner.measure_models(gpu, file, budget_s=-1.0)
    assert [row.mode for row in rows if isinstance(row, runner.Skipped)] == [
        "eager", "graph", "compiled",
    ]  # fmt: skip


LOST = "CUDA error: unspecified launch failure"


def test_a_lost_device_ends_the_models_and_they_are_tried_again(tmp_path: Path) -> None:
    path, clock = tmp_path / "here.jsonl", iter(range(10_000))
    tried: list[str] = []

    def lost(position: Place, sizes: Sizes) -> ModelCall:
        if position.device != "meta":
            tried.append(position.device)
            raise RuntimeError(LOST)
        return linear(position, sizes)

    def session() -> SessionResult:
        def models(file: MeasurementFile, seconds: float, tell: Any) -> object:
            def told(row: runner.Row) -> None:
                if isinstance(row, (RunRow, FailedRow)):
                    tell(row)

            return runner.measure_models(MACHINE, file, modes=["eager"], tell=told)

        def none(kernel: Columns) -> FailedRow:
            return FailedRow("", kernel, "error")

        with MeasurementFile.open(path, Session("one", "2026-01-01T00:00:00")) as file:
            tools = Tools(none, models=models)
            return MeasuringSession(file, tools, 1000.0, clock=lambda: float(next(clock))).run()

    with pytest.MonkeyPatch.context() as patch:
        table = {case.name: case for case in (ModelCase("toy-lost", lost, SIZES, "small"), GOOD)}
        patch.setattr(runner, "model_cases", lambda: table)
        for attempt in (1, 2):
            assert "run the command again" in session().ended
            assert len(tried) == attempt
            assert read_measurements(path).runs == ()
        assert session().ended == ""  # what loses the device each time is left
    assert len(tried) == 2
    assert [row.name for row in read_measurements(path).runs] == ["toy-good-fp32 eager"]


def test_what_fails_is_a_row_and_the_others_are_measured(tmp_path: Path) -> None:
    rows = measured(tmp_path / "here.jsonl")
    failed, good = rows
    assert isinstance(failed, FailedRow)
    assert failed.reason == "out_of_memory"
    assert "no room" in failed.message
    assert isinstance(good, RunRow)
    assert read_measurements(tmp_path / "here.jsonl").failed == (failed,)


def test_a_file_is_continued_without_measuring_anything_twice(tmp_path: Path) -> None:
    path = tmp_path / "here.jsonl"
    assert len(measured(path)) == 2
    before = path.read_bytes()
    assert measured(path) == []
    assert path.read_bytes() == before


def test_without_time_nothing_is_measured_and_each_says_so(tmp_path: Path) -> None:
    rows = measured(tmp_path / "here.jsonl", budget_s=-1.0)
    assert [row.why for row in rows if isinstance(row, runner.Skipped)] == [
        "the time budget is used up"
    ] * 2
    assert read_measurements(tmp_path / "here.jsonl").runs == ()


def test_python_between_operations_is_measured_once(tmp_path: Path) -> None:
    path = tmp_path / "here.jsonl"
    measured(path, names=["toy-good"])
    measured(path)
    (host,) = read_measurements(path).hosts
    assert (host.quantity, host.engine) == ("between", "torch-eager")
    assert host.value_us > 0.0


def test_the_layer_between_whose_calls_python_is_measured_has_these_calls() -> None:
    """26 operations, as the trace of the decoder's layer has (test_programs)."""
    threads = torch.get_num_threads()
    result = python_overhead()
    assert result.operations == 26
    assert result.p05_us <= result.p95_us
    assert torch.get_num_threads() == threads


def test_a_cpu_takes_small_models_and_a_gpu_large_ones() -> None:
    assert [case.name for case in runner.chosen(MACHINE)] == ["toy-bad", "toy-good"]
    gpu = replace(MACHINE, kind="cuda")
    assert [case.name for case in runner.chosen(gpu)] == ["toy-large"]
    assert [case.name for case in runner.chosen(MACHINE, ["toy-large"])] == ["toy-large"]
    with pytest.raises(SilicastError, match="no model is called 'tree'"):
        runner.chosen(MACHINE, ["tree"])


def test_models_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("a-1", "a-2", "a-3", "b-1", "c-1", "c-2")
    monkeypatch.setattr(runner, "model_cases", lambda: {n: replace(GOOD, name=n) for n in names})
    items = [case.name for case in runner.chosen(MACHINE)]
    assert items == ["a-1", "b-1", "c-1", "a-2", "c-2", "a-3"]


def test_modes_that_a_machine_has_not_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    program = linear(Place("cpu", "fp32"), SIZES)
    gpu = replace(MACHINE, kind="cuda")
    assert program.why_not("eager", MACHINE) == ""
    assert "CUDA" in program.why_not("graph", MACHINE)
    assert replace(program, not_captured="it syncs").why_not("graph", gpu) == "it syncs"
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert "C++ compiler" in program.why_not("compiled", MACHINE)
    monkeypatch.setattr("shutil.which", lambda name: name == "g++")
    assert program.why_not("compiled", MACHINE) == ""
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert "Triton" in program.why_not("compiled", gpu)
    assert replace(program, not_compiled="values").why_not("compiled", MACHINE) == "values"


def test_repeats_go_on_until_the_time_is_over() -> None:
    clock = iter(range(1000))
    calls: list[int] = []
    times = repeated(lambda: calls.append(1), lambda: None, 20.0, lambda: float(next(clock)))
    assert times == [1.0] * 8
    assert len(calls) == 8 + WARM_UP
    clock = iter(range(1000))
    few = repeated(lambda: None, lambda: None, 0.0, lambda: float(next(clock)))
    assert len(few) == FEWEST
