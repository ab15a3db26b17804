"""Experts that take a limited number of tokens."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.core.errors import SilicastError
from silicast.distributed.memory.memory import Rules, plan_memory
from silicast.distributed.pipeline.chunk import Rank, chunk_graph
from silicast.distributed.ranks.expert_capacity import Capacity
from silicast.distributed.ranks.plan import TrainingPlan
from silicast.distributed.step.step import predict_step
from silicast.kernels.experts.routing import busiest_loads, histogram_name
from silicast.scenario.answers.training.training_runs import TrainingRun, run_of
from silicast.scenario.decode import decode
from silicast.workload.models.lookup import find_model
from silicast.workload.models.model import MoE
from tests.sampling import examples

MIXTRAL = find_model("Mixtral-8x7B")
assert MIXTRAL.moe is not None
MOE = MIXTRAL.moe
ROUTINGS = ("balanced", "uniform", "power_law_1.01", "power_law_1.2", "histogram:3,1,1,1,1,1,1,1")


@cache
def run(routing: str = "power_law_1.2", **more: Any) -> TrainingRun:
    shares: Any = routing
    if routing.startswith("histogram:"):
        shares = [float(each) for each in routing.removeprefix("histogram:").split(",")]
    return run_of(decode({
        "format": 1, "task": "training", "model": "Mixtral-8x7B", "device": "B200",
        "parallel": {"dp": 8, "ep": 8, "zero": 1}, "cluster": {"gpus": 8},
        "workload": {"seq_len": 4096, "global_batch": 16, "recompute": "none", "routing": shares,
                     **more},
    }))  # fmt: skip


def of(routing: str, factor: float, tokens: int = 4096, *, padded: bool = False) -> Capacity:
    return Capacity.from_routing(MOE, routing, tokens, 8, factor, padded=padded)


@examples(60)
@given(
    st.sampled_from(ROUTINGS), st.floats(0.05, 20.0), st.integers(1, 10**6),
    st.sampled_from(((8, 2), (64, 6), (256, 8), (128, 1))),
)  # fmt: skip
def test_kept_and_dropped_are_all(
    routing: str, factor: float, tokens: int, sizes: tuple[int, int]
) -> None:
    moe = MoE(experts=sizes[0], topk=sizes[1], intermediate=64)
    if routing.startswith("histogram:") and sizes[0] != 8:
        routing = "uniform"
    result = Capacity.from_routing(moe, routing, tokens, 4, factor)
    assert 0.0 <= result.dropped < 1.0
    assert result.rows == pytest.approx(1.0 - result.dropped)
    padded = Capacity.from_routing(moe, routing, tokens, 4, factor, padded=True)
    assert padded.dropped == result.dropped
    assert padded.rows >= result.rows * (1.0 - 1e-9)
    assert padded.rows == padded.tokens_each * sizes[0] / (tokens * sizes[1])
    more = Capacity.from_routing(moe, routing, tokens, 4, 2.0 * factor)
    assert more.dropped <= result.dropped + 1e-9


@pytest.mark.parametrize("routing", ROUTINGS)
def test_no_expert_takes_more(routing: str) -> None:
    result = of(routing, 1.1)
    tokens = result.tokens(4096)
    for ranks in (1, 2, 8):
        sizes = (np.array([each]) for each in (tokens, 8, 2, ranks))
        loads = busiest_loads(result.routing, *sizes)
        assert loads.tokens_each.max() <= result.tokens_each * 1.001 + 1.0


def test_a_factor_that_drops_nothing_changes_nothing() -> None:
    for routing in ROUTINGS:
        result = of(routing, 8.0)
        assert (result.dropped, result.rows, result.routing) == (0.0, 1.0, routing)
    plain, limited = run(), run(capacity_factor=100.0)
    assert limited.step.seconds == plain.step.seconds
    assert limited.memory.quantity == plain.memory.quantity


def test_time_and_memory_follow_capacity() -> None:
    limits = (0.5, 1.0, 1.5)
    dropping = [run(capacity_factor=each) for each in limits]
    padding = [run(capacity_factor=each, pad_to_capacity=True) for each in limits]
    for each in (dropping, padding):
        times = [item.step.seconds for item in each]
        sizes = [item.memory.quantity.estimate for item in each]
        assert times == sorted(times)
        assert sizes == sorted(sizes)
        assert len(set(times)) == len(set(sizes)) == 3
    for remaining, padded in zip(dropping, padding, strict=True):
        assert remaining.step.seconds < 1.01 * padded.step.seconds
    assert dropping[-1].step.seconds < run().step.seconds


def test_exchanges_send_what_is_kept() -> None:
    def sent(training_run: TrainingRun) -> int:
        nodes = {
            f"{block.direction}_{node.name}": node
            for block, node in chunk_graph(training_run.rank, 0, 1).nodes()
        }
        size = nodes["forward_experts_dispatch"].op.dim("bytes")
        assert isinstance(size, int)
        return size

    plain = sent(run("balanced"))
    assert sent(run("balanced", capacity_factor=0.5)) == plain // 2
    assert sent(run("balanced", capacity_factor=1.5, pad_to_capacity=True)) == plain * 3 // 2


def test_memory_of_routed_rows_follows_them() -> None:
    plan, items = TrainingPlan(), []
    for routed in (1.0, 0.5, 2.0):
        rank: Rank = replace(run().rank, capacity=replace(of("balanced", 8.0), rows=routed))
        items.append(int(plan_memory(MIXTRAL, plan, 512, 1, 1, Rules(rank.style)).activations[0]))
    assert items[0] - items[1] == (items[2] - items[0]) // 2 > 0


def test_one_device_drops_too() -> None:
    rank = run().rank
    alone = replace(rank, plan=TrainingPlan(), capacity=of("balanced", 0.5))
    whole = predict_step(replace(alone, capacity=of("balanced", 1.0)), 1)
    assert predict_step(alone, 1).step.seconds < whole.step.seconds


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan"), float("inf")])
def test_factors_of_nothing_are_refused(factor: float) -> None:
    with pytest.raises(SilicastError) as caught:
        of("balanced", factor)
    assert caught.value.field == "capacity_factor"


def test_a_histogram_keeps_its_order() -> None:
    assert of(histogram_name([1, 1, 1, 1, 1, 1, 1, 3]), 1.2).routing.endswith(",1229")


@pytest.mark.parametrize(
    ("model", "work", "field"),
    [
        ("Llama-3.2-1B", {"capacity_factor": 1.0}, "workload.capacity_factor"),
        ("Mixtral-8x7B", {"pad_to_capacity": True}, "workload.pad_to_capacity"),
    ],
)
def test_limits_that_mean_nothing_are_refused(model: str, work: dict[str, Any], field: str) -> None:
    with pytest.raises(SilicastError) as caught:
        run_of(decode({
            "format": 1, "task": "training", "model": model, "device": "B200",
            "cluster": {"gpus": 8}, "workload": {"seq_len": 2048, "global_batch": 8, **work},
        }))  # fmt: skip
    assert caught.value.field == field
