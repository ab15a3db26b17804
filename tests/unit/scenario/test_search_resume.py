"""A search of plans that was interrupted goes on where it was, to the same bytes."""

from __future__ import annotations

import json
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec
import pytest

from silicast.app.cli import main
from silicast.core.errors import SilicastError
from silicast.distributed.search.search_file import Priced, SearchFile
from silicast.scenario.answerer import ProgressWatch
from silicast.scenario.answers.plan.answerer import best_plan
from silicast.scenario.decode import decode

FINALISTS, KILLED_AT = 5, 2
TREE: dict[str, Any] = {
    "format": 1, "task": "plan", "model": "Llama-3.2-1B", "device": "h100", "cluster": {"gpus": 4},
    "workload": {"objective": "step_time", "training": {"seq_len": 1024, "global_batch": 8}},
}  # fmt: skip
STOPPED = f"""
import json, pathlib, sys, time
from silicast.scenario.answers.plan.answerer import best_plan
from silicast.scenario.decode import decode
from silicast.scenario.answerer import ProgressWatch

def done(number, total):
    if number == {KILLED_AT}:
        print("now", flush=True)
        time.sleep(600)

watch = ProgressWatch(searched=done, resume=pathlib.Path(sys.argv[2]))
best_plan(decode(json.loads(sys.argv[1])), watch, {FINALISTS})
"""


def answer(
    resume: Path | None = None, tree: dict[str, Any] = TREE, finalists: int = FINALISTS
) -> bytes:
    reply, _ = best_plan(decode(deepcopy(tree)), ProgressWatch(resume=resume), finalists)
    return msgspec.json.encode(reply)


def plans_in(path: Path) -> dict[str, Any]:
    plans: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["plans"]
    return plans


def test_a_killed_search_goes_on_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "search.json"
    requested = [sys.executable, "-c", STOPPED, json.dumps(TREE), str(path)]
    with subprocess.Popen(requested, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"now\n"
        run.kill()
    assert len(plans_in(path)) == KILLED_AT
    assert list(tmp_path.iterdir()) == [path]
    priced: list[str] = []
    write = SearchFile.__setitem__

    def seen(self: SearchFile, key: str, value: Priced) -> None:
        priced.append(key)
        write(self, key, value)

    monkeypatch.setattr(SearchFile, "__setitem__", seen)
    assert answer(path) == answer()
    assert len(priced) == FINALISTS - KILLED_AT
    remaining = path.read_bytes()
    assert answer(path) == answer()  # the best plan's details are predicted once more
    assert path.read_bytes() == remaining
    assert answer(path, finalists=FINALISTS + 1) == answer(finalists=FINALISTS + 1)
    assert len(plans_in(path)) == FINALISTS + 1


def test_another_search_is_refused_with_the_field_that_differs(tmp_path: Path) -> None:
    path = tmp_path / "search.json"
    answer(path, finalists=1)
    remaining = path.read_bytes()
    longer = deepcopy(TREE)
    longer["workload"]["training"]["seq_len"] = 2048
    for tree, field, remarks in (
        (longer, "scenario.workload.training.seq_len", "1024 there, 2048 here"),
        ({**TREE, "device": "h200"}, "scenario.device", "'h100' there, 'h200' here"),
        ({**TREE, "host": {"factor": 2.0}}, "scenario.host", "nothing there"),
    ):
        with pytest.raises(SilicastError, match="holds another search") as refused:
            answer(path, tree)
        assert refused.value.field == field
        assert remarks in refused.value.message
    assert path.read_bytes() == remaining
    assert answer(path, {**TREE, "id": "named"}, 1) == answer(finalists=1)  # decides nothing


def test_what_a_named_file_says_is_part_of_the_search(tmp_path: Path) -> None:
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 512,
        "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 8,
        "intermediate_size": 1024, "vocab_size": 4096, "torch_dtype": "bfloat16",
    }  # fmt: skip
    model, path = tmp_path / "config.json", tmp_path / "search.json"
    tree = {**TREE, "model": str(model)}
    model.write_text(json.dumps(config), encoding="utf-8")
    answer(path, tree, 1)
    model.write_text(json.dumps({**config, "intermediate_size": 2048}), encoding="utf-8")
    with pytest.raises(SilicastError) as refused:
        answer(path, tree, 1)
    assert refused.value.field == "resolved"


def test_other_code_or_numbers_make_another_search(tmp_path: Path) -> None:
    path = tmp_path / "search.json"
    answer(path, finalists=1)
    content = json.loads(path.read_text(encoding="utf-8"))
    content["inputs"]["package"] = "0" * 16
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(SilicastError, match="there, ") as refused:
        answer(path, finalists=1)
    assert refused.value.field == "package"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "holds no search"),
        (b"[1]", "holds no search"),
        (b'{"kind": "other", "format": 1, "inputs": {}, "plans": {}}', "holds 'other' of format 1"),
        (b'{"kind": "search of plans", "format": 1, "inputs": {}, "plans": {"a": {"x": 1}}}',
         "holds no search"),
    ],
)  # fmt: skip
def test_a_file_that_is_none_is_left_alone(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "search.json"
    path.write_bytes(content)
    with pytest.raises(SilicastError, match=said) as refused:
        SearchFile.open(path, {})
    assert refused.value.file == str(path)
    assert path.read_bytes() == content
    with pytest.raises(SilicastError, match="is a folder"):
        SearchFile.open(tmp_path, {})


def test_one_plan_has_nothing_to_resume(capsys: pytest.CaptureFixture[str]) -> None:
    requested = "train --model Llama-3-8B --device h100 --gpus 8 --tp 2 --resume a.json"
    assert main(requested.split()) != 0
    assert "--resume: one plan is predicted" in capsys.readouterr().err
