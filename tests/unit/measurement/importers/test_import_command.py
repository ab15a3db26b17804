"""`silicast import`: what it prints and writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from silicast.app.cli import main
from silicast.measurement.importers.files import import_files, save
from silicast.measurement.records.records import read_measurements
from silicast.scenario.decode import decode
from silicast.scenario.workloads import TrainingWorkload
from tests.unit.formats.training_configs.samples import SCRIPT, written
from tests.unit.measurement.importers import samples as s

Capture = pytest.CaptureFixture[str]


def test_a_trace(tmp_path: Path, capsys: Capture) -> None:
    path, rows = s.written(tmp_path, "t.json", s.gpu_trace()), tmp_path / "rows.jsonl"
    assert main(["import", str(path), "-o", str(rows)]) == 0
    shown = capsys.readouterr().out
    assert "PyTorch profiler (kineto), H100-SXM-80GB" in " ".join(shown.split())
    assert "gemm bf16: 1 row, measured 2 times" in shown
    assert "understood 77.5 % of 73.2 us" in shown  # 56.75 of 73.25
    assert "6.5 us, 1 x somebody_elses: no kernel that is known by its name" in shown
    stored = read_measurements(rows)
    assert {row.kernel["op"] for row in stored.kernels} == {
        "gemm", "elementwise", "attention_prefill"
    }  # fmt: skip
    assert len(stored.unread) == 5


def test_several_files_and_more_later(tmp_path: Path, capsys: Capture) -> None:
    first = s.written(tmp_path, "t.json", s.gpu_trace())
    second = s.nsys(tmp_path / "r.sqlite")
    third = s.written(tmp_path, "b.json", s.VLLM)
    rows = tmp_path / "rows.jsonl"
    assert main(["import", str(first), str(second), "-o", str(rows)]) == 0
    before = rows.read_bytes()
    stated = ["--device", "h100", "--set", "parallel.tp=2", "--set", "engine.version=0.10"]
    assert main(["import", str(third), "-o", str(rows), *stated]) == 0
    assert rows.read_bytes().startswith(before)
    stored = read_measurements(rows)
    assert len(stored.sessions) == 3
    assert stored.runs[0].scenario["engine"]["version"] == "0.10"
    assert main(["import", str(third), "-o", str(rows), *stated]) == 2
    assert "imported before" in capsys.readouterr().err


def test_files_are_added_together_or_not_at_all(tmp_path: Path) -> None:
    first = s.written(tmp_path, "t.json", s.gpu_trace())
    second = s.nsys(tmp_path / "r.sqlite")
    rows = tmp_path / "rows.jsonl"
    assert main(["import", str(first), "-o", str(rows)]) == 0
    before = rows.read_bytes()
    assert main(["import", str(second), str(first), "-o", str(rows)]) == 2
    assert rows.read_bytes() == before


def test_nothing_is_written_where_one_file_is_bad(tmp_path: Path, capsys: Capture) -> None:
    good = s.written(tmp_path, "t.json", s.gpu_trace())
    bad = s.written(tmp_path, "x", "hello")
    rows = tmp_path / "rows.jsonl"
    assert main(["import", str(good), str(bad), "-o", str(rows)]) == 2
    assert not rows.exists()
    assert main(["import", str(good), str(good), "-o", str(rows)]) == 2
    assert "holds the same" in capsys.readouterr().err
    assert not rows.exists()


def test_the_input_is_not_overwritten(tmp_path: Path, capsys: Capture) -> None:
    path = s.written(tmp_path, "t.json", s.gpu_trace())
    before = path.read_bytes()
    assert main(["import", str(path), "-o", str(path)]) == 2
    assert path.read_bytes() == before
    assert capsys.readouterr().err


def test_a_file_of_lists_alone_is_said_so(tmp_path: Path, capsys: Capture) -> None:
    path = s.written(tmp_path, "x.csv", s.NSYS_SUM)
    assert main(["import", str(path), "-o", str(tmp_path / "rows.jsonl")]) == 3
    out, err = capsys.readouterr()
    assert "understood 0.0 % of 10 us" in out
    assert "no row can be predicted" in err


def test_at_most_ten_unread_names_are_shown(tmp_path: Path, capsys: Capture) -> None:
    events = [s.on_device(f"kernel_{i}", 10 * i, 1.0 + i) for i in range(25)]
    path = s.written(tmp_path, "t.json", s.kineto(events))
    main(["import", str(path), "-o", str(tmp_path / "rows.jsonl")])
    lines = [line for line in capsys.readouterr().out.splitlines() if " x kernel_" in line]
    assert len(lines) == 10
    assert "25 us, 1 x kernel_24" in lines[0]
    assert len(read_measurements(tmp_path / "rows.jsonl").unread) == 25


def test_rows_are_the_same_every_time(tmp_path: Path) -> None:
    path = s.written(tmp_path, "t.json", s.gpu_trace())
    for name in ("a", "b"):
        save(import_files([path]), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert json.loads((tmp_path / "a").read_text().splitlines()[0])["record"] == "session"


def test_an_import_that_was_killed_is_finished(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    first = s.written(tmp_path, "a.json", s.gpu_trace())
    second = s.written(tmp_path, "b.json", s.kineto([s.on_device("kernel_1", 10, 1.0)]))
    save(import_files([second]), rows)
    start = len(rows.read_bytes().splitlines())
    save(import_files([first]), rows)
    whole = rows.read_bytes()
    for lines in (1, 3):
        rows.write_bytes(b"".join(whole.splitlines(keepends=True)[: start + lines]))
        save(import_files([first]), rows)
        assert rows.read_bytes() == whole


def test_a_device_is_no_path(tmp_path: Path) -> None:
    """A name in a file opens no other file."""
    (tmp_path / "x.toml").write_text("name = 1")
    trace = s.kineto(s.gpu_trace()["traceEvents"], (str(tmp_path / "x.toml"),))
    (result,) = import_files([s.written(tmp_path, "t.json", trace)])
    assert result.reading.session.device == ""


def test_a_pipe_is_refused(capsys: Capture, tmp_path: Path) -> None:
    assert main(["import", "/dev/null", "-o", str(tmp_path / "rows.jsonl")]) == 2
    assert "no regular file" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["parallel.tp"], ["=2"], ["seed=1", "seed=2"], ["model="], ["paralel.tp=2"]]
)
def test_a_field_that_is_no_field(tmp_path: Path, capsys: Capture, words: list[str]) -> None:
    path = s.written(tmp_path, "x", s.VLLM)
    stated = [part for word in words for part in ("--set", word)]
    assert main(["import", str(path), "-o", str(tmp_path / "rows.jsonl"), *stated]) == 2
    assert "--set" in capsys.readouterr().err
    assert not (tmp_path / "rows.jsonl").exists()


def test_a_training_configuration_becomes_a_scenario(tmp_path: Path, capsys: Capture) -> None:
    (script,) = written(tmp_path, run_sh=SCRIPT)
    target = tmp_path / "run.json"
    given = ["--device", "h100", "--set", "workload.recompute=full"]
    assert main(["import", str(script), "-o", str(target), *given]) == 0
    shown = capsys.readouterr().out
    assert "read as a configuration of Megatron-LM" in shown
    assert "not used: lr = 1e-4" in shown
    assert "device: not stated" not in shown
    made = decode(json.loads(target.read_text()))
    assert made.raw.device == "h100"
    assert made.raw.parallel.tp == 4
    assert isinstance(made.workload, TrainingWorkload)
    assert made.workload.recompute == "full"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--device", "nosuch"], "device: unknown device"),
        (["--device", "h100", "--set", "cluster.gpus=eight"], "cluster.gpus: expected"),
        (["--device", "h100", "--set", "nosuch=1"], "nosuch: unknown field"),
        (["--set", "workload.nosuch=1"], "workload.nosuch: unknown field"),
    ],
)
def test_what_is_stated_beside_a_configuration_is_checked(
    tmp_path: Path, capsys: Capture, flags: list[str], said: str
) -> None:
    (path,) = written(tmp_path, run_sh=SCRIPT)
    out = tmp_path / "run.json"
    status = main(["import", str(path), "-o", str(out), *flags])
    told = capsys.readouterr()
    assert (status, out.exists()) == (2, False)
    assert said in " ".join(told.err.split())


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--set", "model=nobodys/model"], "run.sh: model: unknown model 'nobodys/model'"),
        (["--set", "parallel.schedule=zbv"], "--set parallel."),
    ],
)
def test_what_could_not_be_run_is_not_imported(
    tmp_path: Path, capsys: Capture, flags: list[str], said: str
) -> None:
    (path,) = written(tmp_path, run_sh=SCRIPT)
    out = tmp_path / "run.json"
    assert main(["import", str(path), "-o", str(out), "--device", "h100", *flags]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not out.exists()


AXOLOTL = "base_model: meta-llama/Llama-3.1-8B\nsequence_len: 2048\nmicro_batch_size: 2\n"


@pytest.mark.parametrize(
    ("more", "flags", "said"),
    [
        ("", ["--run", "2"], "run.yml: run: has no run '2': it holds one run"),
        ('{"zero_optimization": {"st', [], "ds.json: does not go with"),
    ],
)
def test_what_a_configuration_has_no_use_for_is_refused(
    tmp_path: Path, capsys: Capture, more: str, flags: list[str], said: str
) -> None:
    pytest.importorskip("yaml")
    run, beside, out = (tmp_path / name for name in ("run.yml", "ds.json", "run.json"))
    run.write_text(AXOLOTL)
    beside.write_text(more)
    paths = [str(run), str(beside)] if more else [str(run)]
    assert main(["import", *paths, "-o", str(out), "--device", "h100", *flags]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not out.exists()


def test_a_scenario_is_no_text_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "ds.json"
    run.write_text('{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": 2}')
    assert main(["import", str(run), "-o", str(tmp_path / "x.txt")]) == 2
    told = capsys.readouterr().err
    assert "training configuration" in told
    assert "x.json" in told
