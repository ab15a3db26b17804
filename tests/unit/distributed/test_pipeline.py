from __future__ import annotations

import numpy as np
import pytest

from silicast.core.errors import SilicastError
from silicast.distributed.pipeline import Durations, pipeline_times
from silicast.distributed.schedules.order import BACKWARD, FORWARD, Order, Placement
from silicast.distributed.schedules.schedule import schedule


def test_one_rank_takes_the_plain_sum_bit_for_bit() -> None:
    order = schedule("1f1b").order(1, 7)
    found = pipeline_times(order, Durations.equal(order.placement, 0.1, 0.2, 0.07), 3.0)
    total = 0.0
    for _ in range(7):
        total = total + 0.1
        total = total + (0.2 + 0.07)
    assert found.makespan == total
    assert found.idle_share == pytest.approx(0.0, abs=1e-15)


def test_ranks_that_wait_for_each_other_are_named() -> None:
    lists = [
        [(FORWARD, 0, 0), (BACKWARD, 0, 0), (FORWARD, 1, 0), (BACKWARD, 1, 0)],
        [(FORWARD, 0, 0), (FORWARD, 1, 0), (BACKWARD, 0, 0), (BACKWARD, 1, 0)],
    ]
    order = Order.of(Placement.interleaved(2), 2, lists)
    with pytest.raises(SilicastError) as caught:
        pipeline_times(order, Durations.equal(order.placement, 1, 1, 1))
    text = str(caught.value)
    assert "rank 0, before backward of micro-batch 0, waits for gradients of micro-batch 0" in text
    assert "rank 1, before forward of micro-batch 1, waits for activations of micro-batch 1" in text


def test_many_plans_are_evaluated_as_each_alone() -> None:
    order = schedule("interleaved").order(4, 8, 2)
    random = np.random.default_rng(0)
    each = random.integers(1, 100, (4, 4, 2, 5))
    transfer = random.integers(0, 20, (4, 4, 5))
    both = pipeline_times(order, Durations(each), transfer)
    for plan in range(5):
        one = pipeline_times(order, Durations(each[..., plan]), transfer[..., plan])
        assert np.array_equal(one.start, both.start[:, plan])
        assert one.makespan == both.makespan[plan]
