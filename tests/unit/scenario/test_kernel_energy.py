"""Task kernel: energy, and what limits on power do."""

from __future__ import annotations

from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.scenario.answer import Answer
from silicast.scenario.decode import decode
from silicast.scenario.run import run

GEMM = {"op": "gemm", "m": 8192, "n": 8192, "k": 8192, "dtype": "bf16"}
DECODE = {"op": "attention_decode", "batch": 64, "kv_len": 8192, "num_heads": 32,
          "num_kv_heads": 8, "head_dim": 128, "dtype": "bf16"}  # fmt: skip


def answered(kernel: dict[str, Any] = GEMM, device: str = "H200", **fields: Any) -> Answer:
    return run(
        decode({"task": "kernel", "device": device, "workload": {"kernel": kernel}, **fields})
    )


def watts(answer: Answer) -> float:
    """Mean power of the estimates."""
    return 1e3 * answer.metrics["energy_mj"].estimate / answer.metrics["latency_us"].estimate


def test_energy_stands_beside_the_time() -> None:
    result = answered()
    energy = result.metrics["energy_mj"]
    assert energy.p05 < energy.estimate < energy.p95
    assert 400.0 < watts(result) < 700.0
    assert not any("power" in line for line in result.warnings)


def test_a_board_without_measured_power_says_so() -> None:
    result = answered(device="L40S")
    assert watts(result) <= 350.0
    assert any("no measured power of architecture ada" in line for line in result.warnings)


@pytest.mark.parametrize(("device", "tier"), [("TPU-v5p", "auto"), ("H200", "bound")])
def test_there_is_no_energy_without_a_model(device: str, tier: str) -> None:
    assert "energy_mj" not in answered(device=device, tier=tier).metrics


@pytest.mark.parametrize("kernel", [GEMM, DECODE], ids=["gemm", "decode"])
def test_a_power_limit_holds_and_costs_time(kernel: dict[str, Any]) -> None:
    plain, limited = answered(kernel), answered(kernel, limits={"power_w": 300})
    assert watts(limited) <= 300.0 * (1 + 1e-9)
    assert watts(limited) > 250.0
    assert limited.metrics["latency_us"].estimate > plain.metrics["latency_us"].estimate
    assert limited.metrics["energy_mj"].estimate < plain.metrics["energy_mj"].estimate
    assert limited.why["clock_mhz"]["kernel"] < 1830
    assert limited.bound == plain.bound


@pytest.mark.parametrize("power_w", [200, 300, 400, 600])
def test_the_interval_of_energy_stays_within_the_limit(power_w: float) -> None:
    result = answered(limits={"power_w": power_w})
    energy, latency = result.metrics["energy_mj"], result.metrics["latency_us"]
    assert energy.p05 < energy.estimate < energy.p95
    assert energy.p95 <= power_w * latency.p95 / 1e3 * (1 + 1e-9)


def test_a_limit_that_no_clock_holds_is_said() -> None:
    result = answered(limits={"power_w": 120})
    assert result.why["clock_mhz"]["kernel"] == pytest.approx(183.0)
    assert any("limits.power_w cannot be held" in line for line in result.warnings)
    assert not any("limits.power_w" in line for line in answered(limits={"power_w": 300}).warnings)


def test_tighter_limits_never_make_it_faster() -> None:
    times = [
        answered(limits={"power_w": cap}).metrics["latency_us"].estimate
        for cap in (700, 600, 500, 400, 300, 200)
    ]
    assert times == sorted(times)


def test_a_power_limit_that_does_not_bind_changes_nothing() -> None:
    small = {"op": "rmsnorm", "tokens": 1, "hidden": 4096}
    plain, limited = answered(small), answered(small, limits={"power_w": 500})
    assert (plain.why["board"], limited.why["board"]) == ("cool", "hot")
    assert limited.metrics == plain.metrics
    assert {**limited.why, "board": ""} == {**plain.why, "board": ""}


def test_a_device_without_a_power_model_ignores_the_limit_and_says_so() -> None:
    result = answered(device="TPU-v5p", limits={"power_w": 250})
    plain = answered(device="TPU-v5p")
    assert result.metrics["latency_us"].estimate == plain.metrics["latency_us"].estimate
    assert any("limits.power_w is not modelled" in line for line in result.warnings)


def test_both_limits_hold_together() -> None:
    clock = answered(limits={"clock_mhz": 1200})
    both = answered(limits={"clock_mhz": 1200, "power_w": 200})
    assert watts(both) <= 200.0 * (1 + 1e-9)
    assert both.metrics["latency_us"].estimate > clock.metrics["latency_us"].estimate


def test_a_hot_board_is_asked_for_and_said() -> None:
    hot, cool = (answered({**GEMM, "board": board}) for board in ("hot", "cool"))
    usual = answered()
    assert (hot.why["board"], usual.why["board"]) == ("hot", "cool")
    assert usual.metrics == cool.metrics
    assert hot.metrics["latency_us"].estimate > 1.02 * cool.metrics["latency_us"].estimate
    assert hot.why["clock_mhz"]["kernel"] < cool.why["clock_mhz"]["kernel"]
    with pytest.raises(SilicastError, match="unknown board"):
        answered({**GEMM, "board": "warm"})
