"""The rank that all wait for: by hand, and in the answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from silicast.composition.engines.engine import find_engine
from silicast.composition.passes.deployment import Deployment, imbalance
from silicast.composition.step.states import BatchStates
from silicast.composition.step.step import StepModel
from silicast.hardware.catalog import find_device
from silicast.hardware.cluster import cluster_of
from silicast.workload.models.lookup import find_model
from silicast.workload.transformers.plan import Plan


def deployment(model: str, engine: str = "vllm", **plan: Any) -> Deployment:
    return Deployment.from_model(
        find_model(model), find_device("H100"), find_engine(engine), plan=Plan(**plan)
    )


def stages(where: Deployment) -> tuple[tuple[int, int], ...]:
    return where.policy.stages(where.model.layers, where.plan)


def test_nobody_waits_alone() -> None:
    assert imbalance(deployment("Llama-3.1-8B", tp=2), [100, 900]) == {}
    assert imbalance(deployment("Qwen3-30B-A3B", tp=2), [100, 900]) == {}


def test_the_busiest_group_by_hand() -> None:
    result = imbalance(deployment("Llama-3.1-8B", attention_dp=2), [100, 700, 20, 30])
    assert result == {"prefill_tokens": pytest.approx(730 * 2 / 850)}


def test_more_ranks_and_fewer_tokens_are_less_even() -> None:
    few, many = (
        imbalance(deployment("Qwen3-30B-A3B", tp=ep, ep=ep), [64] * 8)["decode_assignments"]
        for ep in (2, 4)
    )
    short = imbalance(deployment("Qwen3-30B-A3B", tp=4, ep=4), [64] * 2)["decode_assignments"]
    assert 1.0 < few < many < short
    long = imbalance(deployment("Qwen3-30B-A3B", tp=4, ep=4), [8192] * 8)
    assert 1.0 < long["prefill_assignments"] < 1.05


def test_other_groups_bring_their_own_tokens_to_the_experts() -> None:
    model = StepModel.from_deployment(deployment("Qwen3-30B-A3B", attention_dp=2, ep=2))
    experts = next(i for i, p in enumerate(model.graph.nodes) if p.op.family == "moe")

    def seconds(elsewhere: int) -> float:
        states = BatchStates.prefill([4096], elsewhere)
        return float(model.steps(states).nodes.time_s[experts, 0])

    assert seconds(-1) == seconds(4096)
    assert seconds(512) < 0.75 * seconds(4096)


def test_decode_batches_are_padded_to_captured_graphs() -> None:
    model = StepModel.from_deployment(deployment("Llama-3.1-8B"))
    sizes = find_engine("vllm").launch.graph_batch_sizes

    def tokens(count: int) -> int:
        states = BatchStates.decode([100] * count, np.array([1]))
        return int(model.timer.run_tokens(states)[0])

    assert [tokens(n) for n in (1, 3, 9, 16, 17)] == [1, 4, 16, 16, 24]
    assert tokens(sizes[-1] + 1) == sizes[-1] + 1
    prefill = BatchStates.prefill([9])
    assert model.timer.run_tokens(prefill).tolist() == [16], "piecewise graphs are padded too"
    eager = StepModel.from_deployment(deployment("Llama-3.1-8B", "sglang"))
    assert eager.timer.run_tokens(prefill).tolist() == [9]
    large = model.steps(BatchStates.decode([100] * (sizes[-1] + 1), np.array([1])))
    assert large.launches_s[:, 0].sum() > 0.0, (
        "no graph was captured: kernels are launched one by one"
    )


def test_stages_of_an_uneven_pipeline_by_engine() -> None:
    layers = {
        engine: [
            sum(p.count for p in model.graph.nodes if p.stage == stage and p.name == "qkv")
            for stage in range(3)
        ]
        for engine in ("vllm", "sglang", "trtllm")
        for model in [StepModel.from_deployment(deployment("Llama-3.1-8B", engine, pp=3))]
    }
    assert layers == {"vllm": [11, 11, 10], "sglang": [11, 11, 10], "trtllm": [11, 11, 10]}
    five = [
        [last - first for first, last in stages(deployment("Llama-3.1-8B", engine, pp=5))]
        for engine in ("vllm", "sglang")
    ]
    assert five == [[6, 6, 7, 7, 6], [7, 7, 6, 6, 6]]


def test_dispatched_tokens_meet_a_kernel_of_their_phase() -> None:
    where = deployment("Qwen3-30B-A3B", attention_dp=16, ep=16)
    model = StepModel.from_deployment(where)
    states = BatchStates.prefill([256]).then(BatchStates.decode([100] * 8, np.array([1])))
    kernels = {
        key.variant.kernel: rows.tolist()
        for key, _, rows in model.timer.calls(states)
        if key.family == "moe"
    }
    assert kernels == {"dispatched_prefill": [0], "dispatched": [1]}
    times = model.steps(states).nodes.time_s
    experts = next(i for i, p in enumerate(model.graph.nodes) if p.op.family == "moe")
    assert times[experts, 0] == model.steps(states.first()).nodes.time_s[experts, 0]


def test_the_policy_follows_from_links_and_plan() -> None:
    """A deployment asks its engine again whenever its plan or machine changes."""
    for engine, plan in (("sglang", {"tp": 4, "attention_dp": 2}), ("vllm", {"tp": 2, "ep": 2})):
        result = deployment("Qwen3-235B-A22B", engine, **plan)
        assert result.plan == Plan(**plan)
        assert result.policy.gathers_dense is (engine == "sglang")
        wider = replace(result, plan=Plan(attention_dp=16, ep=16))
        assert wider.policy.all_to_all
        assert not result.policy.all_to_all
        assert wider.policy == deployment("Qwen3-235B-A22B", engine, attention_dp=16, ep=16).policy
        linked = replace(result.machine, cluster=cluster_of(result.device, gpus_per_node=2))
        apart = replace(result, machine=linked)
        assert apart.policy.all_to_all is (plan["tp"] * plan.get("attention_dp", 1) > 2)
