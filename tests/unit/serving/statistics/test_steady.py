"""The part of a run that shows its steady state."""

from __future__ import annotations

import numpy as np
import pytest

from silicast.core.numerics import I64
from silicast.serving.simulation.scheduler import SimulatedRequests
from silicast.serving.statistics.metrics import goodput_per_s, rates, span_s, statistics_ms
from silicast.serving.statistics.records import Records
from silicast.serving.statistics.steady import (
    batch_means,
    keeps_up,
    queue_growth,
    saturated_window,
    steady_window,
    truncation,
)
from silicast.serving.traffic.requests import SECOND_NS, Requests

GAP_NS = SECOND_NS // 10


def _records(ttft_ns: I64, *, e2e_ns: int = 10 * GAP_NS) -> Records:
    """Requests ten a second of 100 and 11 tokens that take so long each."""
    count = len(ttft_ns)
    arrival = (np.arange(count) + 1) * GAP_NS
    tokens = np.full(count, 11, dtype=np.int64)
    base = Requests.from_arrays(arrival, np.full(count, 100, dtype=np.int64), tokens)
    requests = Requests(**{**vars(base), "steady": True})
    records = Records(requests, SimulatedRequests(requests.input_tokens, requests.output_tokens))
    records.sent_ns[:] = records.arrived_ns[:] = arrival
    records.scheduled_ns[:] = arrival + ttft_ns
    records.first_ns[:] = arrival + ttft_ns
    records.done_ns[:] = records.first_ns + e2e_ns
    records.end_ns = int(records.done_ns.max())
    return records


def test_the_window_leaves_out_one_answer_time_at_either_end() -> None:
    records = _records(np.zeros(200, dtype=np.int64))
    # answers take a second, ten requests are sent in that time: the first is sent at 0.1 s
    assert steady_window(records) == (11 * GAP_NS, 190 * GAP_NS)


def test_a_longer_warm_up_is_left_out_too() -> None:
    slow = np.where(np.arange(200) < 40, 5 * SECOND_NS, 0)
    records = _records(slow)
    window = steady_window(records)
    assert window is not None
    assert window[0] == 41 * GAP_NS  # the first that was quick, after eight batches of five


def test_neither_end_loses_more_than_a_quarter() -> None:
    records = _records(np.zeros(100, dtype=np.int64), e2e_ns=1000 * GAP_NS)
    assert steady_window(records) == (26 * GAP_NS, 76 * GAP_NS)


def test_too_few_requests_show_no_steady_state() -> None:
    assert steady_window(_records(np.zeros(39, dtype=np.int64))) is None


def test_rates_of_a_queue_that_keeps_up_are_those_at_which_requests_come() -> None:
    records = _records(np.zeros(200, dtype=np.int64))
    whole = rates(records)["requests_per_s"]
    assert whole == pytest.approx(200 / 20.9)  # 0.1 s to 20 s, and a second for the last answer
    records.window_ns = steady_window(records)
    assert span_s(records) == pytest.approx(17.9)
    assert keeps_up(records)
    assert rates(records) == pytest.approx(
        {"output_tokens_per_s": 110.0, "total_tokens_per_s": 1110.0, "requests_per_s": 10.0}
    )
    assert goodput_per_s(records, {"e2e": 1001.0}) == pytest.approx(10.0)
    assert goodput_per_s(records, {"e2e": 999.0}) == 0.0


def test_rates_of_a_queue_that_grows_are_what_is_answered_in_the_window() -> None:
    waits = np.arange(200, dtype=np.int64) * GAP_NS  # each waits a gap longer than the one before
    records = _records(waits, e2e_ns=GAP_NS)
    records.window_ns = steady_window(records)
    assert queue_growth(records) == pytest.approx(1.0)
    assert not keeps_up(records)
    assert rates(records)["requests_per_s"] == pytest.approx(5.0, rel=0.05)  # one every two gaps


def test_latencies_are_of_requests_sent_in_the_window() -> None:
    ttft = np.full(200, 7_000_000, dtype=np.int64)
    ttft[:5] = ttft[-5:] = 90_000_000
    records = _records(ttft)
    assert statistics_ms(records)["ttft_mean_ms"] > 7.0
    records.window_ns = steady_window(records)
    assert statistics_ms(records)["ttft_mean_ms"] == pytest.approx(7.0)


def test_gaps_between_tokens_are_of_the_window() -> None:
    records = _records(np.zeros(640, dtype=np.int64))
    for moment in range(1, 641):
        records.gaps_at(moment * GAP_NS).add(moment, 1)
    assert records.gaps.table()[0].tolist() == list(range(1, 641))
    records.window_ns = (160 * GAP_NS, 480 * GAP_NS)
    gaps, counts = records.gaps.table()
    assert counts.sum() == pytest.approx(320, abs=12)  # a bin is ten gaps long
    assert 150 <= gaps[0] <= 170
    assert 470 <= gaps[-1] <= 490
    assert len(records.whole().gaps.table()[0]) == 640


def test_the_rule_cuts_where_the_standard_error_is_least() -> None:
    values = np.array([50.0, 20.0, 3.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0])
    scores = [np.var(values[cut:]) / len(values[cut:]) for cut in range(6)]
    assert truncation(values) == int(np.argmin(scores)) == 3
    assert batch_means(np.arange(14.0)).tolist() == [2.0, 7.0]


def test_a_queue_grows_where_more_and_more_run_at_once() -> None:
    """No request waits for its first step, and each takes 0.2 s longer for every second that it is
    sent later: a fifth fewer are answered than come.
    """
    records = _records(np.zeros(400, dtype=np.int64))
    records.done_ns[:] += (np.arange(400) * GAP_NS) // 5
    assert queue_growth(records) == pytest.approx(0.2, rel=0.01)
    assert not keeps_up(records)


def test_rates_of_a_growing_queue_are_of_the_saturated_server() -> None:
    """All come in 2 s; the server answers none for 1 s, then 20 a second until the last begins."""
    count = 200
    records = _records(np.zeros(count, dtype=np.int64))
    records.sent_ns[:] = records.arrived_ns[:] = np.arange(count) * (GAP_NS // 10)
    records.done_ns[:] = SECOND_NS + (np.arange(count) + 1) * (GAP_NS // 2)
    records.scheduled_ns[:] = records.first_ns[:] = records.done_ns - SECOND_NS // 2
    records.end_ns = int(records.done_ns.max())
    records.window_ns = steady_window(records)
    sparse = rates(records)["requests_per_s"]
    records.worked_ns = saturated_window(records)
    assert not keeps_up(records)
    assert sparse < 15.0
    assert rates(records)["requests_per_s"] == pytest.approx(20.0, rel=0.02)
    assert records.whole().span_ns is None
