"""The table of metrics: every metric that serving answers is in it, and moves as it should."""

from __future__ import annotations

import math

import pytest

import silicast
from silicast.core.metrics import METRICS, metric_of
from silicast.serving.statistics.uncertainty import stretched


def test_every_metric_of_serving_is_listed() -> None:
    answer = silicast.serve(
        model="Llama-3.1-8B", device="h100", concurrency=2, requests=4, input_len=64, output_len=8,
        slo="ttft_p99=1s", price=2.0,
    )  # fmt: skip
    assert set(answer.metrics) <= set(METRICS)
    assert {"mfu", "goodput_per_s", "output_tokens_per_cost"} <= set(answer.metrics)


def test_every_metric_of_capacity_is_listed() -> None:
    answer = silicast.capacity(
        model="Qwen3-0.6B",
        device="h100",
        users=True,
        requests=8,
        input_len=64,
        output_len=8,
        slo="tpot_p99=1s",
    )
    assert set(answer.metrics) <= set(METRICS)
    assert "users_that_fit" in answer.metrics


@pytest.mark.parametrize(
    ("name", "factor"),
    [
        ("output_tokens_per_s_per_gpu", 0.5), ("goodput_per_s", 0.5), ("mfu", 0.5),
        ("output_tokens_per_cost", 0.5), ("output_tokens_per_joule", 0.5),
        ("energy_per_request_j", 2.0), ("cost_per_million_output_tokens", 2.0),
        ("queue_mean_ms", 2.0), ("kv_transfer_p99_ms", 2.0),
        ("preemptions", 1.0), ("kv_utilisation", 1.0), ("host_to_device_bytes", 1.0),
        ("power_w", 1.0), ("ttft_p99_ms", 1.0), ("e2e_mean_ms", 1.0),
    ],
)  # fmt: skip
def test_a_run_of_twice_the_time_moves_each_metric_by_its_kind(name: str, factor: float) -> None:
    """Latencies have an error of their own and stay."""
    assert stretched({name: 0.25}, math.log(2.0))[name] == pytest.approx(0.25 * factor, rel=1e-15)


def test_yields_move_against_what_they_are_yields_of() -> None:
    before = {"energy_per_output_token_j": 0.5, "output_tokens_per_joule": 2.0}
    after = stretched(before, 0.1)
    product = after["energy_per_output_token_j"] * after["output_tokens_per_joule"]
    assert product == pytest.approx(1.0)


def test_units_are_those_that_the_names_end_with() -> None:
    assert METRICS["step_time_s"].unit == "s"
    assert METRICS["model_tflops_per_gpu"].unit == "TFLOP/s/GPU"
    assert METRICS["preemptions"].unit == ""


def test_a_metric_of_a_pool_is_found_and_a_designs_is_not_listed() -> None:
    assert metric_of("chat.ttft_p50_ms") is METRICS["ttft_p50_ms"]
    assert metric_of("words_a_cycle") is None
