"""Narrow formats of matrix products: what runs where, what is read, what it costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from silicast.core.dtypes import BITS, RECIPES
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import device_index, find_device
from silicast.hardware.device import Device
from silicast.kernels.check import check_kernel
from silicast.kernels.implementation import KernelTimes
from silicast.kernels.physics.formats import with_format
from silicast.kernels.products.candidates import product_tiles
from silicast.kernels.products.gemm import Gemm, GemmSetting
from silicast.kernels.products.gemm_constants import constants_for, lineage, run_as
from silicast.kernels.registry import implementation_for
from silicast.learning import dispatch
from silicast.workload.graphs.op import Op, OpBatch, Variant

A100, H100, B200 = (find_device(x) for x in ("A100-SXM-80GB", "H100-SXM-80GB", "B200"))
NARROW = [x.name for x in RECIPES.values() if BITS[x.weights] < 16 and x.compute != "int16"]


def times(device: Device, m: int, n: int, k: int, **variant: Any) -> KernelTimes:
    op = Op.make("gemm", Variant(**{"cache": "cold", **variant}), m=m, n=n, k=k)
    return Gemm().times(OpBatch.from_ops([op]), device)


def us(device: Device, m: int, n: int, k: int, **variant: Any) -> float:
    return float(times(device, m, n, k, **variant).estimate_s[0]) * 1e6


def test_every_format_answers_on_every_kind_of_device() -> None:
    names = (
        "V100-SXM2-32GB", "P4", "T4", "A30", "L40S", "H20", "B300", "MI300X", "MI355X",
        "RTX PRO 6000 Blackwell Server", "TPU v5p", "Trainium2", "EPYC 9654", "M2 Max",
    )  # fmt: skip
    for name in names:
        device = find_device(name)
        for dtype in NARROW:
            op = Op.make("gemm", Variant(dtype=dtype), m=64, n=4096, k=4096)
            time = dispatch.time_of(op, device)
            assert 0 < time.bound_s <= time.p05_s <= time.estimate_s <= time.p95_s, (name, dtype)


@pytest.mark.parametrize("dtype", NARROW)
def test_laws_hold_in_every_format(dtype: str) -> None:
    variants = [
        Variant(dtype=dtype, cache=cache, flags=flags)
        for cache in ("", "cold")
        for flags in ((), (("includes_quantize", True),))
    ]
    assert check_kernel(Gemm(), [A100, B200], draws=160, variants=variants, scalar_rows=2)


def test_integers_of_16_bits_are_refused_where_no_unit_multiplies_them() -> None:
    """Units of NPUs do: tests/unit/scenario/resolving/test_named_networks.py."""
    op = Op.make("gemm", Variant(dtype="w8a16_int16"), m=64, n=4096, k=4096)
    with pytest.raises(SilicastError, match="no int16 matrix arithmetic"):
        dispatch.time_of(op, H100)


@pytest.mark.full
def test_every_format_answers_on_every_device() -> None:
    index = device_index()
    for name in index.names:
        device = index.get(name)
        for dtype in NARROW:
            op = Op.make("gemm", Variant(dtype=dtype), m=16, n=2048, k=2048)
            assert dispatch.time_of(op, device).estimate_s > 0


def test_weight_only_reads_a_quarter_and_multiplies_as_much() -> None:
    """AWQ: 4 bits, and 16 of scale and 4 of zero point for each 128."""
    weights = 16384 * 16384
    assert RECIPES["int4_wo"].weight_bits == 4 + 20 / 128
    result = times(A100, 1, 16384, 16384, dtype="int4_wo")
    moved = weights * (4 + 20 / 128) / 8 + 16384 * 2
    assert result.bound_s[0] == pytest.approx(moved / A100.dram.bandwidth_bytes_per_s)
    large = [times(A100, 16384, 16384, 16384, dtype=x).bound_s[0] for x in ("int4_wo", "bf16")]
    assert large[0] == large[1]


def test_weight_only_pays_for_few_rows_and_not_for_many() -> None:
    """TensorRT's plugin on an A100: 2.3 times as fast at one row of 8192 x 8192, even at 8192."""
    few = us(A100, 1, 8192, 8192, dtype="bf16") / us(A100, 1, 8192, 8192, dtype="int4_wo")
    many = us(A100, 8192, 8192, 8192, dtype="bf16") / us(A100, 8192, 8192, 8192, dtype="int4_wo")
    assert 2.0 < few < 4.0
    assert 0.85 < many <= 1.02


