"""The update of a program's weights: one kernel behind its backward pass."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from silicast.core.dtypes import BITS
from silicast.workload.graphs.graph import Block, Graph, Node, parameter_bytes_of
from silicast.workload.graphs.op import Op, Variant

_FORMATS = ("fp32", "bf16", "fp16")


def with_update(graph: Graph, rule: str) -> Graph:
    """A program of training with the update of its weights; as it is if it has none.

    Args:
        rule: a name of :data:`silicast.kernels.movement.optimizer.RULES`.
    """
    weights = parameter_bytes_of(graph)
    if not weights:
        return graph
    dtype = format_of_weights(graph)
    count = weights * 8 // int(BITS[dtype])
    op = Op.make("optimizer", Variant(dtype=dtype, flags=((rule, True),)), elements=count)
    block = Block("optimizer", (Node("update", op),), direction="optimizer")
    return replace(graph, blocks=(*graph.blocks, block))


def format_of_weights(graph: Graph) -> str:
    """The format of most weights; where no tensor says so, that of the first operation."""
    held = Counter[str]()
    for _, node in graph.nodes():
        for value in node.reads:
            if value.parameter and value.dtype in _FORMATS:
                held[value.dtype] += value.nbytes
    if held:
        return held.most_common(1)[0][0]
    formats = (node.op.variant.dtype for _, node in graph.nodes())
    return next((name for name in formats if name in _FORMATS), "bf16")
