"""The fewest devices for users who each want a speed."""

from __future__ import annotations

import math

import pytest

from silicast.composition.engines.engine import find_engine
from silicast.composition.passes.closed_loop import closed_loop
from silicast.composition.passes.deployment import Deployment
from silicast.core.errors import SilicastError
from silicast.exploration.carried import UserDemand, fewest_devices, plans_by_size, smallest_plan
from silicast.hardware.catalog import find_device
from silicast.workload.models.lookup import find_model

ONE = Deployment.from_model(find_model("Llama-3.1-8B"), find_device("h100"), find_engine("vllm"))
DEMAND = UserDemand(users=300, tpot_s=0.025, prompt_tokens=512, output_tokens=128)


def test_every_user_has_the_speed_and_one_more_replica_is_not_needed() -> None:
    result = fewest_devices(ONE, DEMAND, searches=False)
    assert result.loop.tpot_s.estimate <= DEMAND.tpot_s
    assert result.loop.clients * result.replicas >= DEMAND.users
    assert result.gpus.p05 <= result.gpus.estimate == result.replicas <= result.gpus.p95
    a_replica = math.ceil(DEMAND.users / result.replicas)
    assert result.loop.tpot_s == closed_loop(ONE, a_replica, 512, 128).tpot_s
    fewer = -(-DEMAND.users // (result.replicas - 1))
    slower = closed_loop(ONE, fewer, 512, 128).tpot_s.estimate
    assert slower > DEMAND.tpot_s


def test_a_search_is_no_worse_than_one_plan() -> None:
    current, best = (fewest_devices(ONE, DEMAND, searches=searches) for searches in (False, True))
    assert best.gpus.estimate <= current.gpus.estimate


def test_more_speed_takes_more_devices_and_too_much_is_refused() -> None:
    counts = [
        fewest_devices(ONE, UserDemand(300, tpot, 512, 128), searches=False).gpus.estimate
        for tpot in (0.05, 0.02, 0.0105)
    ]
    assert counts == sorted(counts)
    with pytest.raises(SilicastError, match="one user alone has"):
        fewest_devices(ONE, UserDemand(1, 1e-4, 512, 128), searches=True)


def test_plans_grow_and_the_smallest_that_fits_is_taken() -> None:
    counts = [plan.gpus for plan in plans_by_size(ONE)]
    assert counts == sorted(set(counts))
    plan = smallest_plan(ONE, lambda each: each.plan.gpus >= 3)
    assert plan is not None
    assert plan.gpus == 4
    assert smallest_plan(ONE, lambda _: False) is None


def test_users_who_wait_for_a_front_have_the_speed_of_their_whole_answer() -> None:
    """5 ms a request: 200 users have their 20 tokens in a second, which is 20 a second each."""
    small = Deployment.from_model(
        find_model("Llama-3.2-1B"), find_device("h100"), find_engine("vllm")
    )
    result = fewest_devices(small, UserDemand(400, 0.05, 500, 20), searches=False)
    assert result.replicas == 2
    assert result.loop.token_s == pytest.approx(0.05)
    assert result.loop.tpot_s.estimate < 0.01
