"""Files of measurements into calibrations: every kind of row, what is left out, what is checked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from rich.console import Console

from silicast.app.api import Predicted, predict
from silicast.composition.engines.engine import find_engine
from silicast.core.calibration import load_calibration, save_calibration
from silicast.core.errors import SilicastError
from silicast.measurement.calibrating.calibrate import CalibrationResult, calibrate
from silicast.measurement.records.dataset import read_dataset
from silicast.measurement.records.records import (
    CollectiveRow,
    Columns,
    FailedRow,
    HostRow,
    KernelRow,
    Record,
    RepeatSpread,
    RunRow,
    Session,
)
from silicast.report.measurements.calibration import accuracy_table, not_scored
from silicast.validation.measured import score_measured

H100 = "H100-SXM-80GB"
ENGINE = "torch-eager"
SHAPES: list[Columns] = [
    {"op": "gemm", "m": m, "n": n, "k": k, "dtype": "bf16"}
    for m in (16, 256, 2048)
    for n in (1024, 8192)
    for k in (1024, 4096, 16384)
]


def session(name: str = "s", device: str = H100, **more: Any) -> Session:
    return Session(name, "2026-11-22T00:00:00Z", device=device, **more)


def written(path: Path, *records: Record) -> Path:
    path.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in records))
    return path


def asked(tree: dict[str, Any]) -> Predicted:
    return predict({"device": H100, **tree})


def kernels(factor: float = 1.3, of: str = "s", **more: Any) -> list[KernelRow]:
    kernel_rows = []
    for index, shape in enumerate(SHAPES):
        latency = factor * asked({"task": "kernel", "kernel": shape})["latency_us"].estimate
        spread = RepeatSpread(0.97 * latency, 1.03 * latency, 20)
        kernel_rows.append(KernelRow(of, shape, latency, at=str(index), spread=spread, **more))
    return kernel_rows


def collectives(factor: float = 1.5, gpus: int = 8) -> list[CollectiveRow]:
    collective_rows = []
    for power in range(12, 30):
        work = {"op": "all_reduce", "bytes": 1 << power, "gpus": gpus}
        latency = factor * asked({"task": "collective", "workload": work})["latency_us"].estimate
        collective_rows.append(CollectiveRow("s", work, latency))
    return collective_rows


def runs(calibration: Path | None = None, noise: float = 0.01) -> list[RunRow]:
    rng = np.random.default_rng(0)
    run_rows = []
    for model in ("GPT-2", "Qwen2.5-0.5B", "Llama-3.2-1B", "TinyLlama-1.1B"):
        for batch, seq_len in ((1, 32), (16, 512)):
            tree: Columns = {
                "task": "graph", "model": model, "engine": ENGINE,
                "workload": {"batch": batch, "seq_len": seq_len},
            }  # fmt: skip
            known = {} if calibration is None else {"calibration": str(calibration)}
            e2e_ms = asked({**tree, **known})["e2e_ms"].estimate * math.exp(noise * rng.normal())
            run_rows.append(RunRow("s", tree, {"e2e_ms": e2e_ms}))
    return run_rows


def saved(calibration_result: CalibrationResult, path: Path) -> str:
    save_calibration(calibration_result.calibration, path)
    assert load_calibration(path) == calibration_result.calibration
    return str(path)


def test_kernels_of_a_session_need_no_device(tmp_path: Path) -> None:
    stack = {"torch": "2.13"}
    path = written(tmp_path / "m.jsonl", session(stack=stack, host="EPYC 9654"), *kernels())
    result = calibrate(path)
    assert result.calibration.scope.device == H100
    assert (result.calibration.scope.host, result.calibration.scope.stack) == ("EPYC 9654", stack)
    (offset,) = result.calibration.offsets
    assert offset.rows == len(SHAPES)
    (part,) = result.calibration.left_out
    assert (part.kind, part.rows, part.how) == ("kernels", len(SHAPES), "cross-validated")
    assert part.after.mean < 0.3 * part.before.mean
    assert part.noise == pytest.approx(1.24, abs=0.1)  # 0.67 of a spread of 1.8 %
    answer = asked(
        {"task": "kernel", "kernel": SHAPES[0], "calibration": saved(result, tmp_path / "c.json")}
    )
    assert answer.tier == "calibrated"
    assert answer.why["calibration"]["kernels"] == {"gemm bf16": len(SHAPES)}


def test_several_files_are_one_calibration(tmp_path: Path) -> None:
    rows = kernels()
    one = written(tmp_path / "one.jsonl", session(), *rows[:9])
    other = written(tmp_path / "other.jsonl", session(), *rows[9:])
    (offset,) = calibrate([one, other]).calibration.offsets
    assert offset.rows == len(rows)
    with pytest.raises(SilicastError, match=r"9 rows are copies of other rows.*of one.jsonl"):
        calibrate([one, other, one])


def test_a_table_and_a_file_of_measurements(tmp_path: Path) -> None:
    rows = kernels()
    table = tmp_path / "table.csv"
    lines = [",".join(map(str, [*row.kernel.values(), row.latency_us])) for row in rows[:9]]
    table.write_text("\n".join(["op,m,n,k,dtype,latency_us", *lines]) + "\n")
    path = written(tmp_path / "m.jsonl", session(), *rows[9:])
    assert calibrate([table, path], H100).calibration.offsets[0].rows == len(rows)
    with pytest.raises(SilicastError, match="row 1 states none"):
        calibrate([table, path])


def test_throttled_and_busy_rows_are_left_out_and_said(tmp_path: Path) -> None:
    rows = kernels()
    bad = [
        msgspec.structs.replace(row, at=f"late {index}")
        for index, row in enumerate(
            [*kernels(9.0, flags=["throttled"])[:3], *kernels(7.0, flags=["busy", "noisy"])[:2]]
        )
    ]
    doubtful = [msgspec.structs.replace(rows[0], flags=["drift"])]
    late = FailedRow("s", SHAPES[0], "out_of_memory")
    path = written(tmp_path / "m.jsonl", session(), *bad, *doubtful, *rows[1:], late)
    result = calibrate(path)
    assert result.calibration.offsets[0].rows == len(rows)
    assert "3 rows flagged 'throttled': left out" in result.notes
    assert "2 rows flagged 'busy': left out" in result.notes
    assert "1 row flagged 'drift': kept" in result.notes
    assert any("1 row without a time" in line for line in result.notes)


def test_rows_of_several_devices_need_a_choice(tmp_path: Path) -> None:
    other = session("a", "A100-SXM-80GB")
    rows = kernels()
    path = written(tmp_path / "m.jsonl", session(), other, *rows, *kernels(of="a")[:4])
    with pytest.raises(SilicastError, match=r"several devices: H100-SXM-80GB \(18 rows\)"):
        calibrate(path)
    with pytest.raises(SilicastError, match="4 rows are of another device"):
        calibrate(path, "H100")
    result = calibrate(path, "H100", skip_bad=True)
    assert result.calibration.offsets[0].rows == len(rows)


def test_host_times_are_applied_and_shown(tmp_path: Path) -> None:
    hosts = [
        HostRow("s", "dispatch", value, ENGINE, "2.13", {"operations": 100}, at=str(value))
        for value in (15.0, 16.0, 17.0)
    ]
    waits = [HostRow("s", "round_trip", 40.0, "torch-eager"), HostRow("s", "sync", 3.0)]
    path = written(tmp_path / "m.jsonl", session(), *hosts, *waits)
    result = calibrate(path)
    constants = {each.constant: each for each in result.calibration.constants}
    assert constants["dispatch_us"].value_us == pytest.approx(16.0)
    assert constants["dispatch_us"].states == {"operations": (100.0, 100.0)}
    assert (constants["round_trip_us"].engine, constants["round_trip_us"].value_us) == ("", 40.0)
    assert constants["sync_us"].value_us == pytest.approx(3.0)
    tree = {
        "task": "graph", "model": "GPT-2", "engine": ENGINE, "workload": {"batch": 1, "seq_len": 8}
    }  # fmt: skip
    name = saved(result, tmp_path / "c.json")
    plain, current = asked(tree), asked({**tree, "calibration": name})
    # a pass of launches: the call of each is twice as long, Python before it as long as ever
    host = find_engine(ENGINE).host
    slower = (16.0 + host.between_us) / (host.dispatch_us + host.between_us)
    assert slower == 1.5
    assert current["e2e_ms"].estimate / plain["e2e_ms"].estimate == pytest.approx(slower, rel=0.02)
    used = current.why["calibration"]["host_constants"]
    assert used["dispatch_us"] == pytest.approx(16.0)
    assert "sync_us" not in used
    assert current["e2e_ms"].p95 / current["e2e_ms"].p05 < plain["e2e_ms"].p95 / plain["e2e_ms"].p05
    unknown = HostRow("s", "magic", 1.0)
    with pytest.raises(SilicastError, match=r"no known quantity \(magic\)"):
        calibrate(written(tmp_path / "b.jsonl", session(), unknown))


def test_collectives_are_predicted_as_measured(tmp_path: Path) -> None:
    path = written(tmp_path / "m.jsonl", session(), *collectives())
    result = calibrate(path)
    (curve,) = result.calibration.collectives
    assert (curve.op, curve.implementation, curve.gpus, curve.nodes) == ("all_reduce", "nccl", 8, 1)
    assert curve.log_ratios == pytest.approx([math.log(1.5)] * len(curve.sizes))
    (part,) = result.calibration.left_out
    assert part.before.bias == pytest.approx(-33.3, abs=0.1)
    assert part.after.mean < 3.0  # the shortest and the longest have no neighbour
    work = {"op": "all_reduce", "bytes": 3_000_000, "gpus": 8}
    tree = {
        "task": "collective",
        "workload": work,
        "calibration": saved(result, tmp_path / "c.json"),
    }
    answer, plain = asked(tree), asked({"task": "collective", "workload": work})
    ratio = answer["latency_us"].estimate / plain["latency_us"].estimate
    assert ratio == pytest.approx(1.5)
    assert answer.tier == "calibrated"
    assert answer.why["calibration"]["collectives"] == ["all_reduce nccl graph x8"]
    fewer = asked({**tree, "workload": {**work, "gpus": 4}})
    assert fewer.tier != "calibrated"
    assert any("holds no such collective" in line for line in fewer.warnings)


def test_collectives_that_cannot_be_right_are_named(tmp_path: Path) -> None:
    rows = collectives()
    fast = msgspec.structs.replace(rows[-1], latency_us=rows[-1].latency_us / 20.0)
    unit = msgspec.structs.replace(rows[3], latency_us=rows[3].latency_us * 1e3)
    bad = msgspec.structs.replace(rows[4], collective={**rows[4].collective, "op": "all_reduc"})
    with pytest.raises(SilicastError) as caught:
        calibrate(written(tmp_path / "m.jsonl", session(), *rows[:3], unit, bad, fast))
    text = str(caught.value)
    assert "another unit" in text
    assert "faster than the links" in text
    assert "not understood" in text


def truth(folder: Path, factor: float, dispatch_us: float) -> Path:
    """A machine whose kernels take longer in whole models, and whose launches do."""
    from silicast.core.calibrated import HostConstant, InModels
    from silicast.core.calibration import FORMAT, Calibration, Scope

    made = Calibration(
        FORMAT, Scope(H100), [],
        constants=[HostConstant("dispatch_us", dispatch_us, 0.1, 1, engine=ENGINE)],
        models=[InModels(ENGINE, "eager", math.log(factor), 0.03, 1, (1, 2), tasks=["graph"])],
    )  # fmt: skip
    save_calibration(made, folder / "truth.json")
    return folder / "truth.json"


def test_runs_tell_launches_from_kernels(tmp_path: Path) -> None:
    rows = runs(truth(tmp_path, 1.2, 15.0))
    result = calibrate(written(tmp_path / "m.jsonl", session(stack={"torch": "2.13.1"}), *rows))
    (model,) = result.calibration.models
    assert (model.engine, model.tasks, model.rows, model.version) == (
        ENGINE,
        ["graph"],
        8,
        "2.13.1",
    )
    assert math.exp(model.log_ratio) == pytest.approx(1.2, rel=0.03)
    constants = {each.constant: each for each in result.calibration.constants}
    assert constants["dispatch_us"].value_us == pytest.approx(15.0, rel=0.05)
    assert constants["dispatch_us"].from_runs
    (part,) = result.calibration.left_out
    assert part.after.mean < 0.2 * part.before.mean
    tree = {**rows[0].scenario, "workload": {"batch": 2, "seq_len": 64}}
    answer = asked({**tree, "calibration": saved(result, tmp_path / "c.json")})
    wanted = asked({**tree, "calibration": str(tmp_path / "truth.json")})
    assert answer["e2e_ms"].estimate == pytest.approx(wanted["e2e_ms"].estimate, rel=0.04)
    assert answer.tier == "calibrated"
    assert answer.why["calibration"]["whole_models"]["runs"] == 8


def test_runs_that_are_predicted_well_move_nothing(tmp_path: Path) -> None:
    result = calibrate(written(tmp_path / "m.jsonl", session(), *runs(noise=0.03)))
    (model,) = result.calibration.models
    assert model.log_ratio == 0.0
    assert result.calibration.constants == []


def test_two_runs_are_too_few(tmp_path: Path) -> None:
    few = written(tmp_path / "m.jsonl", session(), *runs()[:2])
    with pytest.raises(SilicastError, match=r"2 runs of whole models; .* at least 3"):
        calibrate(few)
    with_kernels = written(tmp_path / "k.jsonl", session(), *kernels(), *runs()[:2])
    result = calibrate(with_kernels)
    assert result.calibration.models == []
    assert any("needs at least 3" in line for line in result.notes)


def test_what_nothing_predicts_yet_is_said(tmp_path: Path) -> None:
    work = {"batch": 1, "input_len": 64, "output_len": 2}
    tree = {"task": "inference", "model": "Llama-3.1-8B", "parallel": {"cp": 2}, "workload": work}
    later = RunRow("s", tree, {"total_ms": 9.0})
    result = calibrate(written(tmp_path / "m.jsonl", session(), *kernels(), later))
    assert any("1 time of runs not used" in line and "not yet" in line for line in result.notes)


def held_rows(calibration_result: CalibrationResult) -> int:
    return sum(part.rows for part in calibration_result.calibration.left_out)


@pytest.mark.parametrize("seed", [0, 1])
def test_half_can_be_held_out(tmp_path: Path, seed: int) -> None:
    path = written(tmp_path / "m.jsonl", session(), *kernels(), *collectives())
    result = calibrate(path, holdout=0.5, seed=seed)
    assert {part.how for part in result.calibration.left_out} == {"held out"}
    assert result.calibration.offsets[0].rows == len(SHAPES) // 2
    assert held_rows(result) == len(SHAPES) // 2 + 9
    again = calibrate(path, holdout=0.5, seed=seed)
    assert again.calibration == result.calibration
    other = calibrate(path, holdout=0.5, seed=seed + 7)
    assert other.calibration.offsets[0].repeats != result.calibration.offsets[0].repeats


@pytest.mark.parametrize("share", [-0.1, 1.0, math.nan])
def test_a_share_is_a_share(tmp_path: Path, share: float) -> None:
    path = written(tmp_path / "m.jsonl", session(), *kernels())
    with pytest.raises(SilicastError, match="expected a share"):
        calibrate(path, holdout=share)


def test_few_rows_say_how_many_are_needed(tmp_path: Path) -> None:
    result = calibrate(written(tmp_path / "m.jsonl", session(), *kernels()[:3]))
    assert any("only an offset: gemm bf16 (3); 16 well-spread" in line for line in result.notes)
    assert result.calibration.left_out == []


def test_several_versions_in_one_file_are_said(tmp_path: Path) -> None:
    sessions: Sequence[Session] = [
        session("s", stack={"torch": "2.12"}), session("t", stack={"torch": "2.13"})
    ]  # fmt: skip
    path = written(tmp_path / "m.jsonl", *sessions, *kernels()[:9], *kernels(of="t")[9:])
    remark = calibrate(path).notes
    assert "measured with several versions of torch: 2.12, 2.13" in remark


def test_the_reference_kernel_counts_once_a_session(tmp_path: Path) -> None:
    first = kernels()[4]
    times = [
        msgspec.structs.replace(first, latency_us=scale * first.latency_us, at=f"r{n}",
                                name="reference")
        for n, scale in enumerate((1.0, 1.3, 1.1, 1.2, 1.05))
    ]  # fmt: skip
    again = msgspec.structs.replace(times[1], session="t")
    path = written(tmp_path / "m.jsonl", session(), session("t"), *kernels(), *times, again)
    given = read_dataset([path])
    values = [each.row.values["latency_us"] for each in given.kernels[len(SHAPES) :]]
    assert values == pytest.approx([1.1 * first.latency_us, 1.3 * first.latency_us])
    (offset,) = calibrate(path).calibration.offsets
    assert offset.rows == len(SHAPES) + 2
    assert any("reference kernel counts once" in line for line in given.lines())
    score = score_measured([path])
    assert sum(group.rows for group in score.groups) == len(SHAPES) + 2


@pytest.mark.parametrize("holdout", [0.0, 0.5])
def test_rows_far_off_are_scored_if_their_repeats_agree(tmp_path: Path, holdout: float) -> None:
    rows = kernels()

    def far(index: int, **more: Any) -> KernelRow:
        latency = 30.0 * rows[index].latency_us
        spread = RepeatSpread(0.97 * latency, 1.03 * latency, 20)
        return msgspec.structs.replace(rows[index], latency_us=latency, spread=spread, **more)

    clean = [far(index) for index in range(0, len(rows), 3)]
    unsure = msgspec.structs.replace(far(1), spread=None)
    remaining = [row for index, row in enumerate(rows) if index % 3 and index != 1]
    path = written(tmp_path / "m.jsonl", session(), *remaining, *clean, unsure)
    with pytest.raises(SilicastError, match="rows contradict the others"):
        calibrate(path)
    result = calibrate(path, skip_bad=True, holdout=holdout)
    (part,) = result.calibration.left_out
    fitted = result.calibration.offsets[0].rows
    assert result.rejected.count == len(clean) + 1
    # nothing that is far off is fitted, and what is scored has it
    assert fitted == len(remaining) if not holdout else fitted < len(remaining)
    assert math.exp(result.calibration.offsets[0].log_offset) == pytest.approx(1.3, rel=0.1)
    assert part.before.p90 > 90.0
    if holdout:
        assert 0 < part.rows - (len(remaining) - fitted) <= len(clean)
    else:
        assert part.rows == len(remaining) + len(clean)
        assert result.unscored == {"that cannot be right": 1}
    (line, *_) = not_scored(result.unscored)
    assert line.startswith("not scored: ")


def test_a_row_that_is_too_fast_is_not_scored_either(tmp_path: Path) -> None:
    rows = kernels()
    fast = msgspec.structs.replace(rows[0], latency_us=rows[0].latency_us / 2000.0)
    path = written(tmp_path / "m.jsonl", session(), *rows[1:], fast)
    result = calibrate(path, skip_bad=True)
    assert result.calibration.left_out[0].rows == len(rows) - 1
    assert result.unscored == {"that cannot be right": 1}


def test_a_launch_is_kept_and_said_to_have_no_score(tmp_path: Path) -> None:
    launch = [HostRow("s", "launch", 5.0 + n, at=str(n)) for n in range(3)]
    result = calibrate(written(tmp_path / "m.jsonl", session(), *kernels(), *launch))
    assert result.unscored == {"of host times that nothing predicts by itself": 3}
    assert {part.kind for part in result.calibration.left_out} == {"kernels"}


def test_figures_of_whole_models_say_that_they_chose(tmp_path: Path) -> None:
    rows: list[Record] = [*runs(truth(tmp_path, 1.2, 15.0)), *kernels()]
    whole = calibrate(written(tmp_path / "m.jsonl", session(), *rows)).calibration
    how = {part.kind: part.how for part in whole.left_out}
    assert how == {"kernels": "cross-validated",
                   "models": "chosen and cross-validated on the same rows"}  # fmt: skip
    console = Console(width=200)
    with console.capture() as captured:
        console.print(accuracy_table(whole))
    shown = captured.get()
    assert "Rows cross-validated: no" in shown
    assert "Whole models, after: chosen and cross-validated on the same rows" in shown
