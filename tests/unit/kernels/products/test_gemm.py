"""Closed forms, refusals and physics of the matrix product model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from silicast.core.dtypes import RECIPES, recipe_for
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.kernels.physics.formats import with_format
from silicast.kernels.products.candidates import product_tiles
from silicast.kernels.products.gemm import Gemm, GemmSetting, estimate
from silicast.kernels.products.gemm_constants import measured_format, selected
from silicast.kernels.registry import implementation_for
from silicast.kernels.row_devices import RowDevices
from silicast.workload.graphs.op import Op, OpBatch, Variant

H100 = find_device("H100-SXM-80GB")
MODEL = Gemm()


def microseconds(
    m: int, n: int, k: int, device: Device = H100, batch: int = 1, **variant: Any
) -> float:
    op = Op.make("gemm", Variant(**variant), m=m, n=n, k=k, batch=batch)
    return float(MODEL.times(OpBatch.from_ops([op]), device).estimate_s[0] * 1e6)


def bound_us(m: int, n: int, k: int, **variant: Any) -> float:
    op = Op.make("gemm", Variant(**variant), m=m, n=n, k=k)
    return float(MODEL.times(OpBatch.from_ops([op]), H100).bound_s[0] * 1e6)


def test_flops_and_bytes_by_hand() -> None:
    op = Op.make("gemm", m=3, n=5, k=7, batch=2)
    assert MODEL.flops(op) == 2 * 3 * 5 * 7 * 2
    assert MODEL.compulsory_bytes(op) == 2 * 2 * (3 * 7 + 5 * 7 + 3 * 5)


def test_fp8_bytes_count_scales_and_output_format() -> None:
    op = Op.make("gemm", Variant(dtype="fp8_block"), m=128, n=256, k=512)
    scales = 32 / (128 * 128)  # one for each square of weights
    expected = 128 * 512 * 8 + 256 * 512 * (8 + scales) + 128 * 256 * 16
    assert MODEL.compulsory_bytes(op) == expected / 8


def test_bound_is_peak_rate_at_the_largest_clock() -> None:
    m = n = k = 8192
    seconds = 2 * m * n * k / (132 * 4096 * 1980e6)
    assert bound_us(m, n, k) == pytest.approx(seconds * 1e6, rel=1e-12)


def test_cold_bound_is_bytes_over_bandwidth_and_warm_bound_lets_l2_help() -> None:
    operands = 2 * (1 * 16384 + 16384 * 16384)
    moved = operands + 2 * 16384  # the result may stay in L2
    bandwidth = H100.dram.bandwidth_bytes_per_s
    assert bound_us(1, 16384, 16384, cache="cold") == pytest.approx(operands / bandwidth * 1e6)
    remaining = H100.l2.capacity_bytes
    assert bound_us(1, 16384, 16384) == pytest.approx((moved - remaining) / bandwidth * 1e6)
    assert bound_us(1, 256, 256, cache="warm") < bound_us(1, 256, 256, cache="cold")


def test_batch_defaults_to_one_product() -> None:
    with_batch = OpBatch.from_ops([Op.make("gemm", m=64, n=512, k=512, batch=1)])
    without = OpBatch.from_ops([Op.make("gemm", m=64, n=512, k=512)])
    a, b = MODEL.times(with_batch, H100), MODEL.times(without, H100)
    assert a.estimate_s[0] == b.estimate_s[0]


def test_cache_state_orders_times() -> None:
    cold, warm = (microseconds(16, 4096, 4096, cache=x) for x in ("cold", "warm"))
    assert warm < cold


def test_stream_launch_costs_more_than_a_graph() -> None:
    assert microseconds(64, 512, 512, launch="stream") > microseconds(64, 512, 512) + 5


def test_quantising_inside_the_call_costs_time() -> None:
    plain = microseconds(4096, 4096, 4096, dtype="fp8")
    flags = (("includes_quantize", True),)
    assert microseconds(4096, 4096, 4096, dtype="fp8", flags=flags) > plain


def test_narrow_formats_pay_on_large_products() -> None:
    bf16 = microseconds(8192, 8192, 8192)
    assert 0.4 < microseconds(8192, 8192, 8192, dtype="fp8") / bf16 < 0.75
    assert microseconds(8192, 8192, 8192, dtype="tf32") > 1.5 * bf16


def test_small_token_counts_share_the_weight_traffic() -> None:
    one, sixteen = microseconds(1, 8192, 8192), microseconds(16, 8192, 8192)
    assert sixteen < 1.15 * one


def test_deep_narrow_products_split_k() -> None:
    op = OpBatch.from_ops([Op.make("gemm", m=16, n=256, k=65536)])
    demand = MODEL.times(op, H100).analysis.demand
    assert demand.tasks[0] > 16


def test_padding_counts_in_the_demand_but_not_in_the_bound() -> None:
    result = MODEL.times(OpBatch.from_ops([Op.make("gemm", m=129, n=4096, k=4096)]), H100)
    assert result.analysis.demand.pipe_work["tensor"][0] > 2 * 129 * 4096 * 4096


def test_a_slower_clock_slows_compute_but_not_memory() -> None:
    slow = H100.at_clock(1.2e9)
    assert microseconds(8192, 8192, 8192, slow, cache="cold") > 1.4 * microseconds(
        8192, 8192, 8192, cache="cold"
    )
    assert microseconds(1, 16384, 16384, slow, cache="cold") < 1.1 * microseconds(
        1, 16384, 16384, cache="cold"
    )


def test_the_power_cap_slows_large_products_whatever_the_cache() -> None:
    weak = replace(H100, name="weak", power_cap_w=300.0)
    assert microseconds(16384, 16384, 16384, weak) > 1.2 * microseconds(16384, 16384, 16384)
    cold = microseconds(16384, 16384, 16384, weak, cache="cold")
    assert cold > 1.2 * microseconds(16384, 16384, 16384, cache="cold")
    free = weak.in_state("boost")  # as a step asks, which sets its own clock
    assert microseconds(16384, 16384, 16384, free) < microseconds(16384, 16384, 16384)


def test_devices_without_data_say_so_in_their_interval() -> None:
    other = find_device("Jetson AGX Orin 64GB")
    batch = OpBatch.from_ops([Op.make("gemm", m=64, n=4096, k=4096)])
    known, unknown = (MODEL.times(batch, device) for device in (H100, other))
    assert unknown.shared_log_sd["device"] > known.shared_log_sd["device"]
    assert unknown.p95_s / unknown.estimate_s > 1.1 * known.p95_s / known.estimate_s


def test_formats_that_the_device_lacks_are_refused() -> None:
    batch = OpBatch.from_ops([Op.make("gemm", Variant(dtype="bf16"), m=8, n=8, k=8)])
    with pytest.raises(SilicastError, match="bf16") as caught:
        MODEL.times(batch, find_device("V100"))
    assert caught.value.kind == "unsupported"


def test_unknown_formats_offer_near_names() -> None:
    with pytest.raises(SilicastError, match="bf16"):
        recipe_for("bf61")


@pytest.mark.parametrize(
    ("given", "canonical"),
    [("bfloat16", "bf16"), ("torch.float32", "fp32"), ("half", "fp16"), ("fp8_e4m3", "fp8"),
     ("FP8-Block", "fp8_block"), ("fp4", "nvfp4")],
)  # fmt: skip
def test_other_names_of_recipes(given: str, canonical: str) -> None:
    assert recipe_for(given).name == canonical


def test_every_recipe_is_stored_in_known_formats() -> None:
    for recipe in RECIPES.values():
        assert recipe.weight_bits > 0
        assert recipe.activation_bits > 0


def test_constants_of_a_recipe_and_a_library_take_precedence() -> None:
    table = {"a": 1.0, "b": 1.0, "fp8.a": 2.0, "fp8.a:vllm": 3.0, "fp32.b": 9.0}
    assert selected(table, RECIPES["fp8"], "vllm") == {"a": 3.0, "b": 1.0}
    assert selected(table, RECIPES["fp8_static"], "") == {"a": 2.0, "b": 1.0}


def test_tiles_follow_the_instruction_of_the_architecture() -> None:
    assert product_tiles("hopper", "tensor").family == "wgmma"
    assert product_tiles("blackwell", "tensor").family == "umma"
    assert product_tiles("ada", "tensor").family == "mma.sync"
    assert product_tiles("hopper", "fma").family == "simt"
    assert product_tiles("hopper", "tensor", 128.0).m.min() == 128.0


def test_rows_of_a_chunk_do_not_depend_on_where_chunks_end() -> None:
    setting = GemmSetting.from_variant(Variant(), H100)
    m, n, k = np.random.default_rng(1).integers(1, 8192, (3, 2500)).astype(np.float64)
    ones = np.ones(2500)
    whole, _ = estimate(setting, m, n, k, ones)
    part, _ = estimate(setting, m[700:], n[700:], k[700:], ones[700:])
    assert (whole[700:] == part).all()


def analysis(m: int, n: int, k: int, device: Device, batch: int = 1, **variant: Any) -> Any:
    op = Op.make("gemm", Variant(**variant), m=m, n=n, k=k, batch=batch)
    return MODEL.times(OpBatch.from_ops([op]), device)


@pytest.mark.parametrize(
    "name", ["A100-SXM-80GB", "V100-SXM2-32GB", "H100-SXM-80GB", "L40S", "P100-PCIE-16GB", "T4"]
)
@pytest.mark.parametrize("dtype", ["fp32", "fp64"])
def test_a_vector_on_fma_pipes_streams_its_weights(name: str, dtype: str) -> None:
    device = find_device(name)
    for n, k in ((14336, 4096), (4096, 14336)):
        result = analysis(1, n, k, device, dtype=dtype, cache="cold")
        assert result.estimate_s[0] < 1.75 * result.bound_s[0], (n, k)


def test_few_rows_do_not_pay_for_a_tile_of_128() -> None:
    """NeuSight's A100 ran 3 x 12479 x 1554 in fp32 in 1.7 times what its bytes take."""
    a100 = find_device("A100-SXM-80GB")
    for m in (2, 4, 8, 16, 32):
        result = analysis(m, 14336, 4096, a100, dtype="fp32", cache="cold")
        assert result.estimate_s[0] < 3.2 * 4 * 14336 * 4096 / a100.dram.bandwidth_bytes_per_s
        assert "sliced" in result.analysis.choice()[0]
    large = analysis(4096, 4096, 4096, a100, dtype="fp32").analysis.choice()[0]
    assert "sliced" not in large