def test_widening_takes_vector_instructions() -> None:
    wide, none = (
        GemmSetting.from_variant(Variant(dtype=x), A100).rates.widen_s for x in ("int4_wo", "bf16")
    )
    assert none == 0.0
    assert wide > GemmSetting.from_variant(Variant(dtype="int8_wo"), A100).rates.widen_s > 0.0
    # twice the lanes at 1.4 times the clock
    hopper = GemmSetting.from_variant(Variant(dtype="int4_wo"), H100).rates.widen_s
    clocks = H100.clocks.boost_hz / A100.clocks.boost_hz
    assert wide / hopper == pytest.approx(2 * clocks)


def test_units_for_four_bits_take_eight_bit_activations_as_they_are() -> None:
    dtype = "w4a8_mxfp4_mxfp8"
    assert GemmSetting.from_variant(Variant(dtype=dtype), B200).rates.widen_s == 0.0
    assert GemmSetting.from_variant(Variant(dtype=dtype), H100).rates.widen_s > 0.0


def test_w4a4_runs_on_its_own_units_where_they_are() -> None:
    fp4, fp8 = (us(B200, 8192, 8192, 8192, dtype=x) for x in ("nvfp4", "fp8"))
    assert 0.4 < fp4 / fp8 < 0.75
    assert times(B200, 64, 64, 64, dtype="nvfp4").warnings == ()


@pytest.mark.parametrize(
    ("name", "dtype", "wide"),
    [("H100", "nvfp4", "bf16"), ("H100", "mxfp4", "bf16"), ("A100", "fp8_block", "bf16"),
     ("V100", "fp8", "fp16"), ("A100", "w4afp8", "bf16")],
)  # fmt: skip
def test_without_a_unit_only_weights_are_narrow(name: str, dtype: str, wide: str) -> None:
    device, remark = with_format(find_device(name), dtype)
    outcome = run_as(RECIPES[dtype], device)
    assert (outcome.weights, outcome.compute) == (RECIPES[dtype].weights, wide)
    assert outcome.activation_bits == 16
    assert outcome.widens
    assert not outcome.quantizes
    result = times(find_device(name), 4096, 4096, 4096, dtype=dtype)
    assert result.warnings[0] == remark
    assert not result.measured
    assert "format" in result.shared_log_sd


def test_a_format_with_a_unit_runs_as_it_is() -> None:
    for device, dtype in ((H100, "fp8"), (B200, "nvfp4"), (B200, "mxfp8"), (A100, "int8")):
        assert run_as(RECIPES[dtype], device) is RECIPES[dtype]


def test_a_weight_only_fallback_quantises_nothing() -> None:
    flags = (("includes_quantize", True),)
    plain = us(A100, 4096, 4096, 4096, dtype="fp8")
    assert us(A100, 4096, 4096, 4096, dtype="fp8", flags=flags) == plain


def test_block_formats_carry_scales_on_both_sides() -> None:
    assert RECIPES["nvfp4"].weight_bits == RECIPES["nvfp4"].activation_bits == 4.5
    assert RECIPES["mxfp4"].weight_bits == RECIPES["mxfp4"].activation_bits == 4.25
    assert RECIPES["mxfp8"].weight_bits == RECIPES["mxfp8"].activation_bits == 8.25
    block = RECIPES["fp8_block"]
    assert (block.weight_bits, block.activation_bits) == (8 + 32 / 16384, 8.25)
    assert RECIPES["w4a8_mxfp4_mxfp8"].activation_bits == 8.25
    assert RECIPES["w4afp8"].activation_bits == 8


