"""Statistics against their definitions, on records that are written down by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.serving.simulation.scheduler import Limits, SimulatedRequests
from silicast.serving.statistics.metrics import (
    goodput_per_s,
    kv_use,
    queue,
    rates,
    span_s,
    statistics_ms,
)
from silicast.serving.statistics.records import Records, StepLog
from silicast.serving.statistics.use import limited_by, step_shares
from silicast.serving.traffic.requests import Requests

MS = 1_000_000


def records_of(rows: list[tuple[int, int, int, int, int, int]], prompt: int = 10) -> Records:
    """Requests as (sent, arrived, scheduled, first, done) in milliseconds and output tokens."""
    count = len(rows)
    outputs = [row[5] for row in rows]
    requests = Requests.from_arrays(
        np.array([row[0] for row in rows]) * MS, np.full(count, prompt), np.array(outputs)
    )
    records = Records(requests, SimulatedRequests(requests.input_tokens, requests.output_tokens))
    for index, name in enumerate(("sent_ns", "arrived_ns", "scheduled_ns", "first_ns", "done_ns")):
        getattr(records, name)[:] = np.array([row[index] for row in rows]) * MS
    records.replica[:] = 0
    return records


TWO = records_of([(0, 0, 0, 10, 30, 3), (5, 5, 10, 25, 25, 1)])


def test_times_are_those_of_the_benchmark_tools() -> None:
    result = statistics_ms(TWO)
    assert result["ttft_mean_ms"] == pytest.approx((10 + 20) / 2)
    assert result["tpot_mean_ms"] == pytest.approx(20 / 2)  # of the request with two and more
    assert result["e2e_p50_ms"] == pytest.approx((30 + 20) / 2)
    assert "itl_mean_ms" not in result


def test_each_gap_between_tokens_counts_once() -> None:
    """Nine gaps of 10 ms and one of 110: rank 1 + 0.9 x 9 is beyond the ninth."""
    records = records_of([(0, 0, 0, 10, 210, 11)])
    records.gaps.add(10 * MS, 5)
    records.gaps.add(110 * MS, 1)
    records.gaps.add_each([10 * MS, 10 * MS], 2)
    result = statistics_ms(records)
    assert result["itl_mean_ms"] == pytest.approx((9 * 10 + 110) / 10)
    assert result["itl_p50_ms"] == pytest.approx(10.0)
    assert result["itl_p90_ms"] == result["itl_p99_ms"] == pytest.approx(110.0)


def test_throughput_counts_from_the_first_request_to_the_last_token() -> None:
    assert span_s(TWO) == pytest.approx(0.030)
    result = rates(TWO)
    assert result["output_tokens_per_s"] == pytest.approx(4 / 0.030)
    assert result["total_tokens_per_s"] == pytest.approx(24 / 0.030)
    assert result["requests_per_s"] == pytest.approx(2 / 0.030)


@pytest.mark.parametrize(
    ("limits", "good"),
    [({}, 2), ({"ttft": 15.0}, 1), ({"tpot": 5.0}, 1), ({"tpot": 10.0, "e2e": 25.0}, 1),
     # 20 ms after the first of three tokens: 10 each, not 20 / 3
     ({"tpot": 10.0}, 2), ({"tpot": 8.0}, 1),
     ({"itl": 8.0}, 1), ({"itl": 5.0, "ttft": 15.0}, 0), ({"e2e": 30.0}, 2)],
)  # fmt: skip
def test_goodput_counts_requests_that_keep_every_limit(limits: dict[str, float], good: int) -> None:
    assert goodput_per_s(TWO, limits) == pytest.approx(good / 0.030)


def test_goodput_of_a_slower_run_is_lower() -> None:
    assert goodput_per_s(TWO, {"e2e": 30.0}, slower=2.0) == 0.0
    assert goodput_per_s(TWO, {"e2e": 60.0}, slower=2.0) == pytest.approx(2 / 0.060)


@given(
    st.lists(
        st.tuples(*(st.integers(0, 50) for _ in range(5)), st.integers(1, 40)),
        min_size=1,
        max_size=12,
    )
)
def test_the_mean_queue_is_littles_law(rows: list[tuple[int, ...]]) -> None:
    """Mean depth = rate x mean wait; never more wait at once than there are."""
    records = records_of([(*np.cumsum(row[:5]).tolist(), row[5]) for row in rows])
    if not span_s(records):
        return
    remark = queue(records)
    rate = len(rows) / span_s(records)
    assert remark["queue_depth_mean"] == pytest.approx(rate * remark["queue_mean_ms"] * 1e-3)
    assert 0 <= remark["queue_depth_max"] <= len(rows)
    moments = np.sort(np.concatenate((records.arrived_ns, records.scheduled_ns)))
    depth = [
        int(((records.arrived_ns <= t) & (t < records.scheduled_ns)).sum())
        for t in moments.tolist()
    ]
    assert remark["queue_depth_max"] == max(depth)


@given(st.integers(1, 40), st.integers(2, 60), st.sampled_from([1, 4, 16]))
def test_fragmentation_is_what_last_blocks_lack(prompt: int, output: int, size: int) -> None:
    """Against a count of every token of one sequence that grows evenly."""
    records = records_of([(0, 0, 0, 0, output - 1, output)], prompt)
    lengths = np.arange(prompt + 1, prompt + output)  # of each decode step of a millisecond
    blocks = -(-lengths // size)
    for step, used in enumerate(blocks.tolist()):
        records.log.add(*_row(step * MS, (step + 1) * MS, blocks=used))
    remark = kv_use(records, blocks=[1000], block_tokens=[size])
    empty = (blocks * size - lengths).sum() / (blocks.sum() * size)
    assert remark["kv_fragmentation"] == pytest.approx(empty)
    assert remark["kv_utilisation"] == pytest.approx(blocks.mean() / 1000)
    assert remark["kv_utilisation_max"] == pytest.approx(blocks.max() / 1000)


def test_no_more_is_in_use_on_average_than_at_most() -> None:
    records = records_of([(0, 0, 0, 10, 30, 3)])
    records.log.add(*_row(0, MS, blocks=8, blocks_end=2))
    remark = kv_use(records, blocks=[10], block_tokens=[16])
    assert remark["kv_utilisation"] == pytest.approx(0.5)
    assert remark["kv_utilisation_max"] == pytest.approx(0.8)
    empty = kv_use(records_of([(0, 0, 0, 10, 30, 3)]), blocks=[10], block_tokens=[16])
    assert empty == {"kv_utilisation": 0.0, "kv_utilisation_max": 0.0}


def test_what_kept_requests_out_is_named() -> None:
    records = records_of([(0, 0, 0, 10, 30, 3)])
    for row in (
        _row(0, 10 * MS, running=4, waiting=1),  # as many as may run
        _row(10 * MS, 20 * MS, running=2, waiting=1, blocks=95),  # no room for ten blocks
        _row(20 * MS, 30 * MS, running=2, waiting=1, prefill_tokens=64),  # the whole budget
        _row(30 * MS, 40 * MS, running=2, waiting=0),
    ):
        records.log.add(*row)
    spec = SimpleNamespace(limits=Limits(4, 64, 100), groups=1)
    shares = limited_by(records, spec, prompt_blocks=10)  # type: ignore[arg-type]
    assert shares == {
        "waiting": 0.75, "sequences": 0.25, "kv_cache": 0.25, "step_tokens": 0.25, "order": 0.0,
    }  # fmt: skip
    assert step_shares(records)["running_mean"] == pytest.approx((4 + 2 + 2 + 2) * 10 / 30)


def _row(start_ns: int, end_ns: int, **values: int) -> tuple[int, ...]:
    """A row of a log, zero where nothing is given."""
    known = {"start_ns": start_ns, "end_ns": end_ns, "steps": 1, "decoding": 1} | values
    known = {"blocks_end": known.get("blocks", 0)} | known
    return tuple(known.get(name, 0) for name in StepLog.COLUMNS)


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 200)), min_size=1, max_size=12),
    st.integers(0, 120),
    st.integers(1, 120),
)
def test_in_a_window_never_more_wait_on_average_than_at_most(
    rows: list[tuple[int, int]], first: int, size: int
) -> None:
    """Whoever waits meanwhile counts for as long as it is inside, also if it began before or ends
    after.
    """
    records = records_of([(come, come, come + wait, come + wait, 300, 1) for come, wait in rows])
    records.window_ns = (first * MS, (first + size) * MS)
    remark = queue(records)
    inside = [max(min(come + wait, first + size) - max(come, first), 0) for come, wait in rows]
    assert remark["queue_depth_mean"] == pytest.approx(sum(inside) / size)
    assert remark["queue_depth_mean"] <= remark["queue_depth_max"] + 1e-9
