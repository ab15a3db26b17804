"""Rollouts on the trainer's devices, and what frameworks take around their work."""

from __future__ import annotations

from typing import Any

import pytest

from silicast.scenario.answer import Answer, Refusal
from silicast.scenario.run import reply_to
from silicast.workload.networks.vector_index import workflow_constants


def stepped(
    shares: str | None = "trainer", *, rollout: dict[str, Any] | None = None, **work: Any
) -> Answer | Refusal:
    """A step: eight rollouts, an update of four devices, new weights."""
    model = {"device": "H100", "model": "Qwen3-0.6B"}
    pools: dict[str, dict[str, Any]] = {
        "rollout": {**model, "engine": "vllm", "count": 4},
        "trainer": {**model, "engine": "fsdp", "parallel": {"dp": 4}},
    }
    if shares is not None:
        pools["rollout"]["shares_with"] = shares
    lengths = {"batch": 8, "input_len": 64, "output_len": 64}
    training = {"seq_len": 256, "micro_batch": 1, "global_batch": 8}
    stages = {
        "roll": {"pool": "rollout", "work": "generate", **lengths, **(rollout or {})},
        "update": {"pool": "trainer", "work": "train", "training": training, "after": ["roll"]},
    }
    pools["rollout"] |= work.pop("pool", {})
    tree: dict[str, Any] = {
        "task": "workflow",
        "pools": pools,
        "workload": {"requests": 1, "stages": stages},
    }
    tree["workload"] |= work
    return reply_to(tree)


def answered(reply: Answer | Refusal) -> dict[str, float]:
    assert isinstance(reply, Answer), reply
    return {name: belief.estimate for name, belief in reply.metrics.items()}


def test_shared_devices_draw_power_once_and_engines_wake() -> None:
    known = workflow_constants().policy
    apart, shared = answered(stepped(None)), answered(stepped())
    bare = answered(stepped(rollout={"overhead_share": 0.0}))
    around = (1.0 + known.wake_share) * (1.0 + known.between_share)
    assert shared["roll.stage_p50_ms"] == pytest.approx(
        around * bare["roll.stage_p50_ms"], rel=1e-6
    )
    assert apart["roll.stage_p50_ms"] == pytest.approx(
        (1.0 + known.between_share) * bare["roll.stage_p50_ms"], rel=1e-6
    )
    # of devices apart, four wait while four work
    assert shared["energy_per_item_j"] < apart["energy_per_item_j"]


def test_a_workflow_that_trains_on_nothing_generated_has_no_overhead() -> None:
    training = {"seq_len": 256, "micro_batch": 1, "global_batch": 8}
    pool = {"device": "H100", "model": "Qwen3-0.6B", "engine": "fsdp", "parallel": {"dp": 4}}

    def step(**fields: Any) -> float:
        stages = {"update": {"pool": "gpu", "work": "train", "training": training, **fields}}
        workload = {"requests": 1, "stages": stages}
        reply = reply_to({"task": "workflow", "pools": {"gpu": pool}, "workload": workload})
        return answered(reply)["e2e_mean_ms"]

    assert step() == step(overhead_share=0.0)


@pytest.mark.parametrize(
    ("shares", "fields", "message"),
    [
        ("learner", {}, "no pool 'learner'"),
        ("rollout", {}, "no pool 'rollout'"),
        ("trainer", {"pool": {"count": 5}}, "5 devices of a pool that has 4"),
        ("trainer", {"arrival": {"kind": "closed", "concurrency": 2}}, "under way at once"),
    ],
)
def test_what_would_run_at_once_is_refused(
    shares: str, fields: dict[str, Any], message: str
) -> None:
    reply = stepped(shares, **fields)
    assert isinstance(reply, Refusal)
    assert reply.error.message.startswith(message) or message in reply.error.message
    assert reply.error.field == "pools.rollout.shares_with"


def test_stages_side_by_side_are_refused() -> None:
    stages = {
        "roll": {"pool": "rollout", "work": "embed", "input_len": 64},
        "score": {"pool": "scorer", "work": "embed", "input_len": 64},
    }
    model = {"device": "H100", "model": "Qwen3-0.6B", "engine": "torch-compile"}
    pools = {"rollout": model | {"shares_with": "scorer"}, "scorer": model}
    workload: dict[str, Any] = {"requests": 1, "stages": stages}
    reply = reply_to({"task": "workflow", "pools": pools, "workload": workload})
    assert isinstance(reply, Refusal)
    assert "do not wait for each other" in reply.error.message
    stages["score"]["after"] = ["roll"]
    assert isinstance(reply_to({"task": "workflow", "pools": pools, "workload": workload}), Answer)


def test_other_tasks_refuse_turns() -> None:
    pools = {"one": {"device": "H100", "model": "Qwen3-8B", "engine": "vllm", "shares_with": "two"}}
    workload = {"arrival": {"kind": "closed", "concurrency": 1}, "input_len": 8, "output_len": 8}
    reply = reply_to({"task": "serving", "pools": pools, "workload": workload})
    assert isinstance(reply, Refusal)
    assert reply.error.field == "pools.one.shares_with"


def test_pools_that_share_with_each_other_are_told_so() -> None:
    model = {"device": "H100", "model": "Qwen3-0.6B", "engine": "vllm"}
    work = {"work": "generate", "batch": 1, "input_len": 64, "output_len": 8}
    pools = {"a": {**model, "shares_with": "b"}, "b": {**model, "shares_with": "a"}}
    stages = {"one": {**work, "pool": "a"}, "two": {**work, "pool": "b", "after": ["one"]}}
    reply = reply_to(
        {"task": "workflow", "pools": pools, "workload": {"requests": 1, "stages": stages}}
    )
    assert isinstance(reply, Refusal)
    assert reply.error.field == "pools.a.shares_with"
    assert "b has no devices of its own: it shares with a" in reply.error.message