def test_formats_without_data_take_the_constants_of_their_units() -> None:
    nvfp4, mxfp4 = (constants_for(find_device("B200"), RECIPES[x]) for x in ("nvfp4", "mxfp4"))
    assert nvfp4 == mxfp4
    assert lineage(RECIPES["w4afp8"]) == ("fp8", "w4afp8")
    assert constants_for(find_device("H100"), RECIPES["w4afp8"])["widen_ops"] > 0
    # what TensorRT's engine adds to its plugins is not Marlin's
    plugin, other = (
        constants_for(find_device("A100"), RECIPES["int4_wo"], x) for x in ("trtllm", "vllm")
    )
    assert plugin["extra_s"] > other["extra_s"] == 0.0


def test_formats_and_devices_without_data_widen() -> None:
    def width(device: Device, dtype: str) -> float:
        result = times(device, 4096, 4096, 4096, dtype=dtype)
        return float(np.log(result.p95_s[0] / result.estimate_s[0]))

    assert width(H100, "int4_wo") > 1.2 * width(A100, "int4_wo")
    assert width(B200, "mxfp4") > 1.2 * width(B200, "nvfp4")


@pytest.mark.parametrize("name", ["TPU v5p", "EPYC 9654"])
def test_other_execution_models_widen_weights_too(name: str) -> None:
    device = find_device(name)
    model = implementation_for("gemm", device.execution_model)
    assert model is not None
    ops = [Op.make("gemm", Variant(dtype=x, cache="cold"), m=1, n=16384, k=16384)
           for x in ("bf16", "int4_wo")]  # fmt: skip
    wide, narrow = (model.times(OpBatch.from_ops([op]), device) for op in ops)
    assert narrow.estimate_s[0] < wide.estimate_s[0]
    assert narrow.bound_s[0] < 0.3 * wide.bound_s[0]


def batched(device: Device, heads: int, kernel: str, dtype: str = "bf16", **flags: bool) -> float:
    variant = Variant(dtype=dtype, library="sglang", kernel=kernel, flags=tuple(flags.items()))
    op = Op.make("gemm", variant, m=512, n=512, k=128, batch=heads)
    return float(Gemm().times(OpBatch.from_ops([op]), device).estimate_s[0]) * 1e6


def test_a_call_for_a_batch_has_a_constant_on_top() -> None:
    """SGLang's torch.bmm of one head on an H100: 4.3 us, of which the product is three."""
    assert batched(H100, 1, "sglang_torch_bmm") == pytest.approx(4.3, rel=0.15)
    assert batched(H100, 1, "sglang_torch_bmm") - batched(H100, 1, "") > 0.8


def test_a_batched_call_in_fp8_quantises_by_rows() -> None:
    """sgl_kernel's bmm_fp8 of 128 heads on an H100 takes three times as long as bf16's: 133 us."""
    kernel = "sglang_sgl_kernel_bmm_fp8"
    result = batched(H100, 128, kernel, "fp8", includes_quantize=True)
    assert result == pytest.approx(133, rel=0.15)
    assert batched(H100, 128, kernel, "fp8") < 0.5 * result


def test_weights_widened_at_load_are_a_bf16_product() -> None:
    kernel = "trtllm_bmm_out_dequant_bf16"
    assert batched(B200, 16, kernel, "fp8") == batched(B200, 16, kernel, "bf16")


def test_clusters_multicast_and_others_do_not() -> None:
    assert set(product_tiles("hopper", "tensor").fetched.ravel()) == {0.5, 0.25}
    assert set(product_tiles("ampere", "tensor").fetched.ravel()) == {1.0}


@pytest.mark.parametrize("name", ["H100-SXM-80GB", "B200", "A100-SXM-80GB", "L40S"])
def test_efficiencies_of_memories_are_physical(name: str) -> None:
    """Of L2 too, up to what its catalog entry understates."""
    c = constants_for(find_device(name), RECIPES["bf16"])
    assert 0 < c["dram_efficiency"] <= 1
    assert 0 < c["l2_efficiency"] <= 1.2
    assert 0 < c["tensor_efficiency"] <= 1


def test_streaming_kernels_are_for_few_rows() -> None:
    labels = product_tiles("ampere", "tensor", skinny_rows=4.0).labels
    assert [x for x in labels if "streaming" in x] == ["simt 4x16 streaming"]
    few, many = (times(A100, m, 1024, 65536, dtype="sq", library="trtllm") for m in (4, 5))
    assert "streaming" in few.analysis.choice()[0]
    assert "streaming" not in many.analysis.choice()[0]
