"""Task kernel: ops as their providers run them, in either direction."""

from __future__ import annotations

from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.scenario.answer import Answer
from silicast.scenario.decode import decode
from silicast.scenario.kernels.kernel_case import kernel_case
from silicast.scenario.kernels.kernel_table_of import kernel_table_of
from silicast.scenario.run import run

NORM = {"op": "rmsnorm", "tokens": 8192, "hidden": 4096}
LOSS = {"op": "cross_entropy", "rows": 4096, "vocab": 32768}
SIZES: dict[str, dict[str, int]] = {
    "rmsnorm": {"tokens": 64, "hidden": 4096}, "layernorm": {"tokens": 64, "hidden": 4096},
    "softmax": {"rows": 64, "cols": 4096}, "silu_mul": {"tokens": 64, "width": 8192},
    "rope": {"tokens": 64, "num_heads": 8, "head_dim": 128},
    "embedding": {"tokens": 64, "hidden": 512, "vocab": 1024},
    "cross_entropy": {"rows": 64, "vocab": 32768},
}  # fmt: skip


def answered(kernel: dict[str, Any], device: str = "H100", **fields: Any) -> Answer:
    return run(
        decode({"task": "kernel", "device": device, "workload": {"kernel": kernel}, **fields})
    )


def latency_us(kernel: dict[str, Any]) -> float:
    return answered(kernel).metrics["latency_us"].estimate


@pytest.mark.parametrize(
    ("kernel", "least_us", "most_us"),
    [
        ({"library": "torch"}, 210.0, 300.0),  # measured, with the host: 279.9
        ({"library": "liger"}, 18.0, 33.0),  # measured, with the host: 31.1
        ({"library": "vllm"}, 15.0, 25.0),
        ({}, 15.0, 25.0),
    ],
)
def test_the_library_says_which_model_answers(
    kernel: dict[str, Any], least_us: float, most_us: float
) -> None:
    """An RMSNorm of 2,048 x 4,096 on an A100, whether or not the forward pass is named."""
    norm = {"op": "rmsnorm", "tokens": 2048, "hidden": 4096, **kernel}
    result, stated = (answered(each, "A100") for each in (norm, {**norm, "pass": "forward"}))
    assert result == stated
    assert least_us < result.metrics["latency_us"].estimate < most_us
    assert result.tier in ("analytic", "cross-device")


@pytest.mark.parametrize("op", ["rmsnorm", "layernorm", "softmax", "silu_mul", "rope",
                                "embedding", "cross_entropy"])  # fmt: skip
@pytest.mark.parametrize("library", ["", "vllm", "torch", "torch_compile", "liger"])
def test_no_stated_pass_is_the_forward_pass(op: str, library: str) -> None:
    kernel = {"op": op, **SIZES[op], "library": library}
    assert kernel_case(kernel).op == kernel_case({**kernel, "pass": "forward"}).op
    assert kernel_case(kernel).op.family == op


def test_both_passes_are_the_sum_of_either() -> None:
    forward, backward, both = (
        latency_us({**NORM, "library": "torch", "pass": name})
        for name in ("forward", "backward", "full")
    )
    assert both == pytest.approx(forward + backward, rel=0.05)


def test_a_loss_with_its_gradient_is_both_passes() -> None:
    full = {**LOSS, "library": "torch", "pass": "full"}
    assert kernel_case({**full, "backward": True}).op == kernel_case(full).op
    with pytest.raises(SilicastError, match="backward"):
        kernel_case({**full, "backward": True, "pass": "forward"})


def test_memory_stands_beside_the_time_of_a_chain() -> None:
    metric = answered({**NORM, "library": "torch", "pass": "full"}).metrics["memory_gb"]
    assert metric.p05 < metric.estimate < metric.p95
    assert metric.estimate == pytest.approx(20 * 8192 * 4096 * 2 / 1e9)
    assert "memory_gb" not in answered(NORM).metrics


def test_a_gradient_of_a_table_needs_its_size() -> None:
    with pytest.raises(SilicastError) as caught:
        answered({"op": "embedding", "tokens": 64, "hidden": 512, "pass": "backward"})
    assert caught.value.field == "workload.kernel.vocab"


def test_an_unknown_pass_is_refused_by_name() -> None:
    with pytest.raises(SilicastError, match="sideways"):
        answered({**NORM, "pass": "sideways"})


@pytest.mark.parametrize(
    "kernel",
    [
        {**NORM, "residual": True, "library": "liger", "pass": "full"},
        {**LOSS, "library": "torch"},
        {"op": "gated_mlp", "tokens": 64, "hidden": 512, "intermediate": 2048, "pass": "backward"},
        {"op": "embedding", "tokens": 64, "hidden": 512, "library": "torch"},
    ],
)
def test_a_table_can_be_told_from_the_op(kernel: dict[str, Any]) -> None:
    op = kernel_case(kernel).op
    assert kernel_case(kernel_table_of(op)).op == op


@pytest.mark.parametrize("device", ["MI300X", "B200", "RTX 4090", "Gaudi 3", "TPU-v5p"])
def test_other_boards_are_answered_and_told_apart(device: str) -> None:
    result = answered({**NORM, "library": "torch", "pass": "full"}, device)
    assert result.metrics["latency_us"].estimate > result.bound["latency_us"] > 0.0
    assert any("constants of others stand in" in line for line in result.warnings)
