"""What matrix products take from a specification where nobody measured an architecture."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lab.scorecard.held_out import held_out, unmeasured
from silicast.core.dtypes import RECIPES
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.kernels.physics.constants import load_physics
from silicast.kernels.products.candidates import product_tiles
from silicast.kernels.products.gemm import Gemm
from silicast.kernels.products.gemm_constants import (
    SCALED,
    constants_for,
    from_specification,
    maker_of,
    selected,
)
from silicast.workload.graphs.op import Op, OpBatch, Variant

A100, H100, B200, L40S = (find_device(x) for x in ("A100", "H100", "B200", "L40S"))
SIZES = {
    "m": np.array([1, 16, 129, 4096]),
    "n": np.array([4096, 512, 14336, 4096]),
    "k": np.array([4096, 8192, 4096, 192]),
}
HELD = sorted(held_out("gemm"))


def _faster(device: Device, factor: float) -> Device:
    clocks = replace(device.clocks, boost_hz=device.clocks.boost_hz * factor)
    return replace(device, clocks=clocks)


def test_latencies_are_clocks_and_results_follow_the_rate() -> None:
    table = {"launch_clocks": 3000.0, "fp8.step_clocks:vllm": 200.0, "store_per_clock": 7.0}
    of_l40s, of_h100 = (from_specification(table, device) for device in (L40S, H100))
    quadruple = 4.0  # operations per clock of a core, H100 over L40S
    assert set(of_l40s) == {"launch_s", "fp8.step_s:vllm", "store_bytes_per_clock"}
    clocks = L40S.clocks.boost_hz / H100.clocks.boost_hz
    assert of_h100["launch_s"] == pytest.approx(of_l40s["launch_s"] * clocks)
    step = of_l40s["fp8.step_s:vllm"] * clocks / quadruple ** (1 / 3)
    assert of_h100["fp8.step_s:vllm"] == pytest.approx(step)
    assert of_l40s["store_bytes_per_clock"] == pytest.approx(7.0)
    assert of_h100["store_bytes_per_clock"] == pytest.approx(7.0 * quadruple**0.8)


def test_blocks_scaled_by_the_tensor_cores_keep_them_as_busy_as_plain_fp8() -> None:
    table = {"launch_clocks": 1.0, "fp8.tensor_efficiency": 0.9, "fp8_block.tensor_efficiency": 0.5}
    assert from_specification(table, B200)["fp8_block.tensor_efficiency"] == 0.9
    assert from_specification(table, H100)["fp8_block.tensor_efficiency"] == 0.5


@pytest.mark.parametrize("device", [A100, H100, B200, L40S], ids=lambda d: d.name)
def test_measured_architectures_keep_what_was_fitted(device: Device) -> None:
    table = load_physics("gemm").constants(device.architecture)
    assert not any(name.rpartition(".")[2].partition(":")[0] in SCALED for name in table)
    assert constants_for(device, RECIPES["bf16"]) == selected(table, RECIPES["bf16"], "")


def test_formats_that_nothing_is_known_of_take_the_nearest_ones() -> None:
    table = {"x": 1.0, "fp8.x": 2.0, "fp8.x:vllm": 3.0}
    assert selected(table, RECIPES["nvfp4"], "vllm") == {"x": 3.0}
    assert selected({**table, "nvfp4.x": 4.0}, RECIPES["nvfp4"], "vllm") == {"x": 4.0}


@pytest.mark.parametrize("held", HELD)
def test_held_out_constants_hold_nothing_of_the_architecture(held: str) -> None:
    result = held_out("gemm")[held]
    assert held not in result.architectures
    assert result.fallback.get(held) in result.architectures
    missing = set(load_physics("gemm").default) - set(result.default)
    plain = {name for name in missing if "." not in name and ":" not in name}
    assert not plain


def test_a_held_out_architecture_is_not_measured_and_gains_from_its_clock() -> None:
    batch, model = OpBatch("gemm", Variant(), SIZES), Gemm()
    shipped = model.times(batch, H100)
    with unmeasured("hopper"):
        held = model.times(batch, H100)
        quick = model.times(batch, _faster(H100, 1.2))
    assert shipped.measured
    assert not held.measured
    assert (held.p95_s / held.p05_s > shipped.p95_s / shipped.p05_s).all()
    assert (quick.estimate_s < held.estimate_s).all()
    assert (model.times(batch, H100).estimate_s == shipped.estimate_s).all()


@pytest.mark.parametrize("device", [A100, H100, B200, L40S], ids=lambda d: d.name)
def test_features_of_candidates_are_shares_of_the_fastest(device: Device) -> None:
    batch = OpBatch("gemm", Variant(), SIZES)
    features = Gemm().analyse(batch, device).features
    near = np.array([features[name] for name in features if name.startswith("near_")])
    assert len(near) == 12
    assert (near > 0.0).all()
    assert (near.max(axis=0) == 1.0).all()
    for row in range(4):
        alone = OpBatch("gemm", Variant(), {name: x[row : row + 1] for name, x in SIZES.items()})
        one = Gemm().analyse(alone, device).features
        assert all(one[name][0] == features[name][row] for name in features)


def test_a_faster_matrix_unit_alone_gains_less_than_its_rate() -> None:
    batch = OpBatch.from_ops([Op.make("gemm", Variant("nvfp4"), m=8192, n=8192, k=8192)])
    b300 = find_device("B300")
    gain = (Gemm().times(batch, B200).estimate_s / Gemm().times(batch, b300).estimate_s)[0]
    rates = (device.rate_per_core("tensor", "nvfp4") for device in (b300, B200))
    ratio = next(rates) / next(rates)
    assert 1.0 < gain < 0.95 * ratio


def test_libraries_that_choose_tiles_by_rows_pad_the_second_tile() -> None:
    few, many = (
        product_tiles("hopper", "tensor", small_tile_rows=x).most_rows for x in (128.0, 0.0)
    )
    assert many is None
    assert few is not None
    assert few.min() == 128.0
    sizes = {"m": np.array([128, 129]), "n": np.array([16384] * 2), "k": np.array([4096] * 2)}
    by_rows, free = (
        Gemm().analyse(OpBatch("gemm", Variant("fp8", library=x), sizes), H100).time_s
        for x in ("vllm", "trtllm")
    )
    assert by_rows[1] / by_rows[0] > free[1] / free[0]


def test_releases_with_other_kernels_have_constants_of_their_own() -> None:
    early, late = (Variant("fp8_block", library="sglang", version=x) for x in ("0.5.10", "0.5.14"))
    assert maker_of(early, "blackwell") == "sglang_early"
    assert maker_of(late, "blackwell") == maker_of(early, "hopper") == "sglang"
    slow, quick = (Gemm().times(OpBatch("gemm", x, SIZES), B200).estimate_s for x in (early, late))
    assert (slow > quick).all()
