"""What a profiler recorded is the kernel that a traced program of the same call has."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.measurement.importers.recorded_calls import NotAKernelError, RecordedCall, kernel_of
from silicast.scenario.kernels.kernel_case import kernel_case
from silicast.workload.graphs.op import Op
from silicast.workload.operators import OperatorCall, TensorValue, kernels_of

SIZES = st.integers(1, 300)
BYTES = {"bf16": 2, "fp32": 4}
TYPES = {"bf16": "c10::BFloat16", "fp32": "float"}


def value(shape: tuple[int, ...], dtype: str) -> TensorValue:
    return TensorValue(shape, dtype, math.prod(shape) * BYTES[dtype])


def traced(name: str, out: tuple[int, ...], *args: Any) -> Op:
    """The kernel of a call as a front end makes it, with its true result."""
    inputs = tuple(x for x in args if isinstance(x, TensorValue))
    return kernels_of(OperatorCall(name, args, {}, inputs, (value(out, inputs[0].dtype),)))[0].op


def recorded(name: str, *args: Any) -> Op:
    """The kernel of the same call as a profiler records it."""
    dims = [list(x.shape) if isinstance(x, TensorValue) else [] for x in args]
    types = [TYPES[x.dtype] if isinstance(x, TensorValue) else "Scalar" for x in args]
    values = [
        "" if isinstance(x, TensorValue) else str(list(x) if isinstance(x, tuple) else x)
        for x in args
    ]
    call = RecordedCall(name.replace(".", "::"), dims, types, values)
    return kernel_case(kernel_of(call)).op


def core(op: Op) -> tuple[Any, ...]:
    """Sizes and flags without those that only tables state, or only one side of a window."""
    usual = (("window", 0), ("mask_bytes", 0), ("batch", 1), ("q_len", 1))
    both = {n.removesuffix("_h") for n, _ in op.dims if n.endswith("_h")}
    dims = {n: d for n, d in op.dims if (n, d) not in usual and n not in both}
    flags = {n for n, on in op.variant.flags if on and op.family != "attention_decode"}
    return op.family, dims, flags, op.variant.dtype


@given(SIZES, SIZES, SIZES, SIZES, st.sampled_from(tuple(BYTES)))
def test_a_recorded_call_is_the_traced_one(b: int, m: int, n: int, k: int, dtype: str) -> None:
    a, w, rows = value((m, k), dtype), value((k, n), dtype), value((b, m, n), dtype)
    norm = value((n,), dtype)
    heads = value((2, 4, m, 64), dtype)
    images, filters = value((2, 8, m + 6, n + 6), dtype), value((16, 4, 3, 5), dtype)
    space = ((m + 6 + 2 - 3) // 2 + 1, (n + 6 + 2 - 5) // 2 + 1)
    convolution = (images, filters, None, (2, 2), (1, 1), (1, 1), False, (0, 0), 2)
    for name, out, args in (
        ("aten.mm", (m, n), (a, w)),
        ("aten.addmm", (m, n), (norm, a, w)),
        ("aten.bmm", (b, m, n), (value((b, m, k), dtype), value((b, k, n), dtype))),
        ("aten.linear", (m, n), (a, value((n, k), dtype))),
        ("aten.add", rows.shape, (rows, rows)),
        ("aten.mul", rows.shape, (rows, 2.5)),
        ("aten.pow", rows.shape, (rows, 3)),
        ("aten.gelu", rows.shape, (rows,)),
        ("aten._softmax", rows.shape, (rows, -1, False)),
        ("aten.native_layer_norm", rows.shape, (rows, (n,), norm, norm, 1e-5)),
        ("aten.convolution", (2, 16, *space), convolution),
        ("aten._scaled_dot_product_flash_attention", heads.shape, (heads,) * 3 + (0.0, m > 9)),
    ):
        assert core(recorded(name, *args)) == core(traced(name, out, *args)), name


@pytest.mark.parametrize(
    ("name", "dims", "types"),
    [
        ("aten::mm", [], []),
        ("aten::mm", [[8, 8], []], ["float", "float"]),
        ("aten::mm", ["x", [8, 8]], ["float", "float"]),
        ("aten::bmm", [[2, 8, 8], [8]], ["float", "float"]),
        ("aten::add", [[], [8]], ["double", "float"]),
        ("aten::linear", [[8, 8], [[1, 2]]], ["float", "TensorList"]),
    ],
)
def test_records_that_lack_a_shape_are_no_kernel(name: str, dims: Any, types: Any) -> None:
    with pytest.raises(NotAKernelError):
        kernel_of(RecordedCall(name, dims, types))
