"""Diagnoses: causes that add up, a faster configuration, and measurements that cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import silicast
from silicast.core.errors import SilicastError
from silicast.measurement.trials.diagnosed import diagnose_files
from silicast.scenario.answers.diagnose.answerer import diagnose, gain_in_model
from silicast.tuning.diagnosis import diagnosis_data, saved_us

MOE = {
    "op": "moe", "tokens": 64, "experts": 128, "topk": 8, "hidden": 2048, "intermediate": 768,
    "part": "w13",
}  # fmt: skip
POOR = {"tile_m": 128, "tile_n": 32, "tile_k": 64, "warps": 4, "stages": 2}


@pytest.mark.parametrize("device", ["H20", "A40", "L40S", "B200"])
@pytest.mark.parametrize("kernel", [MOE, {"op": "gemm", "m": 512, "n": 4096, "k": 4096}])
@pytest.mark.parametrize("slow", [1.1, 2.0, 9.0])
def test_causes_add_up_and_gains_are_in_order(
    device: str, kernel: dict[str, Any], slow: float
) -> None:
    usual = diagnose(kernel, device, [1e6]).predicted_us
    result = diagnose(kernel, device, [slow * usual])
    assert sum(result.causes_us.values()) == pytest.approx(result.measured_us, rel=1e-9)
    assert all(value >= 0.0 for name, value in result.causes_us.items()
               if name not in ("unexplained", "learned"))  # fmt: skip
    assert 0.0 < result.achieved <= 1.0
    best = result.faster
    if best is not None:
        assert best.gain_p05_pct <= best.gain_pct <= best.gain_p95_pct
        assert best.p05_us <= best.estimate_us <= best.p95_us
        assert 0.0 <= best.chance <= 1.0
    assert slow < 9.0 or best is not None
    json.dumps(diagnosis_data(result))


GEMM = {"op": "gemm", "m": 64, "n": 4096, "k": 4096}
LAYER = {**MOE, "tokens": 4096, "distribution": "balanced"}


@pytest.mark.parametrize(
    ("kernel", "device", "measured_us"),
    [(LAYER, "H20", 3000.0), (MOE, "H20", 420.0), (GEMM, "H100", 20.0), (GEMM, "H100", 8.0)],
)
def test_bound_ceiling_usual_and_proposed_times_stand_in_order(
    kernel: dict[str, Any], device: str, measured_us: float
) -> None:
    result = diagnose(kernel, device, [measured_us])
    assert result.ceiling_us is not None
    proposed = result.faster
    assert proposed is not None
    assert result.bound_us <= result.ceiling_us <= proposed.estimate_us <= result.predicted_us


@pytest.mark.parametrize("device", ["A100", "H100", "MI300X"])
@pytest.mark.parametrize("kernel", [GEMM, {**GEMM, "m": 4096}, MOE])
def test_the_usual_time_is_that_of_the_kernel_command(kernel: dict[str, Any], device: str) -> None:
    usual = silicast.predict(task="kernel", device=device, workload={"kernel": kernel})
    predicted_us = usual["latency_us"].estimate
    for slow in (1.0, 1.3, 4.0):
        result = diagnose(kernel, device, [slow * predicted_us])
        assert result.predicted_us == pytest.approx(predicted_us, rel=1e-12)
        if result.faster is not None:
            assert result.faster.estimate_us <= predicted_us * (1.0 + 1e-12)


@pytest.mark.parametrize(
    ("kernel", "device", "swept"),
    [(MOE, "H20", True), (GEMM, "H20", False), (MOE, "H100", False),
     ({**MOE, "dtype": "fp8"}, "H20", False)],
)  # fmt: skip
def test_only_experts_in_16_bits_were_swept(
    kernel: dict[str, Any], device: str, swept: bool
) -> None:
    slow_us = 3.0 * diagnose(kernel, device, [1e6]).predicted_us
    warnings = diagnose(kernel, device, [slow_us]).warnings
    assert swept != any("was not swept" in text for text in warnings)


def test_a_bound_says_where_operands_are() -> None:
    slow, quick = (diagnose(GEMM, "H100", [us]) for us in (20.0, 8.0))
    assert slow.bound_state == "operands from memory"
    assert slow.bound_us >= slow.causes_us["work"]
    assert quick.bound_state == "operands in the cache"
    assert any("cached ones" in text for text in quick.warnings)
    assert diagnose({**GEMM, "cache": "warm"}, "H100", [20.0]).bound_us == quick.bound_us
    with pytest.raises(SilicastError, match="operands in the cache"):
        diagnose(GEMM, "H100", [1.0])
    assert diagnose({**MOE, "distribution": "power_law_1.2"}, "H20", [420.0]).bound_state == (
        "operands from memory, only experts that are surely hit"
    )


def test_a_slower_measurement_gains_more() -> None:
    items = [diagnose(MOE, "A40", [us]).faster for us in (1500.0, 2000.0, 3000.0)]
    gains = [0.0 if one is None else one.gain_pct for one in items]
    assert gains == sorted(gains)
    assert gains[-1] > 0.0


def test_padding_is_named_where_it_is() -> None:
    result = diagnose(MOE, "H20", [900.0], configuration={**POOR, "stages": 2})
    assert not result.assumed
    assert result.causes_us["pipelining"] + result.causes_us["padding"] > 0.0
    assert result.faster is not None
    assert result.faster.configuration.number("tile_m") < 128


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([400.0] * 5, "timer's step"),
        ([400.0, 401.0, 700.0], "from the median"),
        ([300.0, 400.0, 520.0], "contradict"),
    ],
)
def test_odd_repeats_are_named(values: list[float], said: str) -> None:
    assert any(said in text for text in diagnose(MOE, "H20", values).warnings)


@pytest.mark.parametrize("values", [[], [0.0], [-1.0], [float("nan")], [1.0]])
def test_impossible_measurements_are_refused(values: list[float]) -> None:
    with pytest.raises(SilicastError) as raised:
        diagnose(MOE, "H20", values)
    assert raised.value.field == "measured_us"


def test_other_kernels_are_refused() -> None:
    whole = {name: value for name, value in MOE.items() if name != "part"}
    with pytest.raises(SilicastError, match="several kernels"):
        diagnose(whole, "H20", [900.0])
    with pytest.raises(SilicastError, match="cannot be diagnosed"):
        diagnose({"op": "rmsnorm", "tokens": 8, "hidden": 4096}, "H20", [900.0])
    with pytest.raises(SilicastError, match="too many"):
        diagnose(MOE, "A40", [9e3], configuration={**POOR, "tile_n": 512, "stages": 5})


def test_a_model_gains_what_its_layers_do() -> None:
    result = diagnose(MOE, "H20", [420.0])
    gain = gain_in_model("qwen3-30b-a3b", "H20", 64, saved_us(result))
    assert gain["saved_us"] == pytest.approx(48 * saved_us(result))
    assert gain["tpot_then_ms"] < gain["tpot_ms"]


def test_files_are_diagnosed_and_contradictions_named(tmp_path: Path) -> None:
    path = tmp_path / "kernels.csv"
    path.write_text(
        "op,m,n,k,dtype,latency_us\n"
        "gemm,512,4096,4096,bf16,400\ngemm,512,4096,4096,bf16,900\n"
        "gemm,64,4096,4096,bf16,1\ngemm,64,8192,4096,bf16,60\n"
    )
    rows, _ = diagnose_files([path], "H20")
    assert [bool(row.diagnosis) for row in rows] == [True, True, False]
    assert "contradict" in rows[0].contradicts
    assert "faster than its bound" in rows[-1].refused


@pytest.mark.parametrize(
    ("factor", "unit"), [(1e-3, "milliseconds"), (1e-6, "seconds"), (1e3, "nanoseconds")]
)
def test_a_time_in_another_unit_is_asked_about(factor: float, unit: str) -> None:
    usual = diagnose(MOE, "H20", [1e6]).predicted_us
    if factor < 1.0:
        with pytest.raises(SilicastError, match=f"are these {unit}"):
            diagnose(MOE, "H20", [factor * usual])
    else:
        told = diagnose(MOE, "H20", [factor * usual]).warnings
        assert any(f"are these {unit}" in text for text in told)


def test_a_table_without_times_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "kernels.csv"
    path.write_text("op,m,n,k,dtype\ngemm,512,4096,4096,bf16\n")
    with pytest.raises(SilicastError, match="is missing") as raised:
        diagnose_files([path], "H20")
    assert raised.value.field == "rows[1].latency_us"
