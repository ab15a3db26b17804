"""Cascades by confidence, and stages that draft and verify."""

from __future__ import annotations

from typing import Any

import pytest

from silicast.scenario.answer import Answer, Refusal
from silicast.scenario.run import reply_to

SMALL = {"device": "L40S", "model": "Qwen3-4B", "engine": "vllm"}
LARGE = {"device": "H100", "model": "Llama-3.1-8B", "engine": "vllm"}
LENGTHS = {"input_len": 300, "output_len": 30}
DRAFTS = {"method": "draft", "draft": "Llama-3.2-1B", "k": 3, "acceptance": [0.8, 0.7, 0.6]}


def workflow(stages: dict[str, Any], **work: Any) -> Answer | Refusal:
    pools = {"small": SMALL, "large": LARGE}
    used = {name: pool for name, pool in pools.items() if f"'{name}'" in str(stages)}
    tree = {"task": "workflow", "seed": 3, "pools": used}
    return reply_to(tree | {"workload": {"stages": stages, "requests": 20, **work}})


def cascade(below: float, **more: Any) -> Answer | Refusal:
    """A threshold on four answers of the small model: of 0.9, 0.7, 0.6 and 0.2."""
    second = {"pool": "large", "work": "generate", "after": ["first"], **LENGTHS}
    second["escalates"] = {"below": below, "confidence": [0.9, 0.7, 0.6, 0.2]}
    return workflow(
        {"first": {"pool": "small", "work": "generate", **LENGTHS}, "second": second | more}
    )


def test_a_threshold_moves_work_from_the_small_model_to_the_large_one() -> None:
    seen = []
    for below in (0.3, 0.65, 1.0):
        reply = cascade(below)
        assert isinstance(reply, Answer), reply
        jobs = reply.why["items"]["jobs"]
        assert jobs["first"] == 20
        seen.append((jobs["second"], reply.metrics["e2e_mean_ms"].estimate))
    assert 0 < seen[0][0] < seen[1][0] < seen[2][0] == 20
    assert sorted(seen) == seen


def test_a_model_that_is_never_asked_is_named() -> None:
    reply = cascade(0.1)
    assert isinstance(reply, Refusal)
    assert "none of 20 items comes to second" in reply.error.message
    assert reply.error.field == "pools.large"


@pytest.mark.parametrize("more", [{"probability": 0.5}, {"branch": "x"}, {"after": []}])
def test_what_decides_twice_or_on_nothing_is_refused(more: dict[str, Any]) -> None:
    reply = cascade(0.5, **more)
    assert isinstance(reply, Refusal)
    assert reply.error.field == "workload.stages.second.escalates"


def test_one_stage_that_drafts_is_the_task_serving_with_drafts() -> None:
    arrival = {"kind": "poisson", "rate_per_s": 4.0}
    serving = reply_to(
        {"task": "serving", "seed": 3, **LARGE, "speculative": DRAFTS}
        | {"workload": {"arrival": arrival, "requests": 20, **LENGTHS}}
    )
    stage = {"pool": "large", "work": "draft_verify", "speculative": DRAFTS, **LENGTHS}
    reply = workflow({"answer": stage}, arrival=arrival)
    assert isinstance(serving, Answer)
    assert isinstance(reply, Answer), reply
    assert {name: reply.metrics[name] for name in serving.metrics} == serving.metrics
    assert reply.metrics["acceptance_length"].estimate > 1.0


def test_a_drafting_stage_leaves_other_pools_alone() -> None:
    first = {"pool": "small", "work": "generate", **LENGTHS}
    second = {"pool": "large", "work": "draft_verify", "after": ["first"], **LENGTHS}
    reply = workflow({"first": first, "second": second | {"speculative": DRAFTS}})
    assert isinstance(reply, Answer), reply
    assert "large.acceptance_length" in reply.metrics
    assert "small.acceptance_length" not in reply.metrics


@pytest.mark.parametrize(
    ("stage", "field"),
    [
        ({"work": "draft_verify"}, "workload.stages.answer.speculative"),
        ({"work": "generate", "speculative": DRAFTS}, "workload.stages.answer.speculative"),
    ],
)
def test_drafts_and_work_belong_together(stage: dict[str, Any], field: str) -> None:
    reply = workflow({"answer": {"pool": "large", **LENGTHS, **stage}})
    assert isinstance(reply, Refusal)
    assert reply.error.field == field


def test_stages_of_one_pool_that_draft_differently_are_refused() -> None:
    drafts = {"pool": "large", "work": "draft_verify", "speculative": DRAFTS, **LENGTHS}
    plain = {"pool": "large", "work": "generate", "after": ["first"], **LENGTHS}
    reply = workflow({"first": drafts, "second": plain})
    assert isinstance(reply, Refusal)
    assert reply.error.field == "pools.large"
