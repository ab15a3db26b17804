"""PyTorch operators with the shapes that a profiler recorded, as ``kernel`` tables.

The profiler records what goes in, not what comes out: operators whose result does not follow from
their inputs stay unread. What an operator is taken for holds for the kernels that it launches
itself; operators that it calls are looked at on their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

from silicast.measurement.records import Columns

DTYPES = {
    "float": "fp32", "c10::BFloat16": "bf16", "c10::Half": "fp16", "double": "fp64",
    "c10::Float8_e4m3fn": "fp8", "c10::Float8_e5m2": "fp8", "signed char": "int8",
}  # fmt: skip
"""The profiler's names of formats -> those of a scenario; others are no kernel's that we know."""
SIZES = {
    "float": 4, "c10::BFloat16": 2, "c10::Half": 2, "double": 8, "long int": 8, "int": 4,
    "bool": 1, "unsigned char": 1, "signed char": 1, "short": 2, "long": 8,
}  # fmt: skip
TENSORS = frozenset(SIZES | DTYPES)
"""Types of arguments that are tensors."""
STREAMED = ("bf16", "fp16", "fp32")
SMALL = 32
"""A broadcast operand below this part of the result is lost beside it."""


class NotAKernelError(Exception):
    """Why a call is no kernel of a scenario."""


@final
@dataclass(frozen=True, slots=True)
class AtenCall:
    """One call of an operator as the profiler recorded it.

    Attributes:
        name: "aten::mm"; dims: shape of each argument, [] = a scalar or nothing.
        types: of each argument; values: of those that are no tensors, as text.
        strides: of each tensor; () = not recorded.
    """

    name: str
    dims: Sequence[Any] = ()
    types: Sequence[str] = ()
    values: Sequence[str] = ()
    strides: Sequence[Any] = ()

    def shape(self, index: int) -> tuple[int, ...]:
        """Of a tensor argument.

        Raises:
            NotAKernelError: there is none.
        """
        if index < len(self.types) and self.types[index] in TENSORS and not self.dims[index]:
            raise NotAKernelError("works on a scalar")
        if not self.is_tensor(index):
            raise NotAKernelError("its shapes were not recorded (record_shapes=True)")
        return tuple(int(size) for size in self.dims[index])

    def is_tensor(self, index: int) -> bool:
        """Whether an argument is one tensor with a shape."""
        if index >= min(len(self.dims), len(self.types)):
            return False
        dims = self.dims[index]
        return bool(dims) and not isinstance(dims[0], list) and self.types[index] in TENSORS

    def tensors(self) -> list[int]:
        """Arguments that are tensors with shapes."""
        return [index for index in range(len(self.dims)) if self.is_tensor(index)]

    def dtype(self, index: int) -> str:
        """Of a tensor.

        Raises:
            NotAKernelError: in no format of a scenario.
        """
        kind = self.types[index]
        if kind not in DTYPES:
            raise NotAKernelError(f"in {kind}, which no kernel model has")
        return DTYPES[kind]

    def value(self, index: int) -> Any:
        """An argument that is no tensor: a number, a truth value, a list; None = not recorded."""
        text = self.values[index] if index < len(self.values) else ""
        return _value(text) if isinstance(text, str) else None

    def packed(self, *indices: int) -> bool:
        """Whether tensors lie in memory without gaps and in one order of axes, whichever it is;
        True if not recorded.
        """
        found = [self.strides[i] for i in indices if i < len(self.strides) and self.strides[i]]
        if not found:
            return True
        expected = 1
        for stride, size in sorted(zip(found[0], self.dims[indices[0]], strict=False)):
            if size != 1 and stride != expected:
                return False
            expected *= size
        return all(strides == found[0] for strides in found)

    def dense(self, index: int) -> bool:
        """Whether a tensor lies in memory in the order of its axes; True if not recorded."""
        if index >= len(self.strides) or not self.strides[index]:
            return True
        expected = 1
        axes = zip(reversed(self.dims[index]), reversed(self.strides[index]), strict=False)
        for size, stride in axes:
            if size != 1 and stride != expected:
                return False
            expected *= size
        return True


def _value(text: str) -> Any:
    """A number, a truth value or a list of whole numbers as the profiler writes it.

    >>> _value("[1, 2]"), _value("True"), _value("0."), _value("")
    ([1, 2], True, 0.0, None)
    """
    if text in ("True", "False"):
        return text == "True"
    try:
        if text.startswith("[") and text.endswith("]"):
            return [int(part) for part in text[1:-1].split(",") if part.strip()]
        return int(text) if text.lstrip("-").isdigit() else float(text)
    except ValueError:
        return None


Reader = Callable[[AtenCall], Columns]
READERS: dict[str, Reader] = {}
"""Operator -> what reads it."""
WITHOUT_PARTS = frozenset(
    f"aten::{name}"
    for name in ("linear", "matmul", "layer_norm", "softmax", "log_softmax",
                 "scaled_dot_product_attention", "rms_norm")
)  # fmt: skip
"""Operators that are read only where none that they call is."""


def reads(*names: str) -> Callable[[Reader], Reader]:
    """Registers what reads an operator."""

    def register(reader: Reader) -> Reader:
        READERS.update(dict.fromkeys(names, reader))
        return reader

    return register


def kernel_of(call: AtenCall) -> Columns:
    """The ``kernel`` table of a call.

    Raises:
        NotAKernelError: says why it is none.

    >>> kernel_of(AtenCall("aten::mm", [[8, 64], [64, 32]], ["float", "float"]))
    {'op': 'gemm', 'm': 8, 'n': 32, 'k': 64, 'dtype': 'fp32'}
    """
    import silicast.measurement.importers.aten_images
    import silicast.measurement.importers.aten_streams
    import silicast.measurement.importers.engine_calls  # noqa: F401 - fill READERS

    reader = READERS.get(call.name)
    if reader is None:
        raise NotAKernelError("no kernel model stands for it")
    table = reader(call)
    if any(isinstance(size, int) and not isinstance(size, bool) and size < 0
           for size in table.values()) or _is_empty(table):  # fmt: skip
        raise NotAKernelError("works on nothing: one of its sizes is 0")
    return table


def _is_empty(table: Columns) -> bool:
    allowed = ("padding", "padding_h", "padding_w", "kv_len", "window", "inputs")
    return any(
        size == 0 and not isinstance(size, bool) and name not in allowed
        for name, size in table.items()
        if isinstance(size, int)
    )


@reads("aten::mm", "aten::addmm", "aten::_addmm_activation", "aten::mv", "aten::addmv")
def _mm(call: AtenCall) -> Columns:
    a = 1 if "add" in call.name else 0
    left, right = call.shape(a), call.shape(a + 1)
    n = right[1] if len(right) > 1 else 1
    return {"op": "gemm", "m": left[0], "n": n, "k": left[1], "dtype": call.dtype(a)}


@reads("aten::bmm", "aten::baddbmm")
def _bmm(call: AtenCall) -> Columns:
    a = 1 if "baddbmm" in call.name else 0
    (batch, m, k), right = call.shape(a), call.shape(a + 1)
    return {"op": "gemm", "m": m, "n": right[2], "k": k, "batch": batch, "dtype": call.dtype(a)}


@reads("aten::_scaled_mm", "aten::_int_mm")
def _narrow(call: AtenCall) -> Columns:
    left, right = call.shape(0), call.shape(1)
    return {"op": "gemm", "m": left[0], "n": right[1], "k": left[1], "dtype": call.dtype(0)}


@reads("aten::linear", "mkldnn::_linear_pointwise", "aten::mkldnn_linear", "mkl::_mkl_linear")
def _linear(call: AtenCall) -> Columns:
    """Rows by a matrix stored as (out, in)."""
    rows, weight = call.shape(0), call.shape(1)
    if len(weight) != 2 or weight[1] != rows[-1]:
        raise NotAKernelError("its weights are packed: their sizes were not recorded")
    m = math.prod(rows[:-1])
    return {"op": "gemm", "m": m, "n": weight[0], "k": rows[-1], "dtype": call.dtype(0)}


@reads("aten::matmul")
def _matmul(call: AtenCall) -> Columns:
    a, b = call.shape(0), call.shape(1)
    if len(a) < 2 or len(b) < 2 or (len(b) > 2 and a[:-2] != b[:-2]):
        raise NotAKernelError("a product of vectors, or one whose batches are broadcast")
    batch = math.prod(b[:-2])
    m = math.prod(a[:-1]) // batch
    return {"op": "gemm", "m": m, "n": b[-1], "k": a[-1], "batch": batch, "dtype": call.dtype(0)}


_CAUSAL = {
    "aten::_scaled_dot_product_flash_attention": 4,
    "aten::_scaled_dot_product_flash_attention_for_cpu": 4,
    "aten::_scaled_dot_product_efficient_attention": 6,
    "aten::_scaled_dot_product_cudnn_attention": 6,
    "aten::_scaled_dot_product_fused_attention_overrideable": 5,
    "aten::scaled_dot_product_attention": 5,
}
"""Operator -> place of ``is_causal``."""
SDPA = {
    "aten::_scaled_dot_product_flash_attention": ("sdpa_flash", "fa2"),
    "aten::_scaled_dot_product_efficient_attention": ("sdpa_efficient", "cutlass"),
    "aten::_scaled_dot_product_cudnn_attention": ("sdpa_cudnn", "cudnn"),
}
"""Operator of a GPU -> variant and library of its kernel."""


@reads(*_CAUSAL)
def _attention(call: AtenCall) -> Columns:
    """Queries, keys and values of shape (batch, heads, tokens, width)."""
    q, k, v = (call.shape(index) for index in range(3))
    causal = call.value(_CAUSAL[call.name])
    if not isinstance(causal, bool):
        raise NotAKernelError("attention: whether it is causal was not recorded")
    if len(q) != 4 or q[3] != v[3]:
        raise NotAKernelError("attention with values of another width than keys")
    batch, heads, q_len, width = q
    table = {
        "op": "attention_prefill", "batch": batch, "q_len": q_len, "kv_len": k[2],
        "num_heads": heads, "num_kv_heads": k[1], "head_dim": width, "dtype": call.dtype(0),
    }  # fmt: skip
    if q_len == 1:
        return {**table, "op": "attention_decode", "kv_len": k[2] - 1}
    if causal and q_len != k[2]:
        raise NotAKernelError("causal attention aligned to the first key, not the last")
    return {**table, "causal": causal}
