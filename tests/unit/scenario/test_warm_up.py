"""Requests that are answered before the run that is measured."""

from __future__ import annotations

from typing import Any

import pytest

import silicast
from silicast.app.api import Predicted
from silicast.core.errors import SilicastError
from silicast.report.tasks.serving import span_lines

CLOSED = {"kind": "closed", "concurrency": 8}
LATENCIES = ("ttft_mean_ms", "ttft_p99_ms", "tpot_mean_ms", "itl_p99_ms", "e2e_mean_ms")
PREFIX = {"length": 800, "groups": 4}


def served(warm_up: int = 0, **workload: Any) -> Predicted:
    work = {"arrival": CLOSED, "requests": 40, "input_len": 1000, "output_len": 50, **workload}
    if warm_up:
        work["warm_up_requests"] = warm_up
    case = {"task": "serving", "model": "Llama-3.1-8B", "device": "H100", "workload": work}
    return silicast.predict(case)


def test_the_run_behind_a_warm_up_is_the_run_alone_where_nothing_is_cached() -> None:
    alone, behind = served(), served(16)
    for name in (*LATENCIES, "requests_per_s", "output_tokens_per_s"):
        first, second = alone.metrics[name].estimate, behind.metrics[name].estimate
        assert second == pytest.approx(first, rel=1e-6), name
    assert behind.why["requests"] == {"sent": 40, "answered": 40}
    assert behind.why["warm_up"] == {"requests": 16}
    assert "steady_state" not in behind.why


def test_a_warm_up_fills_caches_of_prefixes() -> None:
    """Of each prompt 800 of 1,000 tokens are a prefix; without a warm-up four are computed."""
    alone, behind = served(prefix=PREFIX), served(16, prefix=PREFIX)
    assert alone.metrics["prefix_hit_rate"].estimate == pytest.approx(0.8 * 36 / 40, abs=0.01)
    assert behind.metrics["prefix_hit_rate"].estimate == pytest.approx(0.8, abs=1e-9)
    assert behind.metrics["ttft_p99_ms"].estimate < alone.metrics["ttft_p99_ms"].estimate


def test_requests_at_a_rate_come_when_the_warm_up_is_answered() -> None:
    arrival = {"kind": "constant", "rate_per_s": 5}
    alone, behind = served(arrival=arrival), served(16, arrival=arrival)
    for name in LATENCIES:
        first, second = alone.metrics[name].estimate, behind.metrics[name].estimate
        assert second == pytest.approx(first, rel=1e-6), name
    assert behind.why["requests"] == alone.why["requests"]
    assert behind.why["requests"]["sent"] == 40
    assert behind.why["knee"] == pytest.approx(alone.why["knee"])
    text = "\n".join(span_lines(behind.why))
    assert text.startswith("40 requests from")
    assert "16 before not counted" in text


def test_no_request_is_late_because_it_waits_for_the_warm_up() -> None:
    arrival = {"kind": "constant", "rate_per_s": 5, "concurrency": 40}
    behind = served(16, arrival=arrival)
    assert behind.why["requests"]["sent_per_s"] == pytest.approx(5.0)
    assert not [each for each in behind.warnings if "sent later" in each]


@pytest.mark.parametrize(
    ("workload", "text"),
    [
        ({"arrival": {"kind": "poisson", "rate_per_s": 5}, "requests": None}, "steady state"),
        ({"sessions": {"turns": 2}}, "sessions"),
        ({"arrival": {"kind": "trace", "rows": [[0.0, 10, 10]]}, "requests": None}, "traces"),
        ({"warm_up_requests": -1}, "-1"),
    ],
)
def test_traffic_without_a_run_before_has_no_warm_up(workload: dict[str, Any], text: str) -> None:
    with pytest.raises(SilicastError) as caught:
        served(**{"warm_up_requests": 4, **workload})
    assert caught.value.field == "workload.warm_up_requests"
    assert text in str(caught.value)
