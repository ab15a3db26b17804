"""Power of served requests between its limits."""

from __future__ import annotations

from typing import Any

import pytest

import silicast
from silicast.hardware.catalog import find_device
from silicast.kernels.physics.energy import energies
from silicast.workload.graphs.op import Variant


def power(arrival: dict[str, Any], requests: int, **fields: Any) -> dict[str, float]:
    answer = silicast.predict(
        task="serving", model="Llama-3.1-8B", device="a100",
        workload={"arrival": arrival, "requests": requests, "input_len": 512, "output_len": 32},
        **fields,
    )  # fmt: skip
    return {name: belief.estimate for name, belief in answer.metrics.items()}


def test_devices_that_wait_draw_what_a_board_draws_by_itself() -> None:
    current = energies(find_device("a100"), "gemm", Variant("bf16"))
    rare = power({"kind": "poisson", "rate_per_s": 0.001}, 4)["power_w"]
    busy = power({"kind": "closed", "concurrency": 64}, 128)["power_w"]
    assert rare == pytest.approx(current.static_w, rel=0.02)
    assert 2.0 * current.static_w < busy <= current.limit_w


def test_energy_is_power_times_time() -> None:
    result = power({"kind": "closed", "concurrency": 8}, 32)
    each = result["power_w"] / result["output_tokens_per_s"]
    assert result["energy_per_output_token_j"] == pytest.approx(each, rel=1e-6)
    assert result["energy_per_request_j"] == pytest.approx(32 * each, rel=1e-6)


def test_a_power_limit_is_kept() -> None:
    result = power({"kind": "closed", "concurrency": 64}, 128, limits={"power_w": 200.0})
    assert result["power_w"] <= 200.0


def test_no_board_draws_less_than_one_that_waits() -> None:
    workload = {
        "arrival": {"kind": "poisson", "rate_per_s": 0.01}, "requests": 4,
        "input_len": 512, "output_len": 32,
    }  # fmt: skip
    metrics = silicast.predict(
        task="serving", model="Llama-3.1-8B", device="a100", workload=workload
    ).metrics
    idle_w = energies(find_device("a100"), "gemm", Variant("bf16")).static_w
    assert idle_w <= metrics["power_w"].p05 * (1.0 + 1e-9)
    each = metrics["energy_per_request_j"]
    assert each.p05 / each.estimate == pytest.approx(
        metrics["power_w"].p05 / metrics["power_w"].estimate
    )
