"""Layers of experts: closed forms by hand, behaviour of parts, formats, styles and cache states."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.kernels.experts.moe import (
    GROWTHS,
    Moe,
    distribution_of,
    grown,
    moe_flags,
    selected,
    setting_of,
)
from silicast.kernels.experts.moe_model import BusiestRankLayer
from silicast.kernels.experts.moe_recipes import stored, style_of
from silicast.kernels.experts.routing import busiest_loads
from silicast.kernels.implementation import shared_of
from silicast.kernels.physics.constants import load_physics
from silicast.kernels.products.candidates import expert_sizes, expert_tiles
from silicast.learning.dispatch import time_of
from silicast.workload.graphs.op import Op, OpBatch, Variant

H100 = find_device("H100-SXM-80GB")
B200 = find_device("B200-SXM-180GB")
L40S = find_device("L40S")
GATED = (("gated", True),)


def layer(tokens: int, variant: Variant = Variant(), **other: int) -> Op:
    sizes = {"experts": 128, "topk": 8, "hidden": 2048, "intermediate": 768, "ep": 1, "tp": 1}
    return Op.make("moe", variant, tokens=tokens, **{**sizes, **other})


def us(op: Op, device: object = H100) -> float:
    return 1e6 * time_of(op, device).estimate_s  # type: ignore[arg-type]


def bound_us(op: Op) -> float:
    return 1e6 * time_of(op, H100).bound_s


def test_flops_and_bytes_by_hand() -> None:
    model, op = Moe(), layer(100, ep=4, tp=2)
    # 100 tokens x 8 choices over 4 ranks = 200 rows; 384 inner columns; gate, up and down
    assert model.flops(op) == 2 * 200 * 2048 * 384 * 3
    # all 32 experts of the rank in bf16, 100 tokens in and out
    assert model.compulsory_bytes(op) == (32 * 2048 * 384 * 3 + 2 * 100 * 2048) * 2
    plain = layer(100, Variant(flags=(("gated", False),)), ep=4, tp=2)
    assert model.flops(plain) * 3 == model.flops(op) * 2


def test_parts_add_up_in_flops() -> None:
    model = Moe()
    first = layer(64, Variant(flags=(("gated", True), ("w13", True))))
    second = layer(64, Variant(flags=(("gated", True), ("w2", True))))
    assert model.flops(first) + model.flops(second) == model.flops(layer(64))
    assert max(us(first), us(second)) < us(layer(64)) < 3.0 * (us(first) + us(second))


def test_bound_of_a_decode_step_is_its_weights() -> None:
    """128 experts hit by 128 tokens: every weight once, less what the L2 may hold."""
    weights = 128 * 3 * 2048 * 768 * 2
    expected = (weights - H100.l2.capacity_bytes) / H100.dram.bandwidth_bytes_per_s
    assert bound_us(layer(128)) == pytest.approx(1e6 * expected)
    assert time_of(layer(128), H100).bound_by == "dram"
    cold = layer(128, Variant(cache="cold"))
    assert bound_us(cold) == pytest.approx(1e6 * weights / H100.dram.bandwidth_bytes_per_s)


def test_bound_of_a_prefill_is_its_operations() -> None:
    op = layer(65536)
    assert time_of(op, H100).bound_by == "tensor"
    assert bound_us(op) == pytest.approx(1e6 * Moe().flops(op) / H100.bound_per_s("tensor", "bf16"))


def test_one_token_reads_only_the_chosen_experts() -> None:
    assert us(layer(1)) < us(layer(16)) / 3.0
    assert us(layer(128)) < 1.3 * us(layer(32))  # all experts are hit: no more weights to read


def test_expert_and_tensor_parallel_share_the_work() -> None:
    cutlass = Variant(library="trtllm")
    for degree in ({"ep": 8}, {"tp": 8}):
        assert us(layer(4096, cutlass, **degree)) < us(layer(4096, cutlass)) / 2.0


def test_skew_costs_the_busiest_rank() -> None:
    for tokens in (1024, 16384):
        even = us(layer(tokens, ep=8))
        skewed = [
            us(layer(tokens, Variant(flags=((f"power_law_{alpha}", True),)), ep=8))
            for alpha in ("0.5", "1.2")
        ]
        assert even < skewed[0] < skewed[1]


def test_replicas_even_out_the_ranks_but_not_the_experts() -> None:
    skewed = layer(8192, Variant(flags=(("power_law_1.2", True),)), ep=8)
    level = layer(8192, Variant(flags=(("power_law_1.2_eplb", True),)), ep=8)
    assert us(layer(8192, ep=8)) <= 1.05 * us(level) < us(skewed)


def test_narrow_weights_help_decode() -> None:
    bf16, fp8, int4 = (
        us(layer(64, Variant(dtype=d, library="sglang"))) for d in ("bf16", "fp8", "int4_wo")
    )
    assert int4 < bf16
    assert fp8 < bf16


def test_formats_that_a_device_cannot_multiply_are_refused() -> None:
    with pytest.raises(SilicastError, match="bf16") as caught:
        time_of(layer(8, Variant(dtype="bf16")), find_device("V100"))
    assert caught.value.kind == "unsupported"
    assert us(layer(8, Variant(dtype="nvfp4")), B200) > 0.0


def test_foreign_choices_cost_triton_but_not_cutlass() -> None:
    """16,384 tokens on 128 ranks: Triton's kernels carry the rows of the other ranks along."""
    many = {"ep": 128, "tp": 1}
    triton = layer(16384, Variant(library="vllm", kernel="vllm_fused_moe"), **many)
    cutlass = layer(16384, Variant(library="trtllm", kernel="moe_torch_flow_cutlass"), **many)
    assert us(triton, L40S) > 2.0 * us(cutlass, L40S)


