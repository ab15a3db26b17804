"""Steps that learn from rollouts: the loss of a policy, log-probabilities, and whose devices."""

from __future__ import annotations

import math
from typing import Any

import pytest

from silicast.core.prediction import Z90
from silicast.scenario.answer import Answer
from silicast.scenario.run import reply_to
from silicast.workload.models.lookup import find_model
from silicast.workload.networks.vector_index import workflow_constants

TRAINING = {"seq_len": 1024, "micro_batch": 1, "global_batch": 16}
TRAINER = {
    "device": "H100",
    "model": "Llama-3.2-1B",
    "engine": "megatron",
    "parallel": {"tp": 2, "dp": 4},
}
TOOL = {"work": "tool_call", "duration_ms": 1.0}
ROLLOUT = {"work": "generate", "pool": "engine", "input_len": 64, "output_len": 4}
ENGINE = {"device": "H100", "model": "Llama-3.2-1B", "engine": "vllm"}


def workflow(stages: dict[str, Any], requests: int = 1, clients: int = 1) -> Answer:
    work = {"requests": requests, "stages": stages}
    work |= {"arrival": {"kind": "closed", "concurrency": clients}}
    pools: dict[str, Any] = {"trainer": TRAINER}
    if any(stage.get("pool") == "engine" for stage in stages.values()):
        pools |= {"engine": ENGINE}
    reply = reply_to({"task": "workflow", "pools": pools, "workload": work})
    assert isinstance(reply, Answer), reply
    return reply


def train(**more: Any) -> dict[str, Any]:
    return {"work": "train", "pool": "trainer", "training": TRAINING} | more


def test_a_policys_loss_is_of_the_words_and_tokens_of_a_rank() -> None:
    """16 x 1,024 tokens over 4 data ranks, half of the vocabulary on each of 2 tensor ranks."""
    plain = workflow({"first": TOOL, "update": train(after=["first"])})
    learns = workflow({"first": ROLLOUT, "update": train(after=["first"], overhead_share=0.0)})
    one, other = (each.metrics["update.stage_mean_ms"].estimate for each in (plain, learns))
    constants = workflow_constants().policy
    logits = 16 * 1024 / 4 * find_model("Llama-3.2-1B").vocab / 2
    assert other - one == pytest.approx(logits * constants.loss_ps_per_logit * 1e-9, rel=1e-5)
    assert any("log-probabilities of the policy" in text for text in learns.warnings)
    assert not any("log-probabilities of the policy" in text for text in plain.warnings)


def test_log_probabilities_are_a_share_of_an_update() -> None:
    reply = workflow(
        {
            "first": ROLLOUT,
            "logprob": train(after=["first"], work="logprob"),
            "update": train(after=["logprob"]),
        }
    )
    names = ("logprob.stage_mean_ms", "update.stage_mean_ms")
    one, other = (reply.metrics[name].estimate for name in names)
    assert one == pytest.approx(workflow_constants().policy.logprob_share * other, rel=1e-5)


def test_stages_of_one_trainer_take_turns_on_its_devices() -> None:
    """Two items at once: log-probabilities of the second wait for the first's; nothing overlaps."""
    stages = {
        "first": TOOL,
        "logprob": train(after=["first"], work="logprob"),
        "update": train(after=["logprob"]),
    }
    reply = workflow(stages, requests=2, clients=2)
    alone = workflow(stages)
    logprob, update = (
        alone.metrics[f"{name}.stage_mean_ms"].estimate for name in ("logprob", "update")
    )
    whole = 2 / reply.metrics["items_per_s"].estimate * 1e3
    assert whole == pytest.approx(1.0 + 2 * (logprob + update), rel=1e-6)
    assert reply.metrics["logprob_and_update.idle_share"].estimate < 0.02
    one, two = (each.metrics["energy_per_item_j"].estimate for each in (alone, reply))
    assert two == pytest.approx(one, rel=0.02)