def test_narrow_kernels_take_single_products_only() -> None:
    """cuBLAS's batched fp32 kernels pad 32 rows to 128 on Ampere."""
    a100 = find_device("A100-SXM-80GB")
    one = microseconds(32, 4096, 1024, a100, dtype="fp32")
    assert microseconds(32, 4096, 1024, a100, batch=8, dtype="fp32") > 12 * one
    many = analysis(32, 4096, 1024, a100, batch=8, dtype="fp32")
    assert "sliced" not in many.analysis.choice()[0]


def test_rows_beyond_a_narrow_kernel_never_choose_it() -> None:
    assert "gemv" in analysis(1, 4096, 4096, H100, dtype="fp32").analysis.choice()[0]
    assert "gemv" in analysis(4096, 1, 4096, H100, dtype="fp32").analysis.choice()[0]
    assert "gemv" not in analysis(2, 4096, 4096, H100, dtype="fp32").analysis.choice()[0]
    l40s = find_device("L40S")
    assert "streaming" in analysis(4, 4096, 4096, l40s, dtype="fp64").analysis.choice()[0]
    assert "streaming" not in analysis(9, 4096, 4096, l40s, dtype="fp64").analysis.choice()[0]


@pytest.mark.parametrize("name", ["H100-SXM-80GB", "B200-SXM-180GB", "A100-SXM-80GB"])
def test_labels_name_instructions_that_exist(name: str) -> None:
    device = find_device(name)
    for m in (1, 64, 4096):
        assert analysis(m, 4096, 4096, device, dtype="fp64").analysis.choice()[0].startswith("mma")
        assert analysis(m, 4096, 4096, device, dtype="fp32").analysis.choice()[0].startswith("simt")


