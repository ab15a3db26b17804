"""A property that a table states is timed, refused, or known to cost nothing on a device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.learning.dispatch import times
from silicast.scenario.kernels.kernel_case import OPS, kernel_case

SIZES: dict[str, dict[str, Any]] = {
    "attention_prefill": {
        "head_dim": 128, "q_len": 4096, "kv_len": 4096, "num_heads": 32, "num_kv_heads": 8,
    },
    "attention_decode": {"head_dim": 128, "kv_len": 4096, "num_heads": 32, "num_kv_heads": 8},
    "moe": {"tokens": 4096, "experts": 64, "topk": 8, "hidden": 1024, "intermediate": 1408},
    "gemm": {"m": 4096, "n": 4096, "k": 4096, "dtype": "fp8"},
    "conv2d": {
        "batch": 8, "height": 56, "width": 56, "in_channels": 64, "out_channels": 128, "kernel": 3,
    },
    "indexer_logits": {"kv_len": 8192, "batch": 8},
    "topk": {"kv_len": 8192, "batch": 8},
    "sparse_attention": {"kv_len": 8192, "batch": 8, "selected": 2048},
    "rmsnorm": {"tokens": 4096, "hidden": 4096},
    "layernorm": {"tokens": 4096, "hidden": 4096},
    "quantize": {"tokens": 4096, "hidden": 4096, "dtype": "fp8"},
    "optimizer": {"elements": 10**8},
    "cross_entropy": {"rows": 4096, "vocab": 32000},
    **{
        name: {"batch": 8, "steps": 50, "hidden": 512, "input": 256, "dtype": "bf16"}
        for name in ("lstm", "gru", "rnn")
    },
}  # fmt: skip
COST_NOTHING = {
    "attention_decode.causal": "one new token sees all keys",
    "conv2d.backward_data": "the same multiplications; operands of the same sizes",
    "conv2d.backward_weights": "on CPUs the same sum over other operands",
    "topk.decode": "names the kernel that GPUs run",
    "sparse_attention.decode": "names the kernel that GPUs run",
    "quantize.static": "scales are a few words, found while values are on the chip",
}
DEVICES = ("TPU v4", "intel-xeon-8480")


def us(device: str, op: str, **more: Any) -> float:
    """Estimated time of a table."""
    table = {"op": op, **SIZES[op], **more}
    return times([kernel_case(table).op], find_device(device))[0].estimate_s * 1e6


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("op", sorted(name for name, spec in OPS.items() if spec.flags))
def test_no_property_is_left_out_in_silence(op: str, device: str) -> None:
    for flag in OPS[op].flags:
        try:
            with_it, without = (us(device, op, **{flag: value}) for value in (True, False))
        except SilicastError as error:
            assert flag in error.field  # noqa: PT017
            continue
        assert with_it != without or f"{op}.{flag}" in COST_NOTHING, f"{op}.{flag} on {device}"


@pytest.mark.parametrize("device", DEVICES)
def test_a_skewed_router_takes_the_time_of_its_busiest_rank(device: str) -> None:
    even, skewed = (
        us(device, "moe", ep=8, distribution=name) for name in ("balanced", "power_law_1.2")
    )
    assert even < skewed < 8.0 * even


@pytest.mark.parametrize("device", DEVICES)
def test_a_mask_is_read(device: str) -> None:
    sizes = {**SIZES["attention_prefill"], "q_len": 64, "num_heads": 8}
    one, other = (
        us(device, "attention_prefill", **{**sizes, "mask_bytes": size}) for size in (0, 1 << 24)
    )
    assert one < other


def test_sparse_weights_are_faster_where_units_have_the_mode() -> None:
    board = replace(find_device("TPU v4"), architecture="hopper")
    dense, sparse = (
        times([kernel_case({"op": "gemm", **SIZES["gemm"], "dtype": "bf16", **more}).op], board)[0]
        for more in ({}, {"sparse_2_4": True})
    )
    assert 0.4 < sparse.estimate_s / dense.estimate_s < 0.9
    assert sparse.bound_s < dense.bound_s
