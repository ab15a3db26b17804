"""`--calibration FILE`, wherever a prediction is made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from silicast.app.cli import main
from silicast.core.calibration import Calibration, Offset, Scope, save_calibration

KERNEL = {"op": "gemm", "m": 4096, "n": 4096, "k": 4096}
MODEL = ["--model", "Llama-3.1-8B", "--input-len", "64", "--output-len", "4", "--json"]


@pytest.fixture
def slow(tmp_path: Path) -> str:
    """A calibration of an H100 whose products take three times as long."""
    path = tmp_path / "slow.json"
    save_calibration(Calibration(1, Scope("H100-SXM-80GB"), [Offset("gemm", 1.1, 0.02, 30)]), path)
    return str(path)


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(arguments) == 0
    return json.loads(capsys.readouterr().out)


def test_kernel_run_and_batch_agree(
    slow: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [f"{name}={value}" for name, value in KERNEL.items() if name != "op"]
    requested = ["kernel", "gemm", *words, "--device", "h100", "--json"]
    plain = answer(capsys, *requested)
    result = answer(capsys, *requested, "--calibration", slow)
    assert result["tier"] == "calibrated"
    times = [reply["metrics"]["latency_us"]["estimate"] for reply in (plain, result)]
    assert times[1] > 2.9 * times[0]
    case = {"task": "kernel", "device": "h100", "workload": {"kernel": KERNEL}}
    scenario, cases = tmp_path / "s.json", tmp_path / "c.jsonl"
    scenario.write_text(json.dumps(case))
    cases.write_text(json.dumps(case) + "\n" + "[]\n")
    assert answer(capsys, "run", str(scenario), "--json", "--calibration", slow) == result
    assert main(["batch", str(cases), "--calibration", slow]) == 3
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["metrics"] == result["metrics"]
    assert not second["ok"]


@pytest.mark.parametrize("command", ["infer", "explain"])
def test_whole_models(command: str, slow: str, capsys: pytest.CaptureFixture[str]) -> None:
    requested = [command, *MODEL, "--device", "h100"]
    plain, result = answer(capsys, *requested), answer(capsys, *requested, "--calibration", slow)
    times = [reply["metrics"]["prefill_ms"]["estimate"] for reply in (plain, result)]
    assert times[1] > 1.5 * times[0]


def test_compare_says_which_device_was_measured(
    slow: str, capsys: pytest.CaptureFixture[str]
) -> None:
    replies = answer(capsys, "compare", *MODEL, "--device", "h100,h200", "--calibration", slow)
    details = {reply["case"]: " ".join(reply["warnings"]) for reply in replies}
    assert "calibration measured" not in details["h100"]
    assert "measured on H100-SXM-80GB, used for H200" in details["h200"]


def test_several_files_the_last_goes_first(
    slow: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "quick.json"
    save_calibration(Calibration(1, Scope("H100"), [Offset("gemm", 0.0, 0.02, 30)]), other)
    save_calibration(Calibration(1, Scope("H100-SXM-80GB"), [Offset("gemm", 0.2, 0.02, 30)]), other)
    requested = ["kernel", "gemm", "m=4096", "n=4096", "k=4096", "--device", "h100", "--json"]
    alone = answer(capsys, *requested, "--calibration", str(other))
    both = answer(capsys, *requested, "--calibration", slow, "--calibration", str(other))
    assert both["metrics"] == alone["metrics"]


@pytest.mark.parametrize("name", ["none.json", ".", "rows.csv"])
def test_a_file_that_is_none_is_named(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.csv").write_text("op,m\ngemm,1\n")
    path = str(tmp_path / name)
    requested = ["kernel", "gemm", "m=8", "n=8", "k=8", "--device", "h100"]
    assert main([*requested, "--calibration", path]) == 2
    assert str(tmp_path) in capsys.readouterr().err


def test_a_file_that_is_no_calibration_stops_a_batch_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = tmp_path / "cases.jsonl"
    cases.write_text('{"task": "kernel"}\n', encoding="utf-8")
    target = tmp_path / "answers.jsonl"
    missing = str(tmp_path / "none.json")
    assert main(["batch", str(cases), "-o", str(target), "--calibration", missing]) == 2
    assert missing in capsys.readouterr().err
    assert not target.exists()
