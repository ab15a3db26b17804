"""Lengths that nobody states: the same for commands, Python and scenarios."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import silicast
from silicast.app.cli import main
from silicast.app.commands.capacity import capacity_scenario
from silicast.app.flags import BatchFlags, inference_scenario
from silicast.app.serve_flags import ServeFlags, serving_scenario
from silicast.core.errors import SilicastError
from silicast.scenario.answer import Answer, Refusal
from silicast.scenario.decode import decode
from silicast.scenario.designs.design_models import compile_design
from silicast.scenario.reading.usual_lengths import usual_lengths
from silicast.scenario.run import reply_to

ENCODER: dict[str, Any] = {"input_len": 512, "output_len": 1}
ARRIVAL = {"kind": "poisson", "rate_per_s": 5.0}
OF: dict[str, Any] = {"model": "bert-base-uncased", "device": "h100"}


def _case(task: str, workload: dict[str, Any], model: str = "bert-base-uncased") -> dict[str, Any]:
    return {"task": task, "device": "h100", "model": model, "workload": workload}


@pytest.mark.parametrize("model", ["Llama-3.1-8B", "bert-base-uncased", "gpt2", "t5-base"])
def test_no_command_warns_about_its_own_lengths(model: str) -> None:
    result = silicast.infer(model=model, device="h100")
    assert not [line for line in result.warnings if "made for" in line]


def test_every_way_in_takes_the_same_lengths_of_an_encoder() -> None:
    batch = inference_scenario(BatchFlags(model=OF["model"]), {}, "h100")["workload"]
    requested = ServeFlags(**OF, rate=5.0, slo="e2e_p99=1s")
    traffic = serving_scenario(requested, {})["workload"]
    carried = capacity_scenario(requested, {})["workload"]["traffic"]
    for items in (batch, traffic, carried):
        assert {name: items[name] for name in ENCODER} == ENCODER
    stated = silicast.infer(**OF, **ENCODER)
    assert silicast.infer(**OF).predicted == stated.predicted
    assert silicast.sweep(**OF)[0].predicted == stated.predicted


@pytest.mark.parametrize(
    ("task", "workload", "place"),
    [
        ("inference", {"batch": 2, "input_len": 8}, ""),
        ("serving", {"arrival": ARRIVAL, "input_len": 8}, ""),
        (
            "capacity",
            {"objective": "max_rate", "slo": {"e2e_p99_ms": 50.0},
             "traffic": {"arrival": ARRIVAL, "input_len": 8}},
            "traffic",
        ),
        ("plan", {"objective": "latency", "inference": {"batch": 2, "input_len": 8}}, "inference"),
    ],
)  # fmt: skip
def test_a_scenario_of_an_encoder_need_not_say_that_it_generates_nothing(
    task: str, workload: dict[str, Any], place: str
) -> None:
    result: Any = decode(_case(task, workload)).workload
    assert (getattr(result, place) if place else result).output_len == 1


def test_a_pool_says_the_model_too() -> None:
    tree = {
        "task": "inference", "workload": {"batch": 2, "input_len": 8},
        "pools": {"all": {"device": "h100", "model": "bert-base-uncased"}},
    }  # fmt: skip
    workload: Any = decode(tree).workload
    assert workload.output_len == 1


@pytest.mark.parametrize("model", ["Llama-3.1-8B", "t5-base", "no-such-model"])
def test_a_scenario_of_another_model_must_say_it(model: str) -> None:
    reply = reply_to(_case("inference", {"batch": 2, "input_len": 8}, model))
    assert isinstance(reply, Refusal)
    assert (reply.error.field, reply.error.message) == ("workload.output_len", "is missing")


def test_tokens_that_are_asked_of_an_encoder_are_refused() -> None:
    with pytest.raises(SilicastError, match="generates no tokens"):
        silicast.infer(**OF, output_len=2)


def test_an_encoder_is_shown_without_tokens_and_their_steps(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["infer", "--model", "bert-base-uncased", "--device", "h100"]) == 0
    shown = capsys.readouterr().out
    assert "first token" not in shown
    assert "MHz in decode" not in shown
    assert main(["infer", "--model", "bert-base-uncased", "--device", "h100", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["why"]["clock_mhz"]) == ["prefill"]


@pytest.mark.full
def test_a_design_is_compiled_for_an_encoder(tmp_path: Path) -> None:
    file = tmp_path / "compiled.toml"
    count = compile_design("a100-nest", OF["model"], file, batches=[1], dtype="bf16", effort=200)
    assert count > 0
    assert "mapping" in file.read_text()


def test_room_names_no_batch_that_is_refused() -> None:
    reply = reply_to(_case("inference", {"batch": 1, "input_len": 512}))
    assert isinstance(reply, Answer)
    most = reply.why["room"]["batch"]
    assert isinstance(reply_to(_case("inference", {"batch": most, "input_len": 512})), Answer)
    assert isinstance(reply_to(_case("inference", {"batch": most + 1, "input_len": 512})), Refusal)


def test_what_is_no_length_goes_on_to_where_it_is_refused() -> None:
    result: Any = usual_lengths("gpt2", output_len="many")  # type: ignore[arg-type]
    assert result == {"input_len": 1024, "output_len": "many"}
