"""Stages of work "job": a cluster that a scheduler shares out, by hand and against training."""

from __future__ import annotations

from typing import Any

import pytest

from silicast.scenario.answer import Answer, Refusal
from silicast.scenario.run import reply_to

TRAINING = {"seq_len": 1024, "micro_batch": 1, "global_batch": 8}
POOLS = {"fast": {"device": "H100", "count": 4}, "slow": {"device": "A100", "count": 2}}
BASE = {"model": "Llama-3.2-1B", "engine": "megatron", "pools": POOLS}


def cluster(stages: dict[str, Any], policy: str = "fifo", **more: Any) -> Answer | Refusal:
    work = {"requests": 3, "stages": stages, "arrival": {"kind": "closed", "concurrency": 3}}
    scheduler = {"policy": policy, "round_s": 10.0, "restart_s": 0.0}
    return reply_to(BASE | {"task": "workflow", "workload": work | {"scheduler": scheduler} | more})


def answered(stages: dict[str, Any], policy: str = "fifo", **more: Any) -> Answer:
    reply = cluster(stages, policy, **more)
    assert isinstance(reply, Answer), reply
    return reply


def test_jobs_of_a_stated_time_wait_for_devices() -> None:
    """Three jobs of 10 s that each need the 2 slow devices: 10, 20 and 30 s."""
    stage = {"work": "job", "pools": ["slow"], "gpus": [2], "duration_ms": 10_000}
    reply = answered({"build": stage})
    assert reply.metrics["e2e_mean_ms"].estimate == pytest.approx(20_000)
    assert reply.metrics["build.wait_mean_ms"].estimate == pytest.approx(10_000)
    assert reply.metrics["cluster.idle_share"].estimate == pytest.approx(0.0, abs=1e-9)
    told = reply.why["schedule"]
    assert told["utilisation"] == {"slow": 1.0}
    assert told["slowdown"]["mean"] == pytest.approx(2.0)
    assert told["fairness"] == pytest.approx((1 + 1 / 2 + 1 / 3) ** 2 / 3 / (1 + 1 / 4 + 1 / 9))
    assert reply.why["coverage"]["time_share"] == {"given": 1.0}
    assert reply.why["coverage"]["largest_unmodelled"]["stage"] == "build"


def test_a_job_takes_its_steps_times_the_step_of_task_training() -> None:
    stage = {"work": "job", "pools": ["fast"], "gpus": [4], "steps": 100, "training": TRAINING}
    reply = answered({"train": stage}, requests=1)
    alone = reply_to(
        {
            "task": "training",
            "model": BASE["model"],
            "engine": "megatron",
            "device": "H100",
            "parallel": {"dp": 4},
            "workload": TRAINING,
        }
    )
    assert isinstance(alone, Answer)
    step = alone.metrics["step_time_s"]
    e2e = reply.metrics["e2e_mean_ms"]
    assert e2e.estimate == pytest.approx(1e5 * step.estimate, rel=1e-6)
    assert e2e.p05 < e2e.estimate < e2e.p95
    assert reply.why["coverage"]["time_share"] == {alone.tier: 1.0}


def test_policies_that_choose_counts_use_more_devices_than_the_first_count() -> None:
    stage = {"work": "job", "gpus": [1, 2, 4], "steps": 400, "training": TRAINING}
    rigid, elastic = (answered({"train": stage}, policy, requests=1) for policy in ("fifo", "sia"))
    first, second = (each.metrics["e2e_mean_ms"].estimate for each in (rigid, elastic))
    assert second < 0.6 * first


def test_a_larger_batch_counts_for_less_by_the_noise_scale() -> None:
    """From 8 to 32 sequences at a noise scale of 8: a step is worth 4 x 16 / 40 = 1.6."""
    stage = {"work": "job", "pools": ["fast"], "steps": 100, "training": TRAINING}
    grown = stage | {"gpus": [1, 4], "noise_scale": 8.0}
    reply = answered({"train": grown}, "sia", requests=1)
    large = TRAINING | {"global_batch": 32}
    alone = answered({"train": stage | {"gpus": [4], "training": large}}, requests=1)
    ratio = reply.metrics["e2e_mean_ms"].estimate / alone.metrics["e2e_mean_ms"].estimate
    assert ratio == pytest.approx(1 / 1.6, rel=1e-6)


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"pools": ["fats"]}, "workload.stages.one.pools", "no pool 'fats'"),
        ({"gpus": [8]}, "workload.stages.one.gpus", "no pool has 8 devices"),
        ({"gpus": [1, 2]}, "workload.stages.one.gpus", "several counts"),
        ({"gpus": [2, 2]}, "workload.stages.one.gpus", "twice"),
        ({"training": TRAINING}, "workload.stages.one.duration_ms", "beside training"),
        ({"steps": 5}, "workload.stages.one.steps", "beside duration_ms"),
        ({"work": "tool_call"}, "workload.scheduler", "no stage is a job"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], field: str, words: str) -> None:
    stage = {"work": "job", "duration_ms": 1000} | changes
    reply = cluster({"one": stage})
    assert isinstance(reply, Refusal)
    assert reply.error.field == field
    assert words in reply.error.message