def test_what_fits_in_the_cache_is_warm_there() -> None:
    small = {"experts": 8, "intermediate": 768, "topk": 2}
    warm, cold = (us(layer(8, Variant(cache=state), **small), L40S) for state in ("", "cold"))
    assert warm < cold


@pytest.mark.parametrize(
    ("kernel", "library", "dtype", "architecture", "version", "style"),
    [
        ("sglang_fused_moe_triton", "sglang", "bf16", "hopper", "0.5.14", "triton_sglang"),
        ("sglang_fused_moe_triton", "sglang", "bf16", "hopper", "0.5.10", "triton_sglang_early"),
        ("vllm_fp8moe_flashinfer_trtllm_trtllmfp8expertsmodular", "vllm", "fp8", "blackwell", "",
         "trtllm_gen"),
        ("vllm_gptossmxfp4moe_triton_oaitritonmxfp4expertsmonolithic", "vllm", "w4a16_mxfp4",
         "hopper", "0.24.0", "oai_triton"),
        ("", "vllm", "w4a16_mxfp4", "hopper", "", "oai_triton"),
        ("dispatched", "sglang", "fp8_block", "hopper", "", "deepep"),
        ("dispatched_prefill", "sglang", "fp8_block", "hopper", "", "deepep_context"),
        ("dispatched_prefill", "trtllm", "fp8", "hopper", "", "cutlass"),
        ("deepepmoe_context", "sglang", "fp8_block", "hopper", "0.5.10", "deepep_context"),
        ("deepepmoe", "sglang", "fp8_block", "hopper", "0.5.10", "deepep_any"),
        ("dispatched", "sglang", "nvfp4", "blackwell", "", "cutedsl"),
        ("dispatched", "trtllm", "fp8", "hopper", "", "cutlass"),
        ("moe_torch_flow", "trtllm", "w4a16_mxfp4", "hopper", "1.3.0rc20", "oai_triton_trtllm"),
        ("moe_torch_flow", "trtllm", "w4a8_mxfp4_mxfp8", "blackwell", "1.3.0rc15", "trtllm_mxfp4"),
        ("moe_torch_flow", "trtllm", "w4a16_mxfp4", "blackwell", "1.3.0rc20", "cutlass"),
        ("deepgemm_megamoe", "sglang", "w4a8_mxfp4_mxfp8", "blackwell", "0.5.16", "megamoe"),
        ("moe_torch_flow_min_latency", "trtllm", "nvfp4", "blackwell", "1.3.0rc20", "min_latency"),
        ("moe_torch_flow_nongated", "trtllm", "bf16", "blackwell", "1.3.0rc15", "cutlass_early"),
        ("moe_torch_flow", "trtllm", "w4a8_mxfp4_mxfp8", "blackwell", "1.3.0rc20", "trtllm_mxfp4"),
        ("moe_torch_flow_cutlass", "trtllm", "w4a8_mxfp4_mxfp8", "blackwell-rtx", "", "cutlass"),
        ("", "trtllm", "fp8_block", "blackwell-rtx", "", "triton"),
        ("", "", "bf16", "blackwell-rtx", "", "triton"),
        ("", "", "int4_wo", "ada", "", "marlin_int4"),
        ("", "sglang", "int4_wo", "ada", "", "marlin"),
        ("", "trtllm", "fp8", "hopper", "", "cutlass"),
        ("", "vllm", "nvfp4", "blackwell", "", "trtllm_gen"),
    ],
)  # fmt: skip
def test_styles(
    kernel: str, library: str, dtype: str, architecture: str, version: str, style: str
) -> None:
    assert style_of(kernel, library, dtype, architecture, version) == style


