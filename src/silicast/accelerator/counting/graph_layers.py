"""A graph's products and convolutions as layers for the mapper."""

from __future__ import annotations

from collections import Counter
from typing import Any

from silicast.accelerator.counting.einsum import Einsum, conv2d, matmul
from silicast.accelerator.counting.layers import EinsumLayer, Feed, distinct
from silicast.accelerator.counting.neighbours import are_neighbours
from silicast.accelerator.foreign.reader import Workload
from silicast.core.errors import SilicastError
from silicast.kernels.convolution.conv2d_shapes import ConvolutionShape
from silicast.workload.graphs.graph import Block, Graph
from silicast.workload.graphs.op import Op

ON_THE_WAY = frozenset({"elementwise", "softmax"})
"""Families that vector units do to a tile on its way from one product to the next; of a softmax
over tiles of a row, running maxima and sums go along."""


def layers_of(graph: Graph) -> Workload:
    """Every product and convolution of a graph, as often as it runs; others are counted by family.

    Raises:
        SilicastError: a size is still open.
    """
    layers: list[EinsumLayer] = []
    feeds: list[Feed] = []
    left: dict[str, int] = {}
    for block in graph.blocks:
        numbers: dict[str, int] = {}
        for node in block.nodes:
            einsum = einsum_of_op(node.op, node.name)
            if einsum is None:
                left[node.op.family] = left.get(node.op.family, 0) + block.count
            else:
                numbers[node.name] = len(layers)
                layers.append(EinsumLayer(node.name, einsum, block.count))
        feeds += _feeds(block, numbers, layers)
    return Workload(distinct(layers), left, tuple(feeds))


def _feeds(block: Block, numbers: dict[str, int], layers: list[EinsumLayer]) -> list[Feed]:
    """Products and convolutions of a block of which the next alone takes the result."""
    nodes = {node.name: node for node in block.nodes}
    readers = Counter(name for node in block.nodes for name in set(node.inputs))

    def origins(name: str) -> set[int]:
        """Layers that what a node leaves comes from, through operations on single values."""
        if name not in nodes or readers[name] > 1:
            return set()
        if name in numbers:
            return {numbers[name]}
        if nodes[name].op.family not in ON_THE_WAY:
            return set()
        return {number for before in nodes[name].inputs for number in origins(before)}

    feeds = []
    for name, number in numbers.items():
        second = layers[number]
        for first in sorted({n for before in nodes[name].inputs for n in origins(before)})[-1:]:
            before_it = layers[first]
            if are_neighbours(before_it.einsum, second.einsum):
                feeds.append(
                    Feed(
                        first,
                        number,
                        (before_it.name, second.name),
                        (before_it.einsum, second.einsum),
                        block.count,
                    )
                )
    return feeds


def einsum_of_op(op: Op, name: str) -> Einsum | None:
    """A product or convolution as an einsum; None = an operation that is not mapped.

    Raises:
        SilicastError: a size is still open.
    """
    sizes: dict[str, Any] = dict(op.dims)
    for dim, size in sizes.items():
        if not isinstance(size, int | tuple):
            raise SilicastError(f"{dim} is still open", field=name, hint="give its size by --set")
    if op.family == "gemm":
        batch = sizes.get("batch", 1)
        return matmul(
            m=sizes["m"], n=sizes["n"], k=sizes["k"], batch=batch, weights_per_batch=batch > 1
        )
    if op.family != "conv2d" or any(
        op.variant.flag(f"backward_{of}") for of in ("data", "weights")
    ):
        return None
    shape = ConvolutionShape.from_dims(sizes)
    if shape.stride_h != shape.stride_w:
        return None
    return conv2d(
        n=shape.n, c=shape.c_of_group, m=shape.k_of_group, p=shape.p, q=shape.q, r=shape.r,
        s=shape.s, groups=shape.groups, stride=shape.stride_h,
    )  # fmt: skip
