"""Tensors of nodes that state none: what their ops imply.

Graphs of the catalog's models name what each node reads, no sizes; traced programs state both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from silicast.core.dtypes import BITS, RECIPES
from silicast.workload.graphs.graph import Loops, Node
from silicast.workload.graphs.op import Op
from silicast.workload.graphs.outputs import result_bytes
from silicast.workload.graphs.tensor import TensorValue

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
        current = TensorValue((size * 8 // bits,), dtype, size, name=node.name)
        reads = [made[name] for name in node.inputs if name in made and made[name].nbytes]
        given = _inputs(node) - len(reads) if loops else 0
        reads += [replace(current, name=f"{node.name} {number}") for number in range(given)]
        if not size:
            loops = ""
        made[node.name] = current
        yield replace(node, reads=tuple(reads), writes=(current,), loops=loops)


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
