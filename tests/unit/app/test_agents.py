"""Tools for agents: numbers with all that belongs to them, and no number where none is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import silicast
from benchmarks.agent_exam import is_right, questions
from silicast.app.agents import tools
from silicast.app.agents.tools import stated
from silicast.scenario.answer import Answer, Belief

GEMM = {"op": "gemm", "m": 64, "n": 64, "k": 64, "dtype": "bf16"}
SCENARIO = {"task": "kernel", "device": "h100", "workload": {"kernel": GEMM}}


def test_each_number_has_unit_interval_tier_and_source() -> None:
    told = tools.predict(SCENARIO)
    assert told["status"] == "answered"
    wanted = silicast.predict(SCENARIO)["latency_us"]
    number = told["numbers"]["latency_us"]
    assert (number["estimate"], number["p05"], number["p95"]) == (
        wanted.estimate,
        wanted.p05,
        wanted.p95,
    )
    assert number["unit"] == "us"
    assert number["tier"] == told["tier"]
    assert silicast.__version__ in number["source"]


def _answer(domain: Any) -> Answer:
    beliefs = {"latency_us": Belief(2.0, 1.0, 3.0)}
    return Answer(None, True, beliefs, {}, "analytic", domain, [], {})


def test_outside_measured_ground_no_number_is_stated() -> None:
    assert "numbers" not in stated(_answer("out"))
    assert stated(_answer("out"))["status"] == "abstained"
    assert stated(_answer("near"))["numbers"]["latency_us"]["p95"] == 3.0
    assert "numbers" in stated(_answer("out"), accept_unmeasured=True)


@pytest.mark.parametrize("tool", [tools.predict, tools.explain])
def test_nothing_that_an_agent_says_opens_a_file(tool: Any, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "s3cret"}')
    told = tool({"task": "inference", "model": str(path), "device": "h100", "workload": {}})
    assert told["status"] == "refused"
    assert "s3cret" not in str(told)
    assert tools.compare(str(path), ["h100"])["status"] == "refused"
    assert tools.compare("Llama-3.1-8B", [str(path)])["status"] == "refused"


def test_names_are_resolved_or_the_nearest_offered() -> None:
    assert tools.resolve_names("h100", "device")["device"]["is"] == "H100-SXM-80GB"
    assert tools.resolve_names("h1000", "device")["device"]["is"] is None
    awq = "Llama-3.1-70B-Instruct-AWQ"  # in no catalog: its name says all
    assert tools.resolve_names(awq, "model")["model"]["is"] == awq
    assert tools.resolve_names("x" * 300)["status"] == "refused"


def test_the_exam_asks_every_tool_and_its_checks_can_fail() -> None:
    asked = questions()
    assert len(asked) == 30
    assert {each["tool"] for each in asked} == {tool.__name__ for tool in tools.TOOLS}
    passed = [all(is_right({}, check) for check in question["check"]) for question in asked]
    assert sum(passed) == 1, "one asks that there is nothing of a name"
    assert is_right({"a": [{"b": 3}]}, {"path": "a.0.b", "least": 3, "most": 3})
    assert not is_right({"a": 3}, {"path": "a", "least": 4})
