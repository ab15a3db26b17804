"""Goodput at both ends of the latencies that it is judged by."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

import silicast

CASE: dict[str, Any] = {
    "task": "serving",
    "model": "Llama-3.2-1B",
    "device": "h100",
    "workload": {
        "input_len": 300,
        "output_len": 60,
        "range_ratio": 0.3,
        "arrival": {"kind": "poisson", "rate_per_s": 40.0},
        "requests": 900,
    },
}


@cache
def answered(**slo: float) -> Any:
    return silicast.predict({**CASE, "workload": {**CASE["workload"], "slo": slo}}).metrics


@pytest.mark.parametrize("statistic", ["tpot_p99_ms", "ttft_p50_ms", "e2e_p90_ms"])
def test_a_limit_inside_an_interval_is_missed_at_its_far_end(statistic: str) -> None:
    latency = answered(e2e_ms=1e6)[statistic]
    share = float(statistic.split("_")[1][1:]) / 100
    between = {statistic: (latency.estimate * latency.p95) ** 0.5}
    rate, goodput = (answered(**between)[name] for name in ("requests_per_s", "goodput_per_s"))
    assert goodput.p05 < share * rate.p95 < goodput.estimate <= goodput.p95
    between = {statistic: (latency.estimate * latency.p05) ** 0.5}
    goodput = answered(**between)["goodput_per_s"]
    assert goodput.estimate < share * rate.p95 < goodput.p95


def test_limits_beyond_both_ends_are_certain() -> None:
    loose, tight = answered(e2e_ms=1e6), answered(e2e_ms=1e-3)
    assert loose["goodput_per_s"] == loose["requests_per_s"]
    assert tight["goodput_per_s"].p95 == 0.0


def test_a_mean_above_its_limit_at_one_end_leaves_nothing_there() -> None:
    mean = answered(e2e_ms=1e6)["tpot_mean_ms"]
    goodput = answered(tpot_mean_ms=(mean.estimate * mean.p95) ** 0.5)["goodput_per_s"]
    assert (goodput.p05, goodput.estimate > 0.0) == (0.0, True)
