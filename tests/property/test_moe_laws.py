"""Laws of expert layers: the battery under every distribution, monotone work, honest intervals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.hardware.catalog import find_device
from silicast.kernels.check import check_kernel
from silicast.kernels.experts.moe import Moe
from silicast.kernels.experts.routing import busiest_loads, histogram_name
from silicast.workload.graphs.op import Op, OpBatch, Variant
from tests.sampling import examples

DEVICES = [find_device(name) for name in ("H100", "L40S", "B200", "RTX PRO 6000 S", "T4")]
NAMES = ("balanced", "uniform", "power_law_0.6", "power_law_1.01", "power_law_1.2_eplb")


@pytest.mark.parametrize("name", NAMES)
def test_battery_under_every_distribution(name: str) -> None:
    variants = [
        Variant(dtype=dtype, kernel=kernel, flags=tuple(sorted(((name, True), *flags))))
        for dtype, kernel in (("bf16", ""), ("fp8", "moe_torch_flow_cutlass"), ("int4_wo", ""))
        for flags in ((("gated", True),), (("gated", False), ("w13", True)))
    ]
    assert check_kernel(Moe(), DEVICES, draws=300, variants=variants, scalar_rows=2) >= 200


sizes = st.tuples(st.integers(1, 1 << 16), st.integers(0, 9), st.integers(1, 16), st.integers(0, 8))


@given(sizes, st.sampled_from(NAMES))
@examples(150)
def test_loads_are_conserved(size: tuple[int, int, int, int], name: str) -> None:
    """The busiest rank has at least an even share, at most all, and no expert more than all tokens;
    the law of large numbers leaves the expectation a few percent of slack."""
    tokens, experts, ep = size[0], 1 << size[1], 1 << min(size[3], size[1])
    topk = min(size[2], experts)
    result = busiest_loads(name, *(np.array([x]) for x in (tokens, experts, topk, ep)))
    total, local = float(result.tokens()[0]), experts // ep
    even = tokens * topk / ep
    assert (result.tokens_each >= 0.0).all()
    assert (result.tokens_each <= tokens + 1).all()
    assert float(result.experts_hit()[0]) <= local + 1e-9
    assert total <= 1.25 * tokens * topk + 8
    if name in ("balanced", "uniform"):
        assert total >= 0.9 * min(even, local * tokens)
    for rows in (8.0, 128.0):
        tiles = float(result.tiles(np.array([rows]))[0, 0])
        assert total / rows - 1e-6 <= tiles <= total / rows + local + 1e-6


@given(
    st.integers(1, 1 << 14),
    st.integers(1, 8),
    st.sampled_from(["bf16", "fp8", "int4_wo"]),
    st.sampled_from(["", "vllm_fused_moe", "moe_torch_flow_cutlass", "sglang_marlin_moe"]),
)
@examples(60)
def test_a_wider_layer_takes_no_less(tokens: int, topk: int, dtype: str, kernel: str) -> None:
    variant = Variant(dtype=dtype, kernel=kernel)
    ops = [
        Op.make("moe", variant, tokens=tokens, experts=64, topk=topk, hidden=2048,
                intermediate=width)
        for width in (256, 1024, 4096)
    ]  # fmt: skip
    times = Moe().times(OpBatch.from_ops(ops), DEVICES[0]).estimate_s
    assert times[0] <= times[1] <= times[2]


@given(
    st.integers(0, 15),
    st.integers(3, 8),
    st.integers(1, 8),
    st.integers(1, 32),
    st.sampled_from(["moe_torch_flow_cutlass", "vllm_fused_moe", "sglang_flashinfer_trtllm_moe"]),
    st.sampled_from(["H100", "L40S", "B200"]),
)
@examples(60)
def test_fp8_experts_lose_to_bf16_by_no_more_than_quantising(
    tokens: int, experts: int, topk: int, width: int, kernel: str, name: str
) -> None:
    """On architectures that nobody measured, where a format's constants come from other campaigns
    than another's."""
    device = find_device(name)
    device = replace(device, architecture="unheard of")
    op = Op.make(
        "moe", Variant(dtype="bf16", kernel=kernel), tokens=1 << tokens, experts=1 << experts,
        topk=topk, hidden=4096, intermediate=256 * width,
    )  # fmt: skip
    narrow = Op(op.family, op.dims, Variant(dtype="fp8", kernel=kernel))
    wide_s, narrow_s = (float(Moe().times(OpBatch.from_ops([x]), device).estimate_s[0])
                        for x in (op, narrow))  # fmt: skip
    assert narrow_s <= 1.15 * wide_s


@given(st.lists(st.integers(0, 50), min_size=4, max_size=4).filter(any), st.integers(1, 4096))
@examples(40)
def test_an_uneven_histogram_is_never_faster_on_the_busiest_rank(
    shares: list[int], tokens: int
) -> None:
    def tokens_of(name: str) -> float:
        result = busiest_loads(name, *(np.array([x]) for x in (tokens, 4, 1, 2)))
        return float(result.tokens()[0])

    assert tokens_of(histogram_name(tuple(shares))) >= tokens / 2 - 1e-9
