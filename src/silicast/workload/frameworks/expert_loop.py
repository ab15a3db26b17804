"""A layer of experts as plain model code runs it: one expert after the other.

The code asks the device which tokens an expert has, waits for the answer, and gathers, computes
and scatters them; with a capacity it also asks how many they are and where they go. Every answer
that the host waits for leaves the device idle until the host has launched the next kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from silicast.core.dtypes import BITS
from silicast.workload.graphs.graph import Node
from silicast.workload.graphs.op import HOST_WAITS, Op, Variant
from silicast.workload.models.model import ModelConfig

_Pass = Callable[..., Node]


def expert_loop(node: Node, model: ModelConfig, batch: int, one_pass: _Pass) -> Iterator[Node]:
    """Experts of a ``moe`` node with integer sizes, those that are chosen each with an even share
    of the tokens.

    Args:
        batch: sequences; a capacity is one of each.
        one_pass: makes an elementwise node of (name, kind, elements, *inputs).
    """
    op, recipe = node.op, Variant(dtype=node.op.variant.dtype)
    hidden, ups = _size(op, "hidden"), 2 if op.variant.flag("gated", default=True) else 1
    tokens = _size(op, "tokens")
    rows = -(-tokens * _size(op, "topk") // _size(op, "experts"))
    if model.moe is not None and model.moe.capacity:
        rows = min(rows, model.moe.capacity * batch)
    inner = _size(op, "intermediate") // _size(op, "tp")
    up = Op.make("gemm", recipe, m=rows, n=inner, k=hidden)
    down = Op.make("gemm", recipe, m=rows, n=hidden, k=inner)
    kind = {"relu2": "relu"}.get(model.activation, model.activation)
    fills = model.moe is not None and model.moe.capacity > 0
    last = node.inputs
    chosen = min(_size(op, "experts"), tokens * _size(op, "topk"))
    for number in range(max(chosen // _size(op, "ep"), 1)):
        current = f"{node.name}_{number}"
        text = f"{current}_which"
        yield _asked(text, tokens, *last)
        if fills:  # a buffer of the capacity, filled as far as there are tokens
            yield _asked(f"{current}_count", tokens, text)
            text = f"{current}_count"
        yield one_pass(f"{current}_take", "copy", rows * hidden, text)
        for half in range(ups):
            yield Node(f"{current}_up_{half}", up, (f"{current}_take",))
        yield one_pass(f"{current}_act", kind, rows * inner, f"{current}_up_0")
        if ups > 1:
            yield one_pass(
                f"{current}_mul", "mul2", rows * inner, f"{current}_act", f"{current}_up_1"
            )
        yield Node(f"{current}_down", down, (f"{current}_mul" if ups > 1 else f"{current}_act",))
        last = (f"{current}_down",)
        if fills:
            yield _asked(f"{current}_back", tokens, *last)
            last = (f"{current}_back",)
    yield one_pass(node.name, "add2", rows * hidden, *last)


def _asked(name: str, tokens: int, *inputs: str) -> Node:
    """Indices of the tokens that a mask selects; the host waits for how many they are."""
    index = int(BITS["int64"]) // 8
    op = Op.make(
        "data_movement",
        Variant(dtype="fp32", flags=((HOST_WAITS, True),)),
        read_bytes=tokens,
        written_bytes=index * tokens,
        operations=tokens,
    )
    return Node(name, op, inputs)


def _size(op: Op, name: str) -> int:
    value = op.dim(name)
    assert isinstance(value, int), (op.family, name)
    return value
