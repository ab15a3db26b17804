"""Gradients of attention and norms."""

from __future__ import annotations

import pytest

from silicast.hardware.catalog import find_device
from silicast.kernels.registry import implementation_for
from silicast.workload.graphs.op import Op, OpBatch, Variant


def seconds(op: Op, device: str) -> float:
    model = implementation_for(op.family, "simt")
    assert model is not None
    return float(model.times(OpBatch.single(op), find_device(device)).estimate_s)


def attention(family: str, library: str = "", *, ordered: bool = False, **changes: int) -> Op:
    flags = [("append", False), ("causal", True), ("rope", False)]
    flags += [("deterministic", True)] if ordered else []
    sizes = {
        "batch": 2, "q_len": 4096, "kv_len": 4096, "num_heads": 16, "num_kv_heads": 16,
        "head_dim": 128, **changes,
    }  # fmt: skip
    return Op.make(family, Variant("bf16", library=library, flags=tuple(sorted(flags))), **sizes)


@pytest.mark.parametrize("device", ["A100", "H100", "B200"])
def test_gradients_take_longer_than_their_forward_kernel(device: str) -> None:
    forward = seconds(attention("attention_prefill"), device)
    backward = seconds(attention("attention_backward"), device)
    assert 1.5 * forward < backward < 6.0 * forward


def test_width_of_values_counts() -> None:
    narrow = attention("attention_backward", head_dim=192, value_dim=128)
    model = implementation_for(narrow.family, "simt")
    assert model is not None
    pairs = 2 * 16 * (4096 * 4097 // 2)
    assert model.flops(narrow) == 2 * (3 * 192 + 2 * 128) * pairs


def test_sums_in_one_order_cost_more() -> None:
    free = attention("attention_backward", "cudnn")
    ordered = attention("attention_backward", "cudnn", ordered=True)
    assert seconds(ordered, "B200") > seconds(free, "B200")


def test_an_eager_framework_sweeps_norms_twice() -> None:
    times = {
        library: seconds(
            Op.make("norm_backward", Variant("bf16", library=library), tokens=8192, hidden=8192),
            "H200",
        )
        for library in ("", "torch", "cudnn")
    }
    assert times[""] == times["torch"] > 1.5 * times["cudnn"]


@pytest.mark.parametrize(("library", "cost"), [("triton", 0.85), ("fa2", 1.238)])
def test_gradients_by_warps_cost_what_their_library_states(library: str, cost: float) -> None:
    """Five products where forward has two, each at the cost of the library or of all others."""
    forward, backward = (
        seconds(attention(f"attention_{way}", library, q_len=65536, kv_len=65536), "A100")
        for way in ("prefill", "backward")
    )
    assert backward / forward == pytest.approx(2.5 * cost, rel=0.03)
