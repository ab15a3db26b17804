"""What a deterministic framework does otherwise: results are filled before a kernel writes them,
and sums of gradients have one order.

PyTorch fills memory that it hands out uninitialised while deterministic algorithms are on
(``torch.utils.deterministic.fill_uninitialized_memory``): what library calls write is written
twice. Results of its own pointwise operators are not filled.
"""

from __future__ import annotations

from dataclasses import replace

from silicast.core.dtypes import BITS
from silicast.workload.graphs.graph import Block, Graph, Node
from silicast.workload.graphs.op import Op, Variant

LIBRARY_CALLS = frozenset(
    (
        "gemm",
        "moe",
        "layernorm",
        "rmsnorm",
        "attention_prefill",
        "attention_backward",
        "norm_backward",
        "silu_mul",
    )
)
FILLED = "filled_results"


def with_filled_results(graph: Graph, dtype: str) -> Graph:
    """``graph`` with one node a block that writes what its library calls write later, and with
    attention's gradients summed in one order.

    >>> from silicast.workload.graphs.op import Op
    >>> product = Node("up", Op.make("gemm", m=8, n=4, k=2), output_bytes=64)
    >>> filled = with_filled_results(Graph("one", (Block("forward", (product,)),)), "bf16")
    >>> fill, _ = (node for _, node in filled.nodes())
    >>> fill.name, fill.op.dim("written_bytes")
    ('filled_results', 64)
    """
    blocks = tuple(
        replace(block, nodes=(*_fill(block, dtype), *map(_ordered, block.nodes)))
        for block in graph.blocks
    )
    return replace(graph, blocks=blocks)


def _ordered(node: Node) -> Node:
    """A node whose sums have one order: gradients of fused attention add to dQ from all tiles."""
    if node.op.family != "attention_backward":
        return node
    variant = node.op.variant
    flags = tuple(sorted({**dict(variant.flags), "deterministic": True}.items()))
    return replace(node, op=replace(node.op, variant=replace(variant, flags=flags)))


def _fill(block: Block, dtype: str) -> tuple[Node, ...]:
    written = sum(node.output_bytes for node in block.nodes if node.op.family in LIBRARY_CALLS)
    if not written:
        return ()
    op = Op.make(
        "data_movement",
        Variant(dtype=dtype),
        read_bytes=0,
        written_bytes=written,
        operations=written * 8 // int(BITS[dtype]),
    )
    return (Node(FILLED, op, (), source="fill_"),)
