"""Serving plans in closed form: the fewest replicas that keep the limits, and no fewer."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from silicast.composition.engines.engine import find_engine
from silicast.composition.passes.closed_loop import closed_loop, loop_curve
from silicast.composition.passes.deployment import Deployment
from silicast.exploration.serving_plans import (
    PlanCurve,
    PlanTraffic,
    apart,
    degrees_of,
    together,
    with_fewer,
    with_more,
)
from silicast.hardware.catalog import find_device
from silicast.workload.models.lookup import find_model
from silicast.workload.transformers.plan import Plan

TRAFFIC = PlanTraffic(60.0, 512, 64, 512, 64, {"ttft": 500.0, "tpot": 12.0})


@pytest.fixture(scope="module")
def curve() -> PlanCurve:
    deployment = Deployment.from_model(
        find_model("Llama-3.1-8B"), find_device("h100"), find_engine("vllm")
    )
    return PlanCurve(deployment, TRAFFIC)


def test_a_curve_is_the_closed_loop_at_each_number_of_clients(curve: PlanCurve) -> None:
    loops = [closed_loop(curve.deployment, n, 512, 64) for n in (1, 8)]
    drawn = loop_curve(curve.deployment, [1, 8], 512, 64)
    assert drawn.tpot_s.tolist() == [each.tpot_s.estimate for each in loops]
    assert drawn.requests_per_s == pytest.approx([e.tokens_per_s.estimate / 64 for e in loops])


def test_the_fewest_replicas_that_keep_the_limits(curve: PlanCurve) -> None:
    plan = together(curve, TRAFFIC, 32, {})
    (pool,) = plan.pools
    assert not plan.reason
    assert pool.replicas > 1
    assert plan.tpot_s <= 0.012
    fewer = TRAFFIC.rate_per_s / (pool.replicas - 1)
    _, ttft_s, tpot_s = curve.at_rate(fewer)
    assert ttft_s > 0.5 or tpot_s > 0.012
    more = with_more(plan, 32)
    assert more is not None
    assert more.gpus == plan.gpus + 1
    assert with_more(plan, plan.gpus) is None


def test_a_replica_fewer_breaks_a_limit_by_its_excess(curve: PlanCurve) -> None:
    plan = together(curve, TRAFFIC, 32, {})
    (fewer,) = with_fewer(plan)
    assert fewer.gpus == plan.gpus - 1
    _, ttft_s, tpot_s = curve.at_rate(TRAFFIC.rate_per_s / (plan.gpus - 1))
    assert fewer.excess is not None
    assert fewer.excess.ratio == pytest.approx(max(ttft_s / 0.5, tpot_s / 0.012))
    assert fewer.excess.ratio > 1.0
    many = replace(TRAFFIC, rate_per_s=1e5)
    excess = together(curve, many, 2, {}).excess
    assert excess is not None
    assert excess.metric == "rate"
    assert excess.ratio == pytest.approx(1e5 / 2 / curve.curve.requests_per_s.max())
    assert with_fewer(together(curve, replace(TRAFFIC, rate_per_s=1.0), 32, {})) == []


def test_no_plan_has_no_replica(curve: PlanCurve) -> None:
    # What is tried with a replica fewer is asked in turn what fewer replicas break.
    plan = together(curve, TRAFFIC, 32, {})
    assert [more for less in with_fewer(plan) for more in with_fewer(less)] == []


def test_each_pool_may_lose_a_replica(curve: PlanCurve) -> None:
    traffic = replace(TRAFFIC, rate_per_s=800.0)
    best = apart([curve], traffic, 128, {})[0]
    prefill, decode = (pool.replicas for pool in best.pools)
    counts = {tuple(pool.replicas for pool in each.pools) for each in with_fewer(best)}
    assert counts == {(prefill - 1, decode), (prefill, decode - 1)}
    assert all(each.excess and each.excess.ratio > 1.0 for each in with_fewer(best))


def test_requests_at_once_follow_littles_law(curve: PlanCurve) -> None:
    clients, ttft_s, tpot_s = curve.at_rate(10.0)
    lifetime_s = ttft_s + 63 * tpot_s
    assert clients == pytest.approx(10.0 * lifetime_s, rel=0.15)
    assert curve.at_rate(1e6)[0] == math.inf


def test_what_cannot_be_kept_says_which_limit(curve: PlanCurve) -> None:
    tight = replace(TRAFFIC, limits_ms={"tpot": 0.1})
    plan = together(curve, tight, 8, {})
    assert plan.reason == f"tpot {plan.tpot_s * 1e3:.3g} ms in the mean, above 0.1"
    assert plan.excess is not None
    assert plan.excess.metric == "tpot"
    assert plan.excess.ratio == pytest.approx(plan.tpot_s / 1e-4)
    assert "answer" in together(curve, replace(TRAFFIC, rate_per_s=1e5), 2, {}).reason


def test_pools_apart_carry_the_rate_each(curve: PlanCurve) -> None:
    best, *others = apart([curve], TRAFFIC, 32, {})
    prefill, decode = best.pools
    assert (prefill.role, decode.role) == ("prefill", "decode")
    assert TRAFFIC.rate_per_s / prefill.replicas * float(curve.curve.first_s[0]) <= 0.9
    assert decode.clients * decode.replicas == pytest.approx(
        TRAFFIC.rate_per_s * 63 * best.tpot_s, rel=0.02
    )
    assert all(best.rank <= each.rank for each in others)
    assert apart([curve], TRAFFIC, 1, {}) == []


def test_plans_fit_the_devices_and_only_experts_are_spread() -> None:
    def plans(model: str, gpus: int) -> list[Plan]:
        deployment = Deployment.from_model(
            find_model(model), find_device("h100"), find_engine("vllm")
        )
        return list(degrees_of(deployment, gpus))

    dense, experts = plans("Llama-3.1-8B", 8), plans("Qwen3-30B-A3B", 8)
    assert all(plan.gpus <= 8 for plan in (*dense, *experts))
    assert {(p.ep, p.attention_dp) for p in dense} == {(1, 1)}
    assert Plan(tp=1, ep=8, attention_dp=8) in experts
    assert Plan(tp=8, ep=8) in experts
    assert len(set(experts)) == len(experts)
    assert np.prod([len(dense)]) == len(set(dense))
