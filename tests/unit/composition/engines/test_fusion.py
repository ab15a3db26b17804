"""Kernels within others and beside others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from silicast.composition.engines.engine import find_engine
from silicast.composition.engines.engine_options import with_options
from silicast.composition.engines.fusion import smallest_kernel_s
from silicast.composition.passes.deployment import Deployment
from silicast.composition.step.concurrency import together_s
from silicast.composition.step.states import BatchStates
from silicast.composition.step.step import StepModel, StepTimes
from silicast.composition.timeline.breakdown import Breakdown
from silicast.hardware.catalog import find_device
from silicast.workload.models.lookup import find_model
from silicast.workload.transformers.plan import Plan

OFF = {"overlap": False, "fused_all_reduce": False}


def model(
    name: str, device: str, engine: str, options: dict[str, Any] | None = None, **plan: Any
) -> StepModel:
    chosen = with_options(find_engine(engine), options or {})
    return StepModel.from_deployment(
        Deployment.from_model(find_model(name), find_device(device), chosen, plan=Plan(**plan))
    )


def decode(count: int, length: int = 1000) -> BatchStates:
    return BatchStates.decode([length] * count, np.array([1]))


def node_s(model: StepModel, times: StepTimes, name: str) -> float:
    """Exposed seconds of one execution in the last layer's block."""
    return max(
        float(times.exposed_s[index, 0]) / node.count
        for index, node in enumerate(model.graph.nodes)
        if node.name == name and node.block != "first_layer"
    )


def test_a_norm_within_the_sum_over_ranks_saves_a_launch() -> None:
    fused = model("Llama-3.1-70B", "H100", "vllm", tp=4)
    apart = model("Llama-3.1-70B", "H100", "vllm", OFF, tp=4)
    launch = smallest_kernel_s(find_device("H100"))
    assert 1e-6 < launch < 3e-6
    for name in ("input_norm", "post_norm"):
        saved = node_s(apart, apart.steps(decode(8)), name) - node_s(
            fused, fused.steps(decode(8)), name
        )
        assert saved == pytest.approx(launch)
    large = BatchStates.prefill([4096])
    assert fused.steps(large).device_s[0] == apart.steps(large).device_s[0], "beyond 2 MiB"


def test_one_device_has_no_sum_to_fuse_with() -> None:
    fused, apart = (model("Llama-3.1-8B", "H100", "vllm", o) for o in (None, OFF))
    assert fused.steps(decode(8)).device_s[0] == apart.steps(decode(8)).device_s[0]


def test_shared_experts_run_beside_the_routed_ones() -> None:
    beside, behind = (model("DeepSeek-V3", "B200", "sglang", o, tp=8) for o in (None, OFF))
    small = [each.steps(decode(4)) for each in (beside, behind)]
    hidden = small[0].hidden_s
    assert hidden.min() >= 0.0
    assert not small[1].hidden_s.any()
    shared = [i for i, node in enumerate(beside.graph.nodes) if node.name.startswith("shared_")]
    assert float(hidden[shared, 0].sum()) > 0.0
    assert node_s(behind, small[1], "shared_down") > node_s(beside, small[0], "shared_down")
    both = small[0].exposed_s + hidden
    assert float(both[shared].sum()) == pytest.approx(float(small[1].exposed_s[shared].sum()))
    prefill = [each.steps(BatchStates.prefill([300])) for each in (beside, behind)]
    assert node_s(beside, prefill[0], "shared_down") == node_s(behind, prefill[1], "shared_down")


def test_the_tree_of_parts_says_what_is_hidden() -> None:
    beside = model("DeepSeek-V3", "B200", "sglang", tp=8)
    part = Breakdown(beside, beside.steps(decode(4)), np.ones(1)).part("step")
    assert part.hidden_ps > 0
    assert part.exposed_ps == sum(child.exposed_ps for child in part.children)
    assert part.bound_ps <= part.exposed_ps


def test_one_call_attends_for_prefill_and_decode() -> None:
    one_call = model("Llama-2-70B", "H100", "vllm", tp=4)
    decoding, both = decode(64), BatchStates(
        np.array([2]), np.array([600]), np.array([0, 1]),
        np.full(64, 1000), np.array([0, 64]),
    )  # fmt: skip
    alone, mixed = one_call.steps(decoding), one_call.steps(both)
    prefill = [i for i, p in enumerate(one_call.graph.nodes) if p.name == "attention_prefill"]
    attention = [i for i, p in enumerate(one_call.graph.nodes) if p.name == "attention_decode"]
    fraction = mixed.exposed_s[prefill[0], 0] / alone.exposed_s[attention[0], 0]
    assert fraction < 0.1, "two more tokens are nearly free beside 64 sequences"


@pytest.mark.parametrize(
    ("name", "device", "engine", "plan"),
    [
        ("DeepSeek-V3", "B200", "sglang", {"tp": 8}),
        ("Llama-3.1-70B", "H100", "vllm", {"tp": 4}),
        ("DeepSeek-V3", "B200", "trtllm", {"attention_dp": 8, "ep": 8}),
    ],
)
def test_what_runs_together_takes_as_long_as_two_queues(
    name: str, device: str, engine: str, plan: dict[str, Any]
) -> None:
    """Steps that decode, prefill or do both: alone, in a batch, and region by region."""
    whole = model(name, device, engine, **plan)
    states = BatchStates.prefill([700]).then(decode(3)).then(decode(40)).then(
        BatchStates(
            np.array([9]), np.array([90]), np.array([0, 1]), np.full(12, 500), np.array([0, 12])
        )
    )  # fmt: skip
    times = whole.steps(states)
    shares, replayed = times.nodes.shares, [False, True, True, False]
    assert whole.graph.regions
    for region in whole.graph.regions:
        both_s = together_s(
            times.nodes.time_s[list(region.main)],
            times.nodes.time_s[list(region.side)],
            shares.of_nodes(region.main),
            shares.of_nodes(region.side),
        )
        indices = [*region.main, *region.side]
        counts = [whole.graph.nodes[position].count for position in indices]
        for row in range(len(states)):
            shown = sum(times.exposed_s[indices, row] / counts)
            alone = sum(times.nodes.time_s[indices, row])
            beside = region.any_step or replayed[row]
            beside = beside and states.tokens[row] <= region.max_tokens
            assert shown == pytest.approx(both_s[row] if beside else alone, rel=1e-9)
    for row in range(len(states)):
        one = whole.steps(states.chosen(np.array([row])))
        assert one.total_s[0] == times.total_s[row]
        assert (one.hidden_s[:, 0] == times.hidden_s[:, row]).all()


def test_both_kinds_of_region_are_there() -> None:
    experts = model("DeepSeek-V3", "B200", "sglang", tp=8).graph
    (region, *_) = experts.regions
    assert {experts.nodes[position].name for position in region.main} >= {"router", "experts"}
    assert {experts.nodes[position].name for position in region.side} >= {"shared_down"}
    assert not region.any_step
    attention = model("Llama-3.1-70B", "H100", "vllm", tp=4).graph
    for region in attention.regions:
        (main,), (side,) = region.main, region.side
        assert attention.nodes[main].name == "attention_decode"
        assert attention.nodes[side].name == "attention_prefill"
        assert region.any_step
    assert len(attention.regions) == 2, "the first layer and the others"