def test_sglangs_triton_kernel_stores_mxfp4_as_bf16() -> None:
    recipe = setting_of(Variant(dtype="w4a16_mxfp4"), H100).recipe
    assert stored("triton_sglang", recipe) == (2.0, False)
    assert stored("marlin", recipe) == (0.53125, True)


def test_the_most_specific_constant_wins() -> None:
    table = {"a": 1.0, "b": 2.0, "marlin.b": 3.0, "marlin.fp8.b": 4.0, "triton.a": 5.0}
    assert selected(table, "marlin", "fp8") == {"a": 1.0, "b": 4.0}
    assert selected(table, "marlin", "bf16") == {"a": 1.0, "b": 3.0}


def test_flags_name_the_distribution() -> None:
    assert distribution_of(Variant(flags=GATED)) == "balanced"
    assert distribution_of(Variant(flags=(*GATED, ("power_law_1.01", True)))) == "power_law_1.01"
    assert distribution_of(Variant(flags=(("power_law_1.01", False),))) == "balanced"
    with pytest.raises(SilicastError, match="one share an expert"):
        distribution_of(Variant(flags=(("histogram:1,x", True),)))


def test_flags_of_a_scenario() -> None:
    flags = moe_flags("w2", gated=False, distribution=(1, 3))
    assert flags == (("gated", False), ("histogram:1,3", True), ("w2", True))
    assert us(layer(64, Variant(flags=flags), experts=2, topk=1)) > 0.0
    with pytest.raises(SilicastError, match="w4"):
        moe_flags("w4")
    with pytest.raises(SilicastError, match="zipf"):
        moe_flags(distribution="zipf")
    with pytest.raises(SilicastError, match="none negative"):
        moe_flags(distribution=(1.0, -2.0))


def test_a_layer_counts_padded_tiles() -> None:
    numbers = (np.array([x]) for x in (100, 8, 2, 1))
    result = BusiestRankLayer.from_loads(
        busiest_loads("balanced", *numbers), *(np.array([x]) for x in (100, 2, 64, 32, 1))
    )
    # 25 tokens an expert: four tiles of 8, two of 16, one of any larger size, on 8 experts
    assert dict(zip(expert_sizes(), result.tiles[:, 0].tolist(), strict=True)) == {
        8: 32.0, 16: 16.0, 32: 8.0, 64: 8.0, 128: 8.0,
    }  # fmt: skip
    assert result.assigned[0] == 200.0
    assert result.hit[0] == 8.0


