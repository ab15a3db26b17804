"""Matrix products."""

from __future__ import annotations

import math
from dataclasses import replace

from silicast.workload.graphs.op import Op, Variant
from silicast.workload.operators.table import STREAMED, OperatorCall, TensorValue, lowers, movement

FLOATS = (*STREAMED, "fp64")
MOST_ROWS = 1 << 24
"""Rows of a product that kernel models take."""
_MULTIPLIED = (*FLOATS, "tf32", "int8", "fp8", "int8_wo", "int4_wo", "sq", "mxfp8", "nvfp4")


def product(m: int, n: int, k: int, batch: int = 1, dtype: str = "bf16") -> Op:
    """A matrix product; numbers that no kernel model multiplies cost bytes and operations.

    More rows than kernel models take are a batch of as many products of half the rows.
    """
    while m > MOST_ROWS:
        m, batch = -(-m // 2), batch * 2
    if dtype not in _MULTIPLIED:
        size = 8 if dtype in ("int64", "complex64") else 4
        read = batch * size * (m * k + k * n)
        return movement(read, batch * size * m * n, 2 * batch * m * n * k, unmodelled=True)
    return Op.make("gemm", Variant(dtype), m=m, n=n, k=k, batch=batch)


def format_of(call: OperatorCall, a: TensorValue) -> str:
    """Format of a product: fp32 tensors may be multiplied in TF32; dequantised operands in int8
    where both are stored so, else as wide as the activations.
    """
    left, right = (*call.kwargs.get("stored", ()), None, None)[:2]
    if left is not None and right is not None and left.dtype == right.dtype == "int8":
        return "sq"
    if right is not None and right.dtype in ("int8", "int4"):
        return f"{right.dtype}_wo"
    return call.product if a.dtype == "fp32" else a.dtype


@lowers("aten: mm addmm mv addmv _addmm_activation sparse_mm bmm baddbmm")
def _mm(call: OperatorCall) -> Op:
    """M x k times k x n, possibly a batch; a bias or a sum is part of the kernel."""
    a, b = call.inputs[-2:] if "add" in call.name else call.inputs[:2]
    *batch, m, k = a.shape
    n = 1 if "mv" in call.name else b.shape[len(batch) + 1]
    m, n, count = _folded(a, b, m, n, math.prod(batch))
    return product(m, n, k, count, format_of(call, a))


def _folded(a: TensorValue, b: TensorValue, m: int, n: int, batch: int) -> tuple[int, int, int]:
    """A batch whose every product has the same operand is one product with more rows or columns.

    >>> a = TensorValue((8, 16, 4), "fp16", 1024, strides=(64, 4, 1))
    >>> _folded(a, TensorValue((8, 4, 32), "fp16", 256, strides=(0, 32, 1)), 16, 32, 8)
    (128, 32, 1)
    """
    if batch > 1 and b.strides[:1] == (0,):
        return m * batch, n, 1
    if batch > 1 and a.strides[:1] == (0,):
        return m, n * batch, 1
    return m, n, batch


@lowers("aten: _scaled_mm _int_mm _weight_int8pack_mm _weight_int4pack_mm")
def _quantized_mm(call: OperatorCall) -> Op:
    a = call.inputs[0]
    packed = [bits for bits in ("int8", "int4") if f"{bits}pack" in call.name]
    dtype = f"{packed[0]}_wo" if packed else a.dtype
    return product(a.shape[0], call.out.shape[1], a.shape[1], 1, dtype)


@lowers("aten: linear mkldnn_linear", "mkldnn: _linear_pointwise", "mkl: _mkl_linear")
def _linear(call: OperatorCall) -> Op:
    """Rows by a matrix stored as (out, in)."""
    rows, weight = call.inputs[:2]
    n, k = weight.shape
    return product(rows.elements // k, n, k, 1, format_of(call, rows))


@lowers("aten: matmul", "onnx: MatMul MatMulInteger QLinearMatMul", "com.microsoft: FusedMatMul")
def _matmul(call: OperatorCall) -> Op:
    """Stacks of matrices; a stack times one matrix is one long matrix."""
    a, b = call.args[0], call.args[3 if "QLinear" in call.name else 1]
    dtype = "sq" if "QLinear" in call.name or "Integer" in call.name else format_of(call, a)
    m = a.shape[-2] if len(a.shape) > 1 else 1
    n = b.shape[-1] if len(b.shape) > 1 else 1
    batch = max(call.out.elements // max(m * n, 1), 1)
    if math.prod(b.shape[:-2]) == 1:
        m, batch = m * batch, 1
    return product(m, n, a.shape[-1], batch, dtype)


@lowers("onnx: Gemm")
def _gemm(call: OperatorCall) -> Op:
    a, b = call.args[:2]
    m, k = a.shape[::-1] if call.kwargs.get("transA") else a.shape
    n = b.shape[0] if call.kwargs.get("transB") else b.shape[1]
    return product(m, n, k, 1, format_of(call, a))


@lowers("com.microsoft: MatMulNBits")
def _packed(call: OperatorCall) -> Op:
    n, k = int(call.kwargs["N"]), int(call.kwargs["K"])
    dtype = "int4_wo" if int(call.kwargs.get("bits", 4)) <= 4 else "int8_wo"
    return product(call.out.elements // n, n, k, 1, dtype)


@lowers("aten: _grouped_mm _scaled_grouped_mm")
def _grouped_mm(call: OperatorCall) -> Op:
    """Rows of each expert by its own matrix, in even shares: how many there are is data. The
    function's name distinguishes it from a batch of products.
    """
    a, b = call.inputs[:2]
    dtype = "fp8" if "scaled" in call.name else format_of(call, a)
    if len(call.out.shape) == 3:  # a gradient of the experts: rows are what is summed over
        experts, m, n = call.out.shape
        k = -(-a.shape[-1] // experts) if len(a.shape) == 2 else a.shape[-1]
    else:
        experts = b.shape[0] if len(b.shape) == 3 else 1
        m, n, k = -(-a.shape[0] // experts), b.shape[-1], a.shape[-1]
    op = product(m, n, k, experts, dtype)
    if op.family != "gemm":
        return op
    return replace(op, variant=replace(op.variant, kernel="grouped_mm"))


@lowers("onnx: Einsum")
def _einsum(call: OperatorCall) -> Op:
    """Two operands: letters in both and in the result are a batch, those in both alone a sum."""
    equation = call.kwargs["equation"]
    text = equation.decode() if isinstance(equation, bytes) else str(equation)
    left, arrow, right = text.replace(" ", "").partition("->")
    terms = left.split(",")
    if not arrow or len(terms) != 2 or "." in text:
        return movement(call.read_bytes, call.written_bytes, unmodelled=True)
    sizes = dict(zip(terms[0], call.args[0].shape, strict=True))
    sizes |= dict(zip(terms[1], call.args[1].shape, strict=True))
    first, second, output = (set(x) for x in (*terms, right))

    def size(letters: set[str]) -> int:
        return math.prod(sizes[x] for x in letters)

    batch, k = size(first & second & output), size((first & second) - output)
    return product(size(first - second), size(second - first), k, batch, call.args[0].dtype)
