"""A program of one format in a narrower one, as devices without units for it run it."""

from __future__ import annotations

from dataclasses import replace

from silicast.core.dtypes import BITS
from silicast.workload.graphs.graph import Graph, Node
from silicast.workload.graphs.op import Op

_BYTES = ("read_bytes", "written_bytes")


def narrowed(graph: Graph, wide: str, narrow: str) -> Graph:
    """Operations in ``wide`` in ``narrow``, their results and weights as much smaller.

    >>> from silicast.workload.graphs.graph import Block
    >>> from silicast.workload.graphs.op import Variant
    >>> product = Op.make("gemm", Variant(dtype="fp32"), m=4, n=4, k=4)
    >>> block = Block("forward", (Node("up", product, output_bytes=64, parameter_bytes=64),))
    >>> [(node.op.variant.dtype, node.output_bytes, node.parameter_bytes)
    ...  for _, node in narrowed(Graph("toy", (block,)), "fp32", "fp16").nodes()]
    [('fp16', 32, 32)]
    """
    share = float(BITS[narrow]) / float(BITS[wide])

    def changed(node: Node) -> Node:
        if node.op.variant.dtype != wide:
            return node
        return replace(
            node,
            op=_op(node.op, narrow, share),
            output_bytes=round(node.output_bytes * share),
            parameter_bytes=round(node.parameter_bytes * share),
        )

    blocks = tuple(replace(block, nodes=tuple(map(changed, block.nodes))) for block in graph.blocks)
    return replace(graph, blocks=blocks, parameter_bytes=round(graph.parameter_bytes * share))


def _op(op: Op, dtype: str, share: float) -> Op:
    dims = tuple(
        (name, max(round(size * share), 1) if name in _BYTES and isinstance(size, int) else size)
        for name, size in op.dims
    )
    return replace(op, dims=dims, variant=replace(op.variant, dtype=dtype))
