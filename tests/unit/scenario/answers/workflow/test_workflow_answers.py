"""Workflows as scenarios: what they share with other tasks, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest

from silicast.scenario.answer import Answer, Refusal, encode
from silicast.scenario.run import reply_to

POOL = {"device": "H100", "model": "Llama-3.1-8B", "engine": "vllm"}
LENGTHS = {"input_len": 400, "output_len": {"kind": "uniform", "min": 10, "max": 40}}


def workflow(stages: dict[str, Any], pools: dict[str, Any] | None = None, **work: Any) -> Any:
    """The reply to a workflow of these stages."""
    tree = {"task": "workflow", "seed": 3, "pools": pools or {"chat": POOL}}
    return reply_to(tree | {"workload": {"stages": stages, **work}})


@pytest.mark.parametrize(
    "arrival", [{"kind": "poisson", "rate_per_s": 8.0}, {"kind": "closed", "concurrency": 6}]
)
def test_one_stage_is_the_task_serving_bit_for_bit(arrival: dict[str, Any]) -> None:
    serving = reply_to(
        {"task": "serving", "seed": 3, **POOL}
        | {"workload": {"arrival": arrival, "requests": 40, **LENGTHS}}
    )
    stage = {"pool": "chat", "work": "generate", **LENGTHS}
    reply = workflow({"answer": stage}, arrival=arrival, requests=40)
    assert isinstance(serving, Answer)
    assert isinstance(reply, Answer)
    assert {name: reply.metrics[name] for name in serving.metrics} == serving.metrics
    assert encode(reply) == encode(workflow({"answer": stage}, arrival=arrival, requests=40))


def test_tokens_that_never_leave_early_are_the_plain_models() -> None:
    arrival = {"kind": "closed", "concurrency": 4}
    pools = {"chat": {"device": "A100", "model": "Llama-2-7B", "engine": "vllm"}}

    def exits(shares: list[float] | None) -> Answer:
        stages = {
            "prompt": {"pool": "chat", "work": "prefill", "input_len": 200},
            "tokens": {"pool": "chat", "work": "decode", "after": ["prompt"], "output_len": 24},
        }
        if shares:
            stages["tokens"]["exits"] = shares
        reply = workflow(stages, pools, arrival=arrival, requests=8)
        assert isinstance(reply, Answer), reply
        return reply

    plain, never, early = exits(None), exits([0.0, 0.0, 0.0, 1.0]), exits([0.5, 0.0, 0.0, 0.5])
    assert never.metrics == plain.metrics
    assert 0.5 < early.metrics["tpot_mean_ms"].estimate / plain.metrics["tpot_mean_ms"].estimate < 1


def test_what_the_time_rests_on_is_said_and_sums_to_one() -> None:
    stages = {
        "tool": {"work": "tool_call", "duration_ms": 500.0},
        "answer": {"pool": "chat", "work": "generate", "after": ["tool"], **LENGTHS},
    }
    reply = workflow(stages, requests=3)
    assert isinstance(reply, Answer)
    coverage = reply.why["coverage"]
    assert sum(coverage["time_share"].values()) == pytest.approx(1.0, abs=1e-5)
    assert coverage["largest_unmodelled"]["stage"] == "tool"
    e2e = reply.metrics["e2e_mean_ms"].estimate
    assert coverage["time_share"]["given"] == pytest.approx(500.0 / e2e, rel=1e-4)
    assert reply.why["exposed_ms"] == pytest.approx(e2e)


def test_turns_of_an_agent_find_their_context_in_the_cache() -> None:
    loop = {"back_to": "think", "probability": 1.0, "most": 4}
    stages = {
        "think": {
            "pool": "chat",
            "work": "generate",
            "input_len": 1024,
            "output_len": 32,
            "keeps_context": True,
        },
        "tool": {"work": "tool_call", "after": ["think"], "duration_ms": 100, "loop": loop},
    }
    reply = workflow(stages, requests=2)
    assert isinstance(reply, Answer), reply
    # prompts of 1, 2, 3 and 4 times 1024, of which all but the newest is known
    assert reply.metrics["chat.prefix_hit_rate"].estimate == pytest.approx(6 / 10, abs=0.02)
    assert reply.why["items"]["jobs"] == {"think": 8, "tool": 8}


def test_a_pool_that_cannot_keep_up_is_called_unstable() -> None:
    stages = {"slow": {"work": "fixed", "duration_ms": 200.0, "servers": 1}}
    arrival = {"kind": "constant", "rate_per_s": 10.0}
    reply = workflow(stages, requests=300, arrival=arrival)
    assert isinstance(reply, Answer)
    assert reply.why["load"]["slow"] == pytest.approx(2.0, rel=0.05)
    assert "slow is unstable" in reply.warnings[0]


@pytest.mark.parametrize(("rate", "unstable"), [(4.0, False), (400.0, True)])
def test_an_engine_with_more_than_it_can_answer_is_unstable_after_few_items(
    rate: float, unstable: bool
) -> None:
    stages = {
        "ask": {"pool": "chat", "work": "generate", "input_len": 600, "output_len": 8},
        "tool": {"after": ["ask"], "duration_ms": 1},
    }
    arrival = {"kind": "constant", "rate_per_s": rate}
    reply = workflow(stages, {"chat": POOL, "spare": POOL}, requests=40, arrival=arrival)
    assert isinstance(reply, Answer)
    assert ("chat is unstable" in reply.warnings[0]) == unstable
    assert any("pools.spare: no stage runs on it" in text for text in reply.warnings)
    assert not any("pools.chat: no stage" in text for text in reply.warnings)


def test_a_stage_that_waits_for_itself_is_told_so() -> None:
    reply = workflow({"a": {"duration_ms": 1, "after": ["a"]}})
    assert isinstance(reply, Refusal)
    assert (reply.error.field, "itself" in reply.error.message) == ("workload.stages.a.after", True)


@pytest.mark.parametrize(
    ("stages", "field"),
    [
        ({"a": {"work": "generate", **LENGTHS}}, "workload.stages.a.pool"),
        (
            {"a": {"work": "generate", "pool": "chat", "input_len": 5}},
            "workload.stages.a.output_len",
        ),
        ({"a": {"work": "fixed"}}, "workload.stages.a.duration_ms"),
        ({"a": {"work": "decode", "pool": "chat", "output_len": 5}}, "workload.stages.a.after"),
        ({"a": {"duration_ms": 1, "loop": {"back_to": "a"}}}, "workload.stages.a.loop"),
        ({"a": {"work": "retrieve"}}, "workload.stages.a.index"),
        ({"a": {"work": "denoise", "pool": "chat"}}, "workload.stages.a.resolution"),
    ],
)
def test_a_stage_that_says_too_little_is_refused_where_it_stands(
    stages: dict[str, Any], field: str
) -> None:
    reply = workflow(stages, requests=2)
    assert isinstance(reply, Refusal)
    assert reply.error.field == field