def test_a_float_slower_than_a_wider_one_is_computed_in_the_wider_one() -> None:
    """P4 multiplies fp16 at a 64th of fp32's rate: libraries convert and compute in fp32."""
    p4 = find_device("P4")
    fp16, fp32 = (analysis(4096, 4096, 4096, p4, dtype=d) for d in ("fp16", "fp32"))
    assert 0.8 * fp32.estimate_s[0] < fp16.estimate_s[0] <= 1.02 * fp32.estimate_s[0]
    assert fp16.bound_s[0] == fp32.bound_s[0] == 2 * 4096**3 / p4.bound_per_s("fma", "fp32")
    assert fp16.warnings == ("P4 multiplies fp16 slower than fp32: computed in fp32",)
    assert "format" in fp16.shared_log_sd
    assert not fp32.warnings


def test_a_slow_format_keeps_its_own_traffic() -> None:
    p4 = find_device("P4")
    items = [analysis(1, 8192, 8192, p4, dtype=d, cache="cold") for d in ("fp16", "fp32")]
    assert items[0].bound_s[0] == pytest.approx(items[1].bound_s[0] / 2)


@pytest.mark.parametrize("family", ["attention_prefill", "attention_decode"])
def test_attention_follows_the_wider_format(family: str) -> None:
    p4 = find_device("P4")
    query = {"q_len": 2048} if family == "attention_prefill" else {}
    dims = {"batch": 4, "kv_len": 2048, "num_heads": 32, "num_kv_heads": 8, "head_dim": 128}
    model = implementation_for(family, "simt")
    assert model is not None
    batch = OpBatch.from_ops([Op.make(family, Variant(dtype="fp16"), **dims, **query)])
    result = model.times(batch, p4)
    assert any("computed in fp32" in warning for warning in result.warnings)
    assert result.estimate_s[0] < 0.2 * model.analyse(batch, p4).time_s[0]


@pytest.mark.parametrize("name", ["P100-PCIE-16GB", "T4", "V100-SXM2-32GB", "A100", "M2 Max"])
def test_formats_at_least_as_fast_as_wider_ones_are_left_alone(name: str) -> None:
    device = find_device(name)
    for dtype in ("fp16", "fp32"):
        assert with_format(device, dtype) == (device, "")