def test_samples_are_those_of_updates_alone() -> None:
    """Two updates of 16 sequences; a pass for log-probabilities of the same learns nothing."""
    stages = {
        "first": ROLLOUT,
        "logprob": train(after=["first"], work="logprob"),
        "update": train(after=["logprob"], repeat=2),
    }
    metrics = workflow(stages).metrics
    assert metrics["samples_per_s"].estimate == pytest.approx(
        2 * TRAINING["global_batch"] * metrics["items_per_s"].estimate, rel=1e-9
    )


def test_a_step_that_does_not_fit_says_so() -> None:
    """Eight H100 have 640 GB; 70 billion weights with gradients and states take over 1 TB."""
    remarks = {}
    for name, devices in (("few", 8), ("many", 64)):
        table = {
            "task": "workflow",
            "model": "Llama-3.3-70B",
            "pools": {"trainer": {"device": "H100", "parallel": {"dp": devices}, "engine": "fsdp"}},
            "workload": {
                "requests": 1,
                "stages": {
                    "update": {
                        "pool": "trainer",
                        "work": "train",
                        "training": {"seq_len": 1200, "micro_batch": 1, "global_batch": 64},
                    }
                },
            },
        }
        reply = reply_to(table)
        assert isinstance(reply, Answer), reply
        remarks[name] = [text for text in reply.warnings if "fit" in text or " GB of " in text]
    assert remarks["few"]
    assert remarks["few"][0].startswith("update: ")
    assert not remarks["many"]


def test_weights_are_gathered_whole_whatever_their_shards() -> None:
    """1.236e9 weights of two bytes (embeddings tied) at the published rate; half of them on each of
    two devices takes as long.
    """
    stages = {
        "first": ROLLOUT,
        "update": train(after=["first"]),
        "weights": {"after": ["update"], "work": "transfer", "overhead_share": 0.0},
    }
    reply = workflow(stages)
    known = workflow_constants().weight_sync
    seconds = 1.236e9 * 2 / (known.gather_gb_per_s * 1e9)
    time = reply.metrics["weights.stage_mean_ms"]
    assert time.estimate == pytest.approx(seconds * 1e3, rel=2e-3)
    assert time.p95 / time.estimate == pytest.approx(math.exp(Z90 * known.log_sd), rel=1e-6)
    assert any("gathered, re-sharded and loaded" in text for text in reply.warnings)


def test_stated_bytes_take_their_link() -> None:
    stages = {"first": ROLLOUT, "copy": {"after": ["first"], "work": "transfer", "data_gb": 5.0}}
    work = {"requests": 1, "stages": stages}
    links = {"copy": {"to": "engine", "bandwidth_gb_per_s": 10.0, "latency_us": 0.0}}
    pools = {"engine": ENGINE}
    reply = reply_to({"task": "workflow", "pools": pools, "links": links, "workload": work})
    assert isinstance(reply, Answer), reply
    time = reply.metrics["copy.stage_mean_ms"]
    assert time.estimate == pytest.approx(500.0, rel=1e-6)
    sd = math.log(time.p95 / time.estimate) / Z90
    assert sd == pytest.approx(workflow_constants().links.log_sd, rel=1e-5)


def test_steps_that_learn_are_as_uncertain_as_measured_trainers() -> None:
    """An update after a tool has the error of its step; one that learns from rollouts the trainers'
    too, and rollouts have it as well.
    """
    plain = workflow({"first": TOOL, "update": train(after=["first"])})
    learns = workflow({"first": ROLLOUT, "update": train(after=["first"])})
    alone = workflow({"first": ROLLOUT, "tool": TOOL | {"after": ["first"]}})
    further = workflow_constants().policy.step_log_sd

    def log_sd(reply: Answer, name: str) -> float:
        time = reply.metrics[f"{name}.stage_mean_ms"]
        return math.log(time.p95 / time.estimate) / Z90

    assert log_sd(plain, "update") < further < log_sd(learns, "update")
    apart = log_sd(alone, "first")
    assert 1.2 * apart < log_sd(learns, "first") < math.hypot(apart, further)
