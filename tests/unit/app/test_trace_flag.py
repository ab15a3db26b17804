"""`--trace FILE` of run and explain."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from silicast.app.cli import main
from tests.unit.report.trace_format import check_trace

SCENARIO = """
task = "inference"
model = "Qwen3-8B"
device = "h100"
workload = {batch = 1, input_len = 16, output_len = 2}
"""


@pytest.mark.parametrize("command", ["run", "explain"])
def test_a_trace_is_written_beside_the_answer(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario, target = tmp_path / "a.toml", tmp_path / "trace.json"
    scenario.write_text(SCENARIO)
    assert main([command, str(scenario)]) == 0
    plain = capsys.readouterr().out
    assert main([command, str(scenario), "--trace", str(target)]) == 0
    captured = capsys.readouterr()
    assert captured.out == plain
    assert "ui.perfetto.dev" in captured.err
    check_trace(json.loads(target.read_bytes()))


def test_flags_may_ask_for_a_trace_too(tmp_path: Path) -> None:
    target = tmp_path / "trace.json"
    flags = ["--model", "Qwen3-8B", "--device", "h100", "--output-len", "2"]
    assert main(["explain", *flags, "--trace", str(target)]) == 0
    check_trace(json.loads(target.read_bytes()))


def test_what_has_no_timeline_and_what_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = tmp_path / "a.toml"
    scenario.write_text(SCENARIO)
    missing = tmp_path / "none" / "trace.json"
    assert main(["run", str(scenario), "--trace", str(missing)]) == 2
    assert "cannot be written" in capsys.readouterr().err
    scenario.write_text(
        'task = "kernel"\ndevice = "h100"\nkernel = {op = "gemm", m = 1, n = 1, k = 1}'
    )
    assert main(["run", str(scenario), "--trace", str(tmp_path / "b.json")]) == 3
    assert "a timeline of task kernel" in capsys.readouterr().err
