from __future__ import annotations

import numpy as np
import pytest

from silicast.core.errors import SilicastError
from silicast.distributed.pipeline.dependencies import WAITS
from silicast.distributed.pipeline.pipeline import Durations, pipeline_times
from silicast.distributed.schedules.order import BACKWARD, FORWARD, Order, Placement
from silicast.distributed.schedules.schedule import schedule
from silicast.distributed.step.step_trace import pipeline_trace
from silicast.report.drawing.trace import trace_document
from tests.unit.report.trace_format import check_trace


def test_one_rank_takes_the_plain_sum_bit_for_bit() -> None:
    order = schedule("1f1b").order(1, 7)
    result = pipeline_times(order, Durations.equal(order.placement, 0.1, 0.2, 0.07), 3.0)
    total = 0.0
    for _ in range(7):
        total = total + 0.1
        total = total + (0.2 + 0.07)
    assert result.makespan == total
    assert result.idle_share == pytest.approx(0.0, abs=1e-15)


def test_ranks_that_wait_for_each_other_are_named() -> None:
    lists = [
        [(FORWARD, 0, 0), (BACKWARD, 0, 0), (FORWARD, 1, 0), (BACKWARD, 1, 0)],
        [(FORWARD, 0, 0), (FORWARD, 1, 0), (BACKWARD, 0, 0), (BACKWARD, 1, 0)],
    ]
    order = Order.from_actions(Placement.interleaved(2), 2, lists)
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


def test_transfers_that_hold_up_their_sender_cost_more() -> None:
    order = schedule("1f1b").order(4, 8)
    durations = Durations.equal(order.placement, 10, 10, 10)
    spans = [pipeline_times(order, durations, 5, waits).makespan for waits in WAITS]
    assert spans == sorted(spans)
    assert spans[0] < spans[1]


def test_blocking_transfers_can_deadlock() -> None:
    order = schedule("interleaved").order(4, 8, 2)
    durations = Durations.equal(order.placement, 1, 1, 1)
    with pytest.raises(SilicastError) as caught:
        pipeline_times(order, durations, 1, "both")
    assert "rank 0, before forward of micro-batch 7, chunk 0, waits to send" in str(caught.value)


def test_times_that_are_none_are_refused() -> None:
    order = schedule("1f1b").order(2, 2)
    good = Durations.equal(order.placement, 1.0, 1.0, 1.0)
    with pytest.raises(SilicastError, match="transfer: a time is negative"):
        pipeline_times(order, good, -1.0)
    with pytest.raises(SilicastError, match="durations: a time is negative or no finite"):
        pipeline_times(order, Durations(good.each * np.nan))
    with pytest.raises(SilicastError, match="expected \\(4, 2, 1\\)"):
        pipeline_times(order, Durations(good.each[:, :1]))


def test_the_slow_stage_is_on_the_critical_path() -> None:
    order = schedule("1f1b").order(4, 32)
    slow = np.array([1.0, 1.0, 1.5, 1.0])
    result = pipeline_times(order, Durations.of_stages(order.placement, slow, slow, slow))
    assert result.critical.rank == 2
    assert result.critical.by_kind[:2].sum() == pytest.approx(result.makespan)
    assert result.idle_share == pytest.approx(1 - 32 * 3 * 4.5 / (4 * result.makespan))


@pytest.mark.parametrize("name", ["1f1b", "zbv", "dualpipe"])
def test_timelines_open_in_a_viewer(name: str) -> None:
    order = schedule(name).order(4, 8)
    times = pipeline_times(order, Durations.equal(order.placement, 1e-3, 2e-3, 1e-3), 1e-5)
    trace = pipeline_trace(times)
    check_trace(trace_document(trace))
    assert len({each.track for each in trace.slices}) == 4
    sent = 2 * 8 * (order.placement.stages - 1)
    assert len(trace.arrows) == sent - (16 if name == "zbv" else 0)  # the turn sends nothing