@pytest.mark.parametrize("dtype", ["bf16", "fp8", "fp32", "fp64"])
@pytest.mark.parametrize("shape", [(1, 256, 256), (64, 4096, 4096), (8192, 8192, 8192)])
def test_a_call_from_the_host_is_never_surer_than_a_replay(
    dtype: str, shape: tuple[int, int, int]
) -> None:
    graph, stream = (analysis(*shape, H100, dtype=dtype, launch=x) for x in ("graph", "stream"))
    assert stream.estimate_s[0] > graph.estimate_s[0]
    assert stream.p95_s[0] - stream.p05_s[0] >= graph.p95_s[0] - graph.p05_s[0]
    assert stream.p95_s[0] / stream.p05_s[0] >= graph.p95_s[0] / graph.p05_s[0] * (1 - 1e-12)
    assert stream.bound_s[0] == graph.bound_s[0]


def test_the_host_widens_short_calls_most() -> None:
    short, long = (
        analysis(m, m, m, H100, launch="stream").independent_log_sd[0] for m in (256, 8192)
    )
    replayed = analysis(8192, 8192, 8192, H100).independent_log_sd[0]
    assert short > 3 * replayed
    assert replayed <= long < 1.05 * replayed


@pytest.mark.parametrize(
    ("name", "dtype", "expected"),
    [("H100", "bf16", True), ("H100", "fp16", True), ("H100", "fp8_static", True),
     ("H100", "int8", False), ("A100", "int8", True), ("A100", "int4_wo", True),
     ("H100", "int4_wo", False), ("B200", "nvfp4", True), ("B200", "mxfp4", False),
     ("L40S", "fp8_static", True), ("B200", "mxfp8", False),
     ("H100", "fp64", False), ("H100", "fp32", False),
     ("A100", "fp32", True), ("A100", "fp8", False), ("V100-PCIE-32GB", "fp16", False),
     ("RTX PRO 6000 Blackwell Server", "bf16", True), ("Jetson AGX Orin 64GB", "bf16", False)],
)  # fmt: skip
def test_what_was_measured_on_which_architecture(name: str, dtype: str, expected: bool) -> None:
    device, _ = with_format(find_device(name), dtype)
    assert measured_format(device, RECIPES[dtype]) is expected


def test_formats_that_were_fitted_nowhere_say_so_in_their_interval() -> None:
    def width(dtype: str) -> float:
        result = analysis(4096, 4096, 4096, H100, dtype=dtype)
        return float(result.p95_s[0] / result.estimate_s[0])

    for unfitted in ("mxfp8", "fp64", "tf32"):
        shared = analysis(64, 64, 64, H100, dtype=unfitted).shared_log_sd
        assert "format:gemm" in shared
        assert width(unfitted) > 1.3 * width("bf16")
    assert "format:gemm" not in analysis(64, 64, 64, H100, dtype="fp8").shared_log_sd


def test_a_limit_of_the_clock_changes_no_choice() -> None:
    """The same tile and splits as without it, and each in proportion no slower than the clock."""
    board = find_device("RTX 4090")
    op = Op.make("gemm", Variant("bf16"), m=14, n=291, k=1024, batch=1)
    free = Gemm().analyse(OpBatch.from_ops([op]), board)
    for share in (0.9, 0.5, 0.3):
        slow = board.clock_limited_to(share * board.clocks.boost_hz)
        limited = Gemm().analyse(OpBatch.from_ops([op]), slow)
        assert limited.choice() == free.choice()
        assert limited.demand.tasks == free.demand.tasks
        longest = board.clocks.max_hz / slow.clocks.max_hz
        assert free.time_s < limited.time_s < free.time_s * longest
        again = slow.at_built_clock()
        assert again.clocks == board.clocks
        assert again.l2.bandwidth_bytes_per_s == pytest.approx(board.l2.bandwidth_bytes_per_s)


def test_rows_with_clocks_of_their_own_under_a_limit_have_the_bits_they_have_alone() -> None:
    board = find_device("RTX 4090").clock_limited_to(1.5e9)
    devices = (board, board.at_clock(1.2e9), board.at_clock(0.7e9))
    ops = [
        Op.make("gemm", Variant("bf16"), m=m, n=291, k=1024, batch=1) for m in (1, 14, 200, 2000)
    ]
    row = np.array([0, 1, 2, 1])
    together = Gemm().analysed_at(OpBatch.from_ops(ops), RowDevices(devices, row)).time_s
    alone = [
        Gemm().analysed(OpBatch.from_ops([op]), devices[index]).time_s[0]
        for op, index in zip(ops, row.tolist(), strict=True)
    ]
    assert together.tolist() == alone