def test_a_dispatch_leaves_a_rank_the_tokens_that_chose_its_experts() -> None:
    sizes = (4096, 8, 64, 32, 4)
    loads = busiest_loads("balanced", *(np.array([x]) for x in (4096, 64, 8, 4)))
    arrays = [np.array([x]) for x in sizes]
    gathered, sent = (
        BusiestRankLayer.from_loads(loads, *arrays, dispatched=each) for each in (False, True)
    )
    assert gathered.tokens[0] == 4096.0
    # one that none of whose eight choices falls on this quarter of the experts stays away
    assert sent.tokens[0] == pytest.approx(4096.0 * (1.0 - 0.75**8))
    assert sent.assigned[0] == gathered.assigned[0] == 8192.0


def test_a_rank_takes_no_longer_among_more_ranks_with_as_many_tokens_each() -> None:
    variant = Variant(dtype="bf16", kernel="dispatched_prefill", flags=moe_flags())
    sizes = {"experts": 128, "topk": 8, "hidden": 4096, "intermediate": 1536}
    few, many = (us(layer(4096 * ep, variant, **sizes, ep=ep)) for ep in (8, 64))
    assert many == pytest.approx(few, rel=0.05)


def test_tiles_are_limited_by_the_style() -> None:
    assert all(not label.startswith("8x") for label in expert_tiles(16.0, 128.0).labels)
    assert len(expert_tiles(8.0, 128.0).labels) == 8


def test_unmeasured_architectures_are_less_certain() -> None:
    other = find_device("Jetson AGX Orin 64GB")
    there, here = (shared_of(Moe(), layer(64).variant, x).log_sd["device"] for x in (other, H100))
    assert there > here


def test_a_kernel_with_the_exchange_waits_for_the_links() -> None:
    variant = Variant(dtype="w4a8_mxfp4_mxfp8", kernel="deepgemm_megamoe", library="sglang",
                      flags=moe_flags())  # fmt: skip
    device = find_device("GB200")
    links = {name: replace(link, bandwidth_bytes_per_s=link.bandwidth_bytes_per_s / 8)
             for name, link in device.links.items()}  # fmt: skip
    slow = replace(device, links=links)
    sizes = {"experts": 384, "topk": 6, "hidden": 7168, "intermediate": 3072, "tp": 1}

    def seconds(where: Device, ep: int) -> float:
        dims = {name: np.array([value]) for name, value in sizes.items()}
        dims |= {"tokens": np.array([4096 * ep]), "ep": np.array([ep])}
        return float(Moe().times(OpBatch("moe", variant, dims), where).estimate_s[0])

    assert seconds(slow, 32) > 1.2 * seconds(device, 32)
    assert seconds(slow, 1) == seconds(device, 1), "one rank sends nothing"


def test_constants_grow_with_rates_where_nothing_was_measured() -> None:
    rates = setting_of(Variant(dtype="bf16"), H100).rates
    table = {"tensor_efficiency": 0.6, "around_s": 1e-5}
    assert grown(table, rates) == table
    # 4,096 operations a clock and core, twice an A100's; 1.98 GHz over 1.75
    result = grown({**table, "tensor_growth": -0.5, "around_growth": -1.0}, rates)
    assert result["tensor_efficiency"] == pytest.approx(0.6 / 2**0.5)
    assert result["around_s"] == pytest.approx(1e-5 * 1.75e9 / rates.clock_hz)
    slow = replace(rates, core_rate=rates.core_rate / 64)
    most = grown({**table, "tensor_growth": -0.5}, slow)
    assert most["tensor_efficiency"] == 1.0


def test_shares_of_a_rate_do_not_rise_with_it() -> None:
    """A part whose matrix rate alone grows gains something of it, and at most all; constants of an
    architecture that was measured hold for it as they are.
    """
    physics = load_physics("moe")
    powers = [x for name, x in physics.default.items() if name.endswith("tensor_growth")]
    assert powers
    assert all(-1.0 < x <= 0.0 for x in powers)
    current = [
        x for table in physics.architectures.values() for name, x in table.items()
        if name.rpartition(".")[2] in GROWTHS
    ]  # fmt: skip
    assert current
    assert set(current) == {0.0}
