"""The knee of a curve, drawn or estimated."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.serving.capacity.knee import _step_s, estimated_knee, knee_of, prompt_s
from silicast.serving.kv.kv_pool import KvLayout
from silicast.serving.simulation.event_loop import ReplicaSpec
from silicast.serving.simulation.scheduler import Limits, scheduler_named
from silicast.serving.traffic.requests import Requests
from tests.property.serving_cases import PlainPrices


@given(st.floats(0.1, 10.0), st.integers(8, 60))
def test_the_knee_of_a_queue_is_half_its_capacity(service_s: float, points: int) -> None:
    """M/M/1: throughput r, latency s / (1 - r s): their ratio is largest at r s = 1/2."""
    loads = np.arange(1, points) / points
    position = knee_of((loads / service_s).tolist(), (service_s / (1.0 - loads)).tolist())
    assert abs(loads[position] - 0.5) <= 0.5 / points + 1e-9


def test_steps_by_hand() -> None:
    """10 ms a step, 0.1 a new token, 0.01 a cached one; work of 30 ms beside the pass or after."""
    prices = PlainPrices(step_s=10e-3, token_s=1e-4, cached_s=1e-5, work_s=30e-3, gap_s=1e-3)
    spec = ReplicaSpec(
        prices, scheduler_named("vllm-v1"), Limits(512, 100, 10**6), KvLayout.plain()
    )
    # chunks of 100, 100 and 50 tokens, each after those before it
    pieces_s = 3 * 10e-3 + 250 * 1e-4 + (100 + 200 + 250) * 1e-5
    assert prompt_s(spec, 250) == pytest.approx(pieces_s)
    # of 250 tokens 120 are cached: chunks of 100 and 30 after them
    held_s = 2 * 10e-3 + 130 * 1e-4 + (220 + 250) * 1e-5
    assert prompt_s(spec, 250, 120) == pytest.approx(held_s)
    assert prompt_s(spec, 30) == pytest.approx(10e-3 / 3 + 30 * (1e-4 + 1e-5))
    assert prompt_s(spec, 5) == pytest.approx(10e-3 / 8 + 5 * (1e-4 + 1e-5))  # eight at most
    assert prompt_s(spec, 100) == pytest.approx(10e-3 + 100 * (1e-4 + 1e-5))
    pass_s = 10e-3 + 4 * 1e-4 + 4 * 70 * 1e-5
    assert _step_s(spec, 4, 70) == pytest.approx(1e-3 + 30e-3)
    assert _step_s(spec, 400, 70) == pytest.approx(1e-3 + 10e-3 + 400 * (1e-4 + 70e-5))
    alone = replace(spec, prices=replace(prices, asynchronous=False))
    assert _step_s(alone, 4, 70) == pytest.approx(1e-3 + pass_s + 30e-3)


def test_the_estimate_is_that_of_straight_step_times() -> None:
    """Steps of a + bB, prefill p: X = 1 / (p + nb + na / B), the knee at B = na / (p + nb)."""
    prices = PlainPrices(step_s=10e-3, token_s=1e-4, cached_s=0.0, work_s=0.0, gap_s=0.0)
    count = 20
    requests = Requests.from_arrays(
        np.zeros(count, dtype=np.int64), np.full(count, 100), np.full(count, 101)
    )
    spec = ReplicaSpec(
        prices, scheduler_named("vllm-v1"), Limits(512, 100, 10**6), KvLayout.plain()
    )
    result = estimated_knee(spec, requests)
    prefill = 10e-3 + 100 * 1e-4
    fixed, each = 100 * 10e-3, prefill + 100 * 1e-4
    assert result.concurrency == pytest.approx(fixed / each, rel=0.1)
    assert result.rate_per_s == pytest.approx(0.5 / each, rel=0.05)
    assert result.most_concurrency == 512
    assert result.most_per_s == pytest.approx(1.0 / (each + fixed / 512), rel=1e-6)
    twice = estimated_knee(spec, requests, replicas=2)
    assert twice.rate_per_s == pytest.approx(2 * result.rate_per_s)
    front = replace(spec, front_ns=10**8, front_token_ns=10**6)  # 0.2 s a prompt
    assert estimated_knee(front, requests, replicas=2).most_per_s == pytest.approx(10.0)
    assert estimated_knee(replace(front, groups=4), requests).most_per_s == pytest.approx(5.0)
