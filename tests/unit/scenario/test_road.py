"""What is not answered yet is refused first, with what can be asked instead."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from silicast.app.api import predict
from silicast.app.cli import main
from silicast.core.errors import SilicastError
from silicast.scenario.road import FIELDS, PARTS, TASKS
from silicast.scenario.run import reply_to

PAGE = Path(__file__).parents[3] / "docs" / "road-map.md"
ALL = (*TASKS.values(), *FIELDS.values(), *PARTS.values())
COMMANDS = sorted({each.command for each in ALL})


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_that_is_offered_answers(
    command: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(command)[1:]) == 0
    assert capsys.readouterr().out


def test_the_page_lists_all() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name, coming in (*TASKS.items(), *FIELDS.items()):
        assert f"| `{name}` | {coming.missing} | {coming.instead}" in text
        assert coming.command in text
    for coming in PARTS.values():
        assert f"| {coming.missing.format('...')} | {coming.instead.format('...')}: " in text
        assert coming.command in text


@pytest.mark.parametrize("task", TASKS)
def test_a_task_is_refused_before_its_fields(task: str, capsys: pytest.CaptureFixture[str]) -> None:
    tree = {"task": task, "nonsense": [1], "device": "no such board"}
    reply = reply_to(tree)
    assert not reply.ok
    assert reply.error.kind == "not_yet"  # type: ignore[union-attr]
    assert TASKS[task].command in reply.error.hint  # type: ignore[union-attr]
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


TRAINING = {"seq_len": 2048, "micro_batch": 1, "global_batch": 8}
SERVING = {"arrival": {"kind": "closed", "concurrency": 2}, "input_len": 64, "output_len": 8}
H100 = {"model": "Llama-3.1-8B", "device": "h100"}
POOL = {"device": "h100", "count": 1}
NARROWER: list[dict[str, Any]] = [
    {
        **H100, "task": "plan",
        "workload": {"objective": "mfu", "inference": {"input_lens": [8], "output_len": 2}},
    },
    {
        **H100, "task": "plan", "parallel": {"schedule": "1f1b"},
        "workload": {"objective": "mfu", "training": TRAINING},
    },
    {**H100, "task": "training", "workload": {**TRAINING, "optimizer": "shampoo"}},
    {
        **H100, "task": "serving", "workload": SERVING, "lora": {"rank": 16, "adapters": 2},
        "speculative": {"method": "ngram", "k": 2, "acceptance": 0.5},
    },
    {
        "task": "serving", "workload": SERVING,
        "pools": {"a": {**POOL, "model": "Llama-3.1-8B"}, "b": {**POOL, "model": "Qwen3-8B"}},
    },
]  # fmt: skip


@pytest.mark.parametrize("tree", NARROWER, ids=range(len(NARROWER)))
def test_what_a_task_leaves_out_names_a_command(tree: dict[str, Any]) -> None:
    with pytest.raises(SilicastError, match="not yet") as caught:
        predict(tree)
    assert caught.value.kind == "not_yet"
    assert any(f"`{command}`" in caught.value.hint for command in COMMANDS)
