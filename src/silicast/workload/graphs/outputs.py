"""Bytes that operations and nodes without stated tensors hand on.

Graphs of the catalog's models name what each node reads, no sizes; traced programs state both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from silicast.core.dtypes import BITS, RECIPES
from silicast.workload.graphs.graph import Loops, Node, TensorValue
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
    sequences = 1 if isinstance(lengths, tuple) else _number(op, "batch")
    rows = _number(op, "q_len") if "q_len" in dict(op.dims) else 1
    return sequences * rows * _number(op, "num_heads") * _number(op, "head_dim")


def _attention_inputs(op: Op) -> int:
    """Gradients of queries, keys and values."""
    lengths = dict(op.dims).get("kv_len", 1)
    sequences = 1 if isinstance(lengths, tuple) else _number(op, "batch")
    keys = sequences * _number(op, "kv_len") * _number(op, "num_kv_heads") * _number(op, "head_dim")
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


POINTWISE = frozenset(("elementwise", "silu_mul", "rope"))
REDUCTIONS = frozenset(("softmax", "layernorm", "rmsnorm"))
"""Families that are loops where a graph does not state what its nodes are."""


def with_tensors(nodes: Sequence[Node]) -> Iterator[Node]:
    """Nodes with their tensors; of one that states none, those that its op implies: one result,
    and operands of its size.

    >>> (node,) = with_tensors([Node("a", Op.make("softmax", rows=8, cols=64))])
    >>> node.writes[0].nbytes, node.loops
    (1024, 'rows')
    """
    made: dict[str, TensorValue] = {}
    for node in nodes:
        if node.reads or node.writes or node.loops:
            made |= {value.name: value for value in node.writes}
            yield node
            continue
        size = _result_size(node)
        loops = _loops_of(node)
        dtype = _format(node.op)
        bits = int(BITS.get(dtype, 16))
        output = TensorValue((size * 8 // bits,), dtype, size, name=node.name)
        reads = [made[name] for name in node.inputs if name in made and made[name].nbytes]
        unnamed = _inputs(node) - len(reads) if loops else 0
        reads += [replace(output, name=f"{node.name} {number}") for number in range(unnamed)]
        if not size:
            loops = ""
        made[node.name] = output
        yield replace(node, reads=tuple(reads), writes=(output,), loops=loops)


def _loops_of(node: Node) -> Loops:
    if node.op.family in REDUCTIONS:
        return "rows"
    few = node.source.split(".")[-1] if node.source else ""
    if node.op.family in POINTWISE or few in ("dropout", "native_dropout"):
        return "pointwise"
    return ""


def _inputs(node: Node) -> int:
    """Tensors of its size that a node reads."""
    if node.op.family == "elementwise":
        inputs = dict(node.op.dims).get("inputs", 1)
        return inputs if isinstance(inputs, int) else 1
    if node.op.family == "silu_mul":
        return 2
    return 2 if dict(node.op.dims).get("residual") == 1 else 1


def _result_size(node: Node) -> int:
    """Bytes of its result; 0 where a size is a symbol."""
    if not all(isinstance(size, (int, tuple)) for _, size in node.op.dims):
        return 0
    if node.op.family == "data_movement" and _loops_of(node):
        read = node.op.dim("read_bytes")
        return read if isinstance(read, int) else 0
    return result_bytes(node.op)


def _format(op: Op) -> str:
    recipe = RECIPES.get(op.variant.dtype)
    return op.variant.dtype if recipe is None else recipe.output
