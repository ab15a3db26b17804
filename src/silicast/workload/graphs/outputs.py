"""Bytes of the result of an operation, from its sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from silicast.core.dtypes import BITS, RECIPES
from silicast.workload.graphs.op import Op


def result_bytes(op: Op) -> int:
    """Bytes of the result of an op with integer sizes; 0 where its family is not known here.

    >>> result_bytes(Op.make("gemm", m=128, n=4096, k=1024, batch=2))
    2097152
    """
    count = _ELEMENTS.get(op.family)
    if op.family == "data_movement":
        return _number(op, "written_bytes")
    if count is None:
        return 0
    dtype = op.variant.dtype
    name = RECIPES[dtype].output if dtype in RECIPES else dtype
    return count(op) * int(BITS.get(name, 16)) // 8


def _number(op: Op, name: str, default: int = 1) -> int:
    size = dict(op.dims).get(name, default)
    if isinstance(size, tuple):
        return sum(size)
    return size if isinstance(size, int) else 0


def _product(*names: str) -> Callable[[Op], int]:
    def count(op: Op) -> int:
        elements = 1
        for name in names:
            elements *= _number(op, name)
        return elements

    return count


def _attention(op: Op) -> int:
    lengths = dict(op.dims).get("q_len", 1)
    each = 1 if isinstance(lengths, tuple) else _number(op, "batch")
    rows = _number(op, "q_len") if "q_len" in dict(op.dims) else 1
    return each * rows * _number(op, "num_heads") * _number(op, "head_dim")


def _attention_inputs(op: Op) -> int:
    """Gradients of queries, keys and values."""
    lengths = dict(op.dims).get("kv_len", 1)
    each = 1 if isinstance(lengths, tuple) else _number(op, "batch")
    keys = each * _number(op, "kv_len") * _number(op, "num_kv_heads") * _number(op, "head_dim")
    return _attention(op) + 2 * keys


def _convolution(op: Op) -> int:
    kernel, padding = _number(op, "kernel"), _number(op, "padding", 0)
    stride = _number(op, "stride")
    height, width = (
        (_number(op, side) + 2 * padding - kernel) // stride + 1 for side in ("height", "width")
    )
    return _number(op, "batch") * _number(op, "out_channels") * height * width


_ELEMENTS: Mapping[str, Callable[[Op], int]] = {
    "gemm": _product("batch", "m", "n"),
    "conv2d": _convolution,
    "attention_backward": _attention_inputs,
    "attention_prefill": _attention,
    "attention_decode": _attention,
    "softmax": _product("rows", "cols"),
    "layernorm": _product("tokens", "hidden"),
    "rmsnorm": _product("tokens", "hidden"),
    "norm_backward": _product("tokens", "hidden"),
    "elementwise": _product("elements"),
    "embedding": _product("tokens", "hidden"),
    "silu_mul": lambda op: _number(op, "tokens") * _number(op, "width") // 2,
    "moe": _product("tokens", "hidden"),
}
