"""`silicast diff`: files, answers, fields set for B, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from silicast.app.cli import main

SCENARIO = """
task = "inference"
model = "Qwen3-8B"
device = "h100"
workload = {batch = 4, input_len = 128, output_len = 8}
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "a.toml"
    path.write_text(SCENARIO)
    return path


def test_fields_set_for_b(scenario: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", str(scenario), "--set", "device=h200", "--json"]) == 0
    loads = json.loads(capsys.readouterr().out)
    assert loads["changed"] == {"device": {"a": "h100", "b": "h200"}}
    assert loads["causes_known"]
    assert sum(loads["causes_ms"].values()) == pytest.approx(loads["change_ms"], abs=1e-9)
    picoseconds = [round(part["change_ms"] * 1e9) for part in loads["parts"]]
    assert sum(picoseconds) == round(loads["change_ms"] * 1e9)
    assert loads["metrics"]["total_ms"]["larger_than_uncertainty"] in (True, False)


def test_an_answer_against_a_scenario(
    scenario: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(scenario), "--json"]) == 0
    stored = tmp_path / "a.json"
    stored.write_text(capsys.readouterr().out)
    assert main(["diff", str(stored), str(scenario)]) == 0
    assert "no difference" in capsys.readouterr().out
    assert main(["diff", str(stored), str(scenario), "--of", "decode_step", "--markdown"]) == 0
    assert "| part |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give a second file, or --set"),
        (["--set", "device"], "expected key=value"),
        (["--set", "device=h1000"], "unknown device"),
        (["--set", "model.layers=3"], "has no fields"),
        (["--set", "device=a100", "--of", "nothing"], "no part 'nothing'"),
        (["--set", "device=a100", "--json", "--markdown"], "keep one of them"),
    ],
)
def test_what_is_refused(
    scenario: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert main(["diff", str(scenario), *arguments]) == 2
    captured = capsys.readouterr()
    assert words in captured.err + captured.out


def test_an_answer_cannot_be_changed_and_a_refusal_not_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = tmp_path / "answer.json"
    stored.write_text('{"ok": true, "metrics": {}, "why": {}}')
    assert main(["diff", str(stored), "--set", "device=h100"]) == 2
    assert "cannot be changed" in capsys.readouterr().err
    stored.write_text('{"ok": false, "error": {}}')
    assert main(["diff", str(stored), str(stored)]) == 2
    assert "holds no answer but a refusal" in capsys.readouterr().err
    stored.write_text('{"ok": true, "metrics": 1}')
    assert main(["diff", str(stored), str(stored)]) == 2
    assert "is no answer" in capsys.readouterr().err
