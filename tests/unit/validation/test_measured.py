"""A user's own rows beside predictions: what counts, what does not, and what is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from silicast.app.api import predict
from silicast.app.cli import main
from silicast.core.calibration import save_calibration
from silicast.core.errors import SilicastError
from silicast.measurement.calibrating.calibrate import calibrate
from silicast.measurement.records.records import (
    CollectiveRow,
    Columns,
    HostRow,
    KernelRow,
    Record,
    RepeatSpread,
    RunRow,
    Session,
)
from silicast.report.measurements.measured import measured_table
from silicast.validation.measured import MeasuredScore, score_measured

H100 = "H100-SXM-80GB"
SESSION = Session("s", "2026-11-22T00:00:00Z", device=H100)
SHAPES: list[Columns] = [
    {"op": "gemm", "m": m, "n": 4096, "k": k, "dtype": "bf16"}
    for m in (16, 64, 256, 1024, 4096)
    for k in (1024, 4096, 16384)
]
RUN: Columns = {
    "task": "graph", "model": "GPT-2", "engine": "torch-eager",
    "workload": {"batch": 1, "seq_len": 64},
}  # fmt: skip
REDUCE: Columns = {"op": "all_reduce", "bytes": 1 << 20, "gpus": 8}


def estimate(tree: dict[str, Any], metric: str) -> float:
    return predict({"device": H100, **tree})[metric].estimate


def kernels(factor: float = 1.25) -> list[KernelRow]:
    kernel_rows = []
    for index, shape in enumerate(SHAPES):
        latency = factor * estimate({"task": "kernel", "kernel": shape}, "latency_us")
        spread = RepeatSpread(0.95 * latency, 1.05 * latency, 9)
        kernel_rows.append(KernelRow("s", shape, latency, at=str(index), spread=spread))
    return kernel_rows


def written(path: Path, *records: Record) -> Path:
    path.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in (SESSION, *records)))
    return path


def text_of(score: MeasuredScore) -> str:
    console = Console(width=160, file=None, record=True, force_terminal=False)
    with console.capture() as captured:
        console.print(measured_table(score))
    return captured.get()


def test_every_kind_of_row_is_scored(tmp_path: Path) -> None:
    e2e_ms = estimate(RUN, "e2e_ms")
    latency = estimate({"task": "collective", "workload": REDUCE}, "latency_us")
    path = written(
        tmp_path / "m.jsonl",
        *kernels(),
        CollectiveRow("s", REDUCE, 2.0 * latency),
        HostRow("s", "dispatch", 16.0, "torch-eager"),
        RunRow("s", RUN, {"e2e_ms": 0.5 * e2e_ms}),
    )
    score = score_measured([path])
    by_name = {group.name: group for group in score.groups}
    assert [group.kind for group in score.groups] == ["kernels", "collectives", "host", "models"]
    gemm = by_name["gemm bf16"]
    assert (gemm.rows, gemm.unanswered) == (len(SHAPES), 0)
    assert gemm.after.median == pytest.approx(20.0)
    assert gemm.after.bias == pytest.approx(-20.0)
    assert gemm.noise == pytest.approx(2.1, abs=0.1)
    assert by_name["all_reduce nccl"].after.mean == pytest.approx(50.0)
    assert by_name["dispatch torch-eager"].after.mean == pytest.approx(50.0)  # 8 of 16 us
    assert by_name["graph torch-eager e2e_ms"].after.mean == pytest.approx(100.0)
    assert score.worst[0].case.kind == "models"
    assert "GPT-2 batch=1 seq_len=64" in text_of(score)


def test_a_row_without_a_prediction_is_all_off_and_said(tmp_path: Path) -> None:
    serving: Columns = {
        "task": "serving", "model": "GPT-2",
        "cluster": {"slow_gpus": {"fraction": 0.5, "slowdown": 2.0}},
        "workload": {"arrival": {"kind": "closed", "concurrency": 2}, "input_len": 8,
                     "output_len": 8},
    }  # fmt: skip
    path = written(
        tmp_path / "m.jsonl",
        RunRow("s", serving, {"ttft_p50_ms": 3.0}),
        KernelRow("s", {"op": "gem", "m": 3}, 4.0),
        KernelRow("s", {"op": "gemm", "m": 3, "n": 4, "k": -1}, 4.0, at="later"),
        HostRow("s", "request", 5.0, "no such engine"),
    )
    score = score_measured([path])
    assert sum(group.rows for group in score.groups) == 4
    for group in score.groups:
        assert group.unanswered == group.rows
        assert (group.after.mean, group.after.coverage) == (100.0, 0.0)
    shown = text_of(score)
    assert "not yet: slow devices" in shown
    assert "kernel.op" in shown
    assert "no such engine" in shown


@pytest.mark.parametrize(
    ("device", "silent"), [(H100, ("launch", "sync")), ("epyc-9654", ("dispatch", "launch"))]
)
def test_host_times_that_nothing_predicts_are_listed_and_not_scored(
    tmp_path: Path, device: str, silent: tuple[str, ...]
) -> None:
    remark = "dispatch" if "dispatch" not in silent else "step"
    engine = "torch-eager" if remark == "dispatch" else "vllm"
    rows = [HostRow("s", name, 5.0, at=name) for name in silent]
    path = tmp_path / "m.jsonl"
    records = (
        Session("s", "2026-11-22T00:00:00Z", device=device),
        *rows,
        HostRow("s", remark, 8.0, engine),
    )
    path.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in records))
    score = score_measured([path])
    assert [(group.name, group.rows) for group in score.groups] == [(f"{remark} {engine}", 1)]
    assert score.groups[0].unanswered == 0
    assert sum(score.unscored.values()) == len(silent)
    for name in silent:
        assert f"1 row not scored: host time '{name}'" in " ".join(text_of(score).split())


def test_fitted_rows_are_never_scored(tmp_path: Path) -> None:
    path = written(tmp_path / "m.jsonl", *kernels())
    made = tmp_path / "all.json"
    save_calibration(calibrate(path).calibration, made)
    with pytest.raises(SilicastError, match="all 15 rows were fitted"):
        score_measured([path], [made])
    # the same kernels timed again are no others
    again = written(tmp_path / "again.jsonl", *kernels(1.31))
    with pytest.raises(SilicastError, match="all 15 rows were fitted"):
        score_measured([again], [made])


def test_rows_held_out_are_scored_with_and_without(tmp_path: Path) -> None:
    path = written(tmp_path / "m.jsonl", *kernels())
    made = tmp_path / "half.json"
    result = calibrate(path, holdout=0.5, seed=3)
    save_calibration(result.calibration, made)
    score = score_measured([path], [made])
    (group,) = score.groups
    (part,) = result.calibration.left_out
    assert group.rows + score.fitted == len(SHAPES)
    assert group.before is not None
    assert group.before.mean == pytest.approx(20.0)
    assert group.after == part.after  # the same rows, the same figures
    assert f"{score.fitted} rows not scored" in text_of(score)


@pytest.mark.parametrize("kind", ["collective", "run", "host"])
def test_other_fitted_rows_are_told_by_what_ran(tmp_path: Path, kind: str) -> None:
    rows: dict[str, list[Record]] = {
        "collective": [CollectiveRow("s", {**REDUCE, "gpus": gpus}, 50.0) for gpus in (4, 8)],
        "host": [HostRow("s", "dispatch", 16.0, "torch-eager")],
        "run": [
            RunRow("s", {**RUN, "workload": {"batch": batch, "seq_len": 64}}, {"e2e_ms": 9.0})
            for batch in (1, 2, 3)
        ],
    }  # fmt: skip
    path = written(tmp_path / "m.jsonl", *rows[kind])
    made = tmp_path / "c.json"
    save_calibration(calibrate(path).calibration, made)
    with pytest.raises(SilicastError, match="were fitted"):
        score_measured([path], [made])


def test_a_table_needs_a_device_and_a_time(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("op,m,n,k,latency_us\ngemm,16,16,16,5\n")
    assert score_measured([path], device="h100").groups[0].rows == 1
    with pytest.raises(SilicastError, match="row 1 names no device"):
        score_measured([path])
    path.write_text("op,m,n,k,latency_us\ngemm,16,16,16,-5\n")
    with pytest.raises(SilicastError, match="no time above 0"):
        score_measured([path], device="h100")


def test_flagged_rows_count_only_when_asked(tmp_path: Path) -> None:
    busy = [msgspec.structs.replace(row, flags=["busy"]) for row in kernels()]
    path = written(tmp_path / "m.jsonl", *busy)
    with pytest.raises(SilicastError, match="15 rows flagged 'busy': left out"):
        score_measured([path])
    assert score_measured([path], keep_flagged=True).groups[0].rows == len(SHAPES)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "m.jsonl", *kernels())
    assert main(["validate", "--measured", str(path), "--json"]) == 0
    loads = json.loads(capsys.readouterr().out)
    assert loads["groups"][0]["figures"]["median"] == pytest.approx(20.0)
    assert loads["worst"][0]["scenario"]["kernel"]["op"] == "gemm"
    assert main(["validate", "--measured", str(path)]) == 0
    assert "gemm bf16" in capsys.readouterr().out
    assert main(["validate", "calibrated", "--measured", str(path)]) == 2
    assert main(["validate", "--calibration", "x.json"]) == 2
    assert "goes with --measured" in capsys.readouterr().err
