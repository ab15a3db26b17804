"""Operators with the shapes that a profiler recorded, as ``kernel`` tables.

What an operator computes is defined in :mod:`silicast.workload.operators`. A profiler records what
goes in, not what comes out, so that only operators are read whose results follow from that, and
only calls that are one plain kernel. Operators that an operator calls are read on their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

from silicast.core.errors import SilicastError
from silicast.measurement.records.records import Columns
from silicast.scenario.kernels.kernel_table_of import kernel_table_of
from silicast.workload.operators import OperatorCall, TensorValue, kernels_of
from silicast.workload.operators.attention import CAUSAL, NARROWEST_HEAD
from silicast.workload.operators.table import full_names

FORMATS = {
    "float": ("fp32", 4), "c10::BFloat16": ("bf16", 2), "c10::Half": ("fp16", 2),
    "double": ("fp64", 8), "c10::Float8_e4m3fn": ("fp8", 1), "c10::Float8_e5m2": ("fp8", 1),
    "signed char": ("int8", 1), "unsigned char": ("uint8", 1), "bool": ("bool", 1),
    "short": ("int16", 2), "int": ("int32", 4), "long int": ("int64", 8), "long": ("int64", 8),
}  # fmt: skip
"""Types of tensors as the profiler names them -> format and bytes of an element."""
WITHOUT_PARTS = frozenset(
    full_names(
        ["aten: linear matmul layer_norm softmax log_softmax scaled_dot_product_attention rms_norm"]
    )
)
"""Operators that are read only where none that they call is."""
USUAL = (("gemm", "batch", 1), ("rmsnorm", "residual", False), ("layernorm", "residual", False))
"""Op, column and value that its table leaves out."""
_MAY_BE_ZERO = ("padding", "padding_h", "padding_w", "kv_len", "window", "inputs", "residual")


class NotAKernelError(Exception):
    """Why a call is no kernel of a scenario."""


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise NotAKernelError(otherwise)


@final
@dataclass(frozen=True, slots=True)
class RecordedCall:
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

    @property
    def operator(self) -> str:
        """Its name as the table of operators writes it."""
        return self.name.replace("::", ".")

    def argument(self, index: int) -> Any:
        """A tensor, a number, a truth value, a tuple of whole numbers; None = not recorded. The
        bytes of a scalar that is a tensor are neglected.
        """
        kind = self.types[index] if index < min(len(self.types), len(self.dims)) else ""
        if kind not in FORMATS:
            text = self.values[index] if index < len(self.values) else ""
            return _value(text) if isinstance(text, str) else None
        (dtype, size), dims = FORMATS[kind], self.dims[index]
        if dims and isinstance(dims[0], list):
            return None
        shape = tuple(map(int, dims))
        return TensorValue(shape, dtype, math.prod(shape) * size if shape else 0)

    def call(self) -> OperatorCall:
        """The call with its result, which has the shape and format of its broadcast operands."""
        args = tuple(self.argument(i) for i in range(max(len(self.dims), len(self.values))))
        shapes = [value.shape for value in args if isinstance(value, TensorValue)]
        return called(self.operator, args, _broadcast(shapes))

    def packed(self, *indices: int) -> bool:
        """Whether tensors lie in memory without gaps and in one order of axes, whichever it is;
        True if not recorded.
        """
        recorded = [self.strides[i] for i in indices if i < len(self.strides) and self.strides[i]]
        if not recorded:
            return True
        ordered = sorted(zip(recorded[0], self.dims[indices[0]], strict=False))
        return _without_gaps(ordered) and all(strides == recorded[0] for strides in recorded)

    def dense(self, index: int) -> bool:
        """Whether a tensor lies in memory in the order of its axes; True if not recorded."""
        strides = self.strides[index] if index < len(self.strides) else ()
        return _without_gaps(list(zip(strides, self.dims[index], strict=False))[::-1])


def called(name: str, args: tuple[Any, ...], shape: tuple[int, ...]) -> OperatorCall:
    """A call whose result has a shape, in the format of its first operand.

    Raises:
        NotAKernelError: no operand has a shape.
    """
    inputs = tuple(value for value in args if isinstance(value, TensorValue))
    first = next((value for value in inputs if value.shape), None)
    if first is None:
        raise NotAKernelError("on scalars, or its shapes were not recorded (record_shapes=True)")
    size = first.nbytes // max(first.elements, 1)
    return OperatorCall(
        name, args, {}, inputs, (TensorValue(shape, first.dtype, math.prod(shape) * size),)
    )


def _without_gaps(axes: Sequence[tuple[int, int]]) -> bool:
    """Whether strides and sizes, the fastest axis first, leave no byte out."""
    expected = 1
    for stride, size in axes:
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def _broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    most = max((len(shape) for shape in shapes), default=0)
    padded = [(1,) * (most - len(shape)) + shape for shape in shapes]
    return tuple(max(sizes) if min(sizes) else 0 for sizes in zip(*padded, strict=True))


def _value(text: str) -> Any:
    """A number, a truth value or a list of whole numbers as the profiler writes it.

    >>> _value("[1, 2]"), _value("True"), _value("0."), _value("")
    ((1, 2), True, 0.0, None)
    """
    if text in ("True", "False"):
        return text == "True"
    try:
        if text.startswith("[") and text.endswith("]"):
            return tuple(int(part) for part in text[1:-1].split(",") if part.strip())
        return int(text) if text.lstrip("-").isdigit() else float(text)
    except ValueError:
        return None


Reader = Callable[[RecordedCall], OperatorCall]
READERS: dict[str, Reader] = {}
"""Operator -> its call, where the record shows one plain kernel."""


def reads(*names: str) -> Callable[[Reader], Reader]:
    """Registers the reader of operators; names as :func:`silicast.workload.operators.lowers`."""

    def register(reader: Reader) -> Reader:
        READERS.update(dict.fromkeys(full_names(names), reader))
        return reader

    return register


def kernel_of(recorded: RecordedCall) -> Columns:
    """The ``kernel`` table of a call.

    Raises:
        NotAKernelError: names why it is none.

    >>> kernel_of(RecordedCall("aten::mm", [[8, 64], [64, 32]], ["float", "float"]))
    {'op': 'gemm', 'k': 64, 'm': 8, 'n': 32, 'dtype': 'fp32'}
    """
    reader = READERS.get(recorded.operator) or READERS.get(recorded.operator.removesuffix("_"))
    if reader is None:
        raise NotAKernelError("no kernel model stands for it")
    try:
        op = kernels_of(reader(recorded))[0].op
        if any(size == 0 and name not in _MAY_BE_ZERO for name, size in op.dims):
            raise NotAKernelError("works on nothing: one of its sizes is 0")
        if op.family == "data_movement":
            types = ", ".join(dict.fromkeys(kind for kind in recorded.types if kind in FORMATS))
            raise NotAKernelError(f"no kernel model takes {types}, or operands that are broadcast")
        table = kernel_table_of(op)
    except (ValueError, TypeError, IndexError, AttributeError, ArithmeticError):
        raise NotAKernelError("its shapes are recorded in an unknown way") from None
    except SilicastError as error:
        field = error.field.removeprefix("kernel.")
        raise NotAKernelError(f"{op.family}: {field} {error.message}"[:300]) from None
    return {n: value for n, value in table.items() if (op.family, n, value) not in USUAL}


reads(
    "aten: mm addmm _addmm_activation mv addmv bmm baddbmm embedding",
    "_C: rms_norm fused_add_rms_norm silu_and_mul static_scaled_fp8_quant cutlass_scaled_mm "
    "dynamic_scaled_fp8_quant dynamic_per_token_scaled_fp8_quant",
    "_C_cache_ops: reshape_and_cache_flash reshape_and_cache",
    "sgl_kernel: rmsnorm fused_add_rmsnorm silu_and_mul fp8_scaled_mm",
)(RecordedCall.call)


@reads("aten: _scaled_mm _int_mm matmul")
def _product(recorded: RecordedCall) -> OperatorCall:
    a, b = args = recorded.argument(0), recorded.argument(1)
    plain = len(a.shape) > 1 and len(b.shape) > 1
    plain = plain and (len(b.shape) == 2 or a.shape[:-2] == b.shape[:-2])
    _require(plain, "a product of vectors, or one whose batches are broadcast")
    return called(recorded.operator, args, (*a.shape[:-1], b.shape[-1]))


@reads("aten: linear mkldnn_linear", "mkldnn: _linear_pointwise", "mkl: _mkl_linear")
def _linear(recorded: RecordedCall) -> OperatorCall:
    call = recorded.call()
    rows, weight = (value.shape for value in call.inputs[:2])
    unpacked = len(weight) == 2 and weight[1] == rows[-1]
    _require(unpacked, "its weights are packed: their sizes were not recorded")
    return call


@reads(*CAUSAL)
def _attention(recorded: RecordedCall) -> OperatorCall:
    q, k, v = (recorded.argument(index).shape for index in range(3))
    causal = recorded.argument(CAUSAL[recorded.operator])
    _require(isinstance(causal, bool), "attention: whether it is causal was not recorded")
    usual = len(q) == 4 and q[3] == v[3] and q[3] >= NARROWEST_HEAD
    _require(usual, "attention with values of another width than keys, or narrow heads")
    last = q[2] == 1 or q[2] == k[2] or (q[2] < k[2] and not causal)
    _require(last, "attention to fewer keys than queries, or causal from the first key")
    return recorded.call()


@reads("flash_attn: _flash_attn_forward")
def _flash_attention(recorded: RecordedCall) -> OperatorCall:
    causal, window = recorded.argument(5), recorded.argument(6)
    plain = isinstance(causal, bool) and window in (None, -1)
    _require(plain, "attention in a window, or whether it is causal was not recorded")
    queries, keys = (recorded.argument(index).shape[1] for index in (0, 1))
    _require(queries <= keys, "attention to fewer keys than queries")
    return recorded.call()


@reads("_C: rotary_embedding")
def _rope(recorded: RecordedCall) -> OperatorCall:
    width = recorded.argument(3)
    recorded_width = isinstance(width, int) and width > 0
    _require(recorded_width, "rope: the width of a head was not recorded")
    return recorded.call()


@reads("aten: convolution _convolution")
def _convolution(recorded: RecordedCall) -> OperatorCall:
    """Images (batch, channels, height, width), filters (out, in of a group, height, width)."""
    args = images, filters, _, stride, padding, dilation, transposed, _, groups = tuple(
        recorded.argument(index) for index in range(9)
    )
    plane = len(images.shape) == len(filters.shape) == 4
    _require(plane, "a convolution of another number of axes than two")
    plain = transposed is False and isinstance(groups, int)
    _require(plain, "a transposed convolution, or one whose arguments were not recorded")
    _require(set(dilation) == {1}, "a convolution with gaps in its filter")
    sides = zip(images.shape[2:], filters.shape[2:], (0, -1), strict=True)
    space = ((size + 2 * padding[i] - taps) // stride[i] + 1 for size, taps, i in sides)
    return called(recorded.operator, args, (images.shape[0], filters.shape[0], *space))


@reads(
    "aten: relu gelu silu sigmoid tanh exp sqrt neg rsqrt reciprocal clamp clamp_min square clone"
)
def _unary(recorded: RecordedCall) -> OperatorCall:
    ordered = recorded.dense if recorded.operator == "aten.clone" else recorded.packed
    _require(ordered(0), "reads its tensor against the order in memory")
    return recorded.call()


@reads("aten: add sub mul div rsub pow")
def _binary(recorded: RecordedCall) -> OperatorCall:
    """Two tensors, or a tensor and a number."""
    call = recorded.call()
    operands = [i for i, x in enumerate(call.args[:2]) if isinstance(x, TensorValue) and x.shape]
    _require(operands[0] == 0, "a number before a tensor")
    formats = {recorded.types[index] for index in operands}
    _require(len(formats) == 1, "two tensors in different formats")
    whole = [i for i in operands if call.args[i].elements == call.out.elements]
    _require(recorded.packed(*whole), "reads a tensor against the order in memory")
    return call


@reads("aten: copy_")
def _copy(recorded: RecordedCall) -> OperatorCall:
    """A copy between tensors of one order; another format is a cast."""
    to, source = recorded.argument(0), recorded.argument(1)
    ordered = to.shape == source.shape and recorded.packed(0, 1)
    _require(ordered, "a copy that reorders or repeats")
    _require(to.nbytes == source.nbytes, "a cast between formats of different sizes")
    same = recorded.types[0] == recorded.types[1]
    return called("aten.clone" if same else "aten._to_copy", (to,), to.shape)


@reads("aten: _softmax _log_softmax softmax log_softmax _safe_softmax")
def _softmax(recorded: RecordedCall) -> OperatorCall:
    axis, call = recorded.argument(1), recorded.call()
    last = isinstance(axis, int) and axis in (-1, len(call.inputs[0].shape) - 1)
    _require(last, "a softmax along another axis than the last, or one not recorded")
    return call


@reads("aten: native_layer_norm layer_norm _fused_rms_norm rms_norm")
def _norm(recorded: RecordedCall) -> OperatorCall:
    row, call = recorded.argument(1), recorded.call()
    shape = call.inputs[0].shape
    is_recorded = isinstance(row, tuple) and shape[len(shape) - len(row) :] == row
    _require(is_recorded, "a norm whose rows were not recorded")
    return call
