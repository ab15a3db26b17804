"""The backward pass of any graph, by rule: for each forward kernel those that autograd launches.

A node's backward kernels follow from its family and sizes alone
(:mod:`~silicast.workload.training.gradients`); this module
puts them in order: blocks and nodes in reverse, the sums of gradients where a tensor was read more
than once, what recomputation runs again, and the addition of weights' gradients to those of earlier
micro-batches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import final

from silicast.core.dtypes import BITS, RECIPES
from silicast.workload.graphs.graph import BACKWARD, Block, Graph, Node
from silicast.workload.graphs.op import INTEGERS, Op, Variant
from silicast.workload.graphs.outputs import result_bytes
from silicast.workload.training.gradients import gradients, saved_by
from silicast.workload.training.recomputation import Recompute, run_again


@final
@dataclass(frozen=True, slots=True)
class Training:
    """How a pass trains.

    Attributes:
        loss: cross entropy over the logits of a model with a vocabulary, where the graph has none.
        dropout: the model's dropouts run, as its published configuration has them.
        accumulates: weights have gradients already (of an earlier micro-batch, or zeroed in
            place), to which those of this pass are added.
        recompute: see :data:`~silicast.workload.training.recomputation.Recompute`.
    """

    loss: bool = True
    dropout: bool = True
    accumulates: bool = True
    recompute: Recompute = "none"


def training_graph(graph: Graph, training: Training = Training()) -> Graph:
    """``graph`` and its backward pass as one program.

    >>> from silicast.workload.graphs.op import Op
    >>> product = Op.make("gemm", m=512, n=4096, k=1024)
    >>> forward = Graph("one layer", (Block("forward", (Node("up", product),)),))
    >>> [node.name for _, node in training_graph(forward).nodes()]
    ['up', 'up_grad_input', 'up_grad_weight']
    """
    backward = backward_graph(graph, training)
    return replace(graph, blocks=(*graph.blocks, *backward.blocks), phase="training")


def backward_graph(graph: Graph, training: Training = Training()) -> Graph:
    """The backward pass of ``graph``: its blocks in reverse, ``direction`` "backward".

    Args:
        graph: forward blocks; sizes may be symbols where no sum of gradients needs them.
        training: what runs beside the gradients themselves.
    """
    forward = [block for block in graph.blocks if block.direction == "forward"]
    blocks = [_reversed(block, training) for block in reversed(forward)]
    nonempty = tuple(block for block in blocks if block.nodes)
    return replace(graph, blocks=nonempty, phase="training", boundary=graph.boundary)


@lru_cache(maxsize=256)
def _reversed(block: Block, training: Training) -> Block:
    nodes = (*run_again(block, training.recompute), *_Backward(block, training).nodes())
    return Block(
        f"{block.name}{BACKWARD}", nodes, block.layers[::-1], block.times, direction="backward"
    )


@final
class _Backward:
    """Backward kernels of one block."""

    def __init__(self, block: Block, training: Training) -> None:
        self.block = block
        self.training = training
        self.readers: Mapping[str, int] = Counter(
            name for node in block.nodes for name in dict.fromkeys(node.inputs)
        )
        self.last: dict[str, list[str]] = {}
        self.again = frozenset(node.name for node in run_again(block, training.recompute))

    def nodes(self) -> Iterator[Node]:
        for node in reversed(self.block.nodes):
            yield from self._of(node)
        shared = [
            node
            for node in self.block.nodes
            if not node.inputs and not node.of_weights and not node.op.variant.flag(INTEGERS)
        ]
        yield from self._sums("input", shared[0] if len(shared) > 1 else None, len(shared))

    def _of(self, node: Node) -> Iterator[Node]:
        waits = tuple(dict.fromkeys(self.last.get(node.name, ())))
        count = self.readers.get(node.name, 0)
        for summed in self._sums(node.name, node, count):
            yield replace(summed, inputs=waits)
            waits = (summed.name,)
        names: list[str] = []
        for suffix, op in gradients(node):
            name = f"{node.name}_grad_{suffix}"
            written = result_bytes(op) if _is_sized(op) else 0
            needs = (*waits, *self._saved(node))
            yield Node(name, op, needs, node.stream, written, source=node.source)
            names.append(name)
            if suffix not in ("input", "weight", "bias", "values"):
                waits = (name,)  # a chain of passes; products do not wait for each other
        ends = names or list(waits)
        for source in node.inputs:
            self.last.setdefault(source, []).extend(ends)
        weights = _weights(node)
        if weights and names and self.training.accumulates:
            yield _accumulated(node, weights, names[-1])
        yield from self._skipped(node, tuple(ends))

    def _saved(self, node: Node) -> tuple[str, ...]:
        """Results of the forward pass, or of what runs again of it, that a gradient reads."""
        return tuple(
            f"{name}_again" if f"{name}_again" in self.again else name for name in saved_by(node)
        )

    def _sums(self, name: str, node: Node | None, count: int) -> Iterator[Node]:
        """A tensor that several nodes read has as many gradients, summed two by two."""
        elements = 0 if node is None or not _is_sized(node.op) else _elements(node.op, name)
        if not elements or node is None:
            return
        for number in range(1, count):
            yield _sum(f"{name}_grad_sum_{number}", elements, node, ())

    def _skipped(self, node: Node, waits: tuple[str, ...]) -> Iterator[Node]:
        """A sum whose second operand comes from outside the block's edges, as the residual stream
        does: that tensor has one more gradient.
        """
        op = node.op
        adds = op.family == "elementwise" and op.variant.flag("add")
        if adds and dict(op.dims).get("inputs", 1) == 2 and len(node.inputs) < 2:
            elements = op.dim("elements")
            if isinstance(elements, int):
                yield _sum(f"{node.name}_grad_stream", elements, node, waits)


def _accumulated(node: Node, elements: int, after: str) -> Node:
    """The gradient of so many weights is added to the one that is there."""
    return replace(
        _sum(f"{node.name}_grad_accumulated", elements, node, (after,)), stream=node.stream
    )


def _weights(node: Node) -> int:
    """Weights that a node reads and that have gradients, on this rank; 0 = none. Those of routed
    experts follow from the sizes: a rank adds to the gradients of all of its experts, however few
    tokens they had.
    """
    if node.op.family == "moe":
        sizes = {name: size for name, size in node.op.dims if isinstance(size, int)}
        parts = dict(node.op.variant.flags)
        first = 2 if parts.get("gated", True) else 1
        widths = first if parts.get("w13") else 1 if parts.get("w2") else first + 1
        experts = sizes["experts"] // sizes.get("ep", 1)
        return experts * widths * sizes["hidden"] * (sizes["intermediate"] // sizes.get("tp", 1))
    if not node.parameter_bytes:
        return 0
    return max(node.parameter_bytes * 8 // _weight_bits(node.op), 1)


def _sum(name: str, elements: int, node: Node, waits: tuple[str, ...]) -> Node:
    variant = Variant(dtype=gradient_format(node.op), flags=(("add", True),))
    op = Op.make("elementwise", variant, elements=elements, inputs=2)
    return Node(name, op, waits, node.stream)


def _elements(op: Op, name: str) -> int:
    """Elements of a node's result, or of the block's input that it reads."""
    if name == "input" and op.family == "gemm":
        rows, depth = op.dim("m"), op.dim("k")
        return rows * depth if isinstance(rows, int) and isinstance(depth, int) else 0
    bits = int(BITS.get(gradient_format(op), 16))
    return result_bytes(op) * 8 // bits


def _is_sized(op: Op) -> bool:
    return all(isinstance(size, (int, tuple)) for _, size in op.dims)


def gradient_format(op: Op) -> str:
    """The format of gradients of what an op writes: that of its result."""
    recipe = RECIPES.get(op.variant.dtype)
    return op.variant.dtype if recipe is None else recipe.output


def _weight_bits(op: Op) -> int:
    recipe = RECIPES.get(op.variant.dtype)
    return int(recipe.weight_bits) if recipe is not None else int(BITS.get(op.variant.dtype, 16))
