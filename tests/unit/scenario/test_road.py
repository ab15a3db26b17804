"""What is not answered yet is refused first, with what can be asked instead."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from silicast.app.api import predict
from silicast.app.cli import main
from silicast.core.errors import SilicastError
from silicast.scenario.road import FIELDS, TASKS
from silicast.scenario.run import reply_to

PAGE = Path(__file__).parents[3] / "docs" / "road-map.md"
COMMANDS = sorted({each.command for each in (*TASKS.values(), *FIELDS.values()) if each.command})


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_that_is_offered_answers(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(shlex.split(command)[1:]) == 0
    assert capsys.readouterr().out


def test_the_page_lists_all() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name, coming in (*TASKS.items(), *FIELDS.items()):
        assert f"| `{name}` | {coming.missing} | {coming.instead}" in text
        assert coming.command in text


@pytest.mark.parametrize("task", TASKS)
def test_a_task_is_refused_before_its_fields(task: str, capsys: pytest.CaptureFixture[str]) -> None:
    tree = {"task": task, "nonsense": [1], "device": "no such board"}
    reply = reply_to(tree)
    assert not reply.ok
    assert reply.error.kind == "not_yet"  # type: ignore[union-attr]
    assert (TASKS[task].command or "?") in reply.error.hint  # type: ignore[union-attr]
    with pytest.raises(SilicastError, match="not yet"):
        predict(tree)
    assert main([task, "--model", "x"]) == 3
    assert "today: " in capsys.readouterr().err


def test_a_field_that_a_task_does_not_take_names_another_way() -> None:
    scenario = {
        "task": "inference", "model": "Llama-3.1-8B", "device": "h100", "parallel": {"dp": 2},
        "workload": {"batch": 1, "input_len": 8, "output_len": 2},
    }  # fmt: skip
    with pytest.raises(SilicastError) as caught:
        predict(scenario)
    assert caught.value.kind == "not_yet"
    assert "silicast serve" in caught.value.hint
