"""PyTorch operators that stream rows or elements, as ``kernel`` tables."""

from __future__ import annotations

import math

from silicast.measurement.importers.aten_calls import (
    SIZES,
    SMALL,
    STREAMED,
    AtenCall,
    NotAKernelError,
    reads,
)
from silicast.measurement.records import Columns

UNARY = {
    "relu": "relu", "gelu": "gelu", "silu": "silu", "sigmoid": "sigmoid", "tanh": "tanh",
    "exp": "exp", "sqrt": "sqrt", "neg": "neg", "rsqrt": "sqrt", "reciprocal": "divu",
    "clamp": "relu", "clamp_min": "relu", "clone": "copy", "square": "mulu",
}  # fmt: skip
BINARY = {"add": "add", "sub": "sub", "mul": "mul", "div": "div", "rsub": "sub"}
WITH_SCALAR = {"add": "addu", "sub": "subu", "mul": "mulu", "div": "divu", "pow": "powu"}


def _names(table: dict[str, str]) -> tuple[str, ...]:
    """Operators, and their forms in place."""
    return tuple(f"aten::{name}{end}" for name in table for end in ("", "_"))


def _plain(call: AtenCall) -> str:
    return call.name.removeprefix("aten::").removesuffix("_")


def _stream_dtype(call: AtenCall, index: int) -> str:
    dtype = call.dtype(index)
    if dtype not in STREAMED:
        raise NotAKernelError(f"streams {dtype}, which no kernel model has")
    return dtype


@reads(*_names(UNARY))
def _unary(call: AtenCall) -> Columns:
    if not (call.dense(0) if call.name == "aten::clone" else call.packed(0)):
        raise NotAKernelError("reads its tensor against the order in memory")
    return _table(call, UNARY[_plain(call)], 1, call.shape(0))


@reads(*_names(BINARY), "aten::pow", "aten::pow_")
def _binary(call: AtenCall) -> Columns:
    """Two tensors, or a tensor and a number; what is broadcast is small."""
    name = _plain(call)
    tensors = [index for index in call.tensors() if index < 2]
    if not tensors:
        call.shape(0)  # says that shapes are missing
    shapes = [call.shape(index) for index in tensors]
    if len(tensors) == 1:
        if not call.packed(tensors[0]):
            raise NotAKernelError("reads its tensor against the order in memory")
        if tensors[0] != 0 or name not in WITH_SCALAR:
            raise NotAKernelError("a number before a tensor")
        kind = WITH_SCALAR[name]
        if name == "pow":  # a square is a product, a root a root
            kind = {2: "mulu", 0.5: "sqrt"}.get(call.value(1) or 0, kind)
        return _table(call, kind, 1, shapes[0])
    if call.types[tensors[0]] != call.types[tensors[1]]:
        raise NotAKernelError("two tensors in different formats")
    sizes = [math.prod(shape) for shape in shapes]
    result = _broadcast(*shapes)
    whole = [index for index, size in zip(tensors, sizes, strict=True) if size == result]
    if not whole or (len(whole) < 2 and min(sizes) * SMALL > result):
        raise NotAKernelError("tensors that are broadcast against each other")
    if not call.packed(*whole):
        raise NotAKernelError("reads a tensor against the order in memory")
    if name == "pow":
        return _table(call, "pow", len(whole), shapes[whole[0]])
    kind = BINARY[name] if len(whole) > 1 else WITH_SCALAR[name if name != "rsub" else "sub"]
    return _table(call, kind, len(whole), shapes[tensors.index(whole[0])])


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    """Elements of the result of two shapes."""
    long = max(len(a), len(b))
    padded = [(1,) * (long - len(shape)) + shape for shape in (a, b)]
    return math.prod(max(x, y) if min(x, y) else 0 for x, y in zip(*padded, strict=True))


def _table(call: AtenCall, kind: str, inputs: int, shape: tuple[int, ...]) -> Columns:
    return {
        "op": "elementwise", "kind": kind, "inputs": inputs, "elements": math.prod(shape),
        "dtype": _stream_dtype(call, call.tensors()[0]),
    }  # fmt: skip


@reads("aten::copy_")
def _copy(call: AtenCall) -> Columns:
    """A copy between tensors of one format and order; another format is a cast."""
    to, source = call.shape(0), call.shape(1)
    if to != source or not call.packed(0, 1):
        raise NotAKernelError("a copy that reorders or repeats")
    if call.types[0] != call.types[1]:
        if SIZES.get(call.types[0]) != SIZES.get(call.types[1]):
            raise NotAKernelError("a cast between formats of different sizes")
        return _table(call, "cast", 1, to)
    return _table(call, "copy", 1, to)


@reads("aten::_softmax", "aten::_log_softmax", "aten::softmax", "aten::log_softmax",
       "aten::_safe_softmax")  # fmt: skip
def _softmax(call: AtenCall) -> Columns:
    shape, axis = call.shape(0), call.value(1)
    if not isinstance(axis, int) or axis not in (-1, len(shape) - 1):
        raise NotAKernelError("a softmax along another axis than the last, or one not recorded")
    cols = shape[-1]
    rows = math.prod(shape[:-1])
    return {"op": "softmax", "rows": rows, "cols": cols, "dtype": _stream_dtype(call, 0)}


@reads("aten::native_layer_norm", "aten::layer_norm")
def _layer_norm(call: AtenCall) -> Columns:
    return _norm(call, "layernorm")


@reads("aten::_fused_rms_norm", "aten::rms_norm")
def _rms_norm(call: AtenCall) -> Columns:
    return _norm(call, "rmsnorm")


def _norm(call: AtenCall, op: str) -> Columns:
    shape, inner = call.shape(0), call.value(1)
    if not isinstance(inner, list) or list(shape[len(shape) - len(inner) :]) != inner:
        raise NotAKernelError("a norm whose rows were not recorded")
    hidden = math.prod(inner)
    tokens = math.prod(shape) // max(hidden, 1)
    return {"op": op, "tokens": tokens, "hidden": hidden, "dtype": _stream_dtype(call, 0)}


@reads("aten::embedding")
def _embedding(call: AtenCall) -> Columns:
    vocab, hidden = call.shape(0)
    return {
        "op": "embedding", "tokens": math.prod(call.shape(1)), "hidden": hidden, "vocab": vocab,
        "dtype": _stream_dtype(call, 0),
    }  # fmt: skip
