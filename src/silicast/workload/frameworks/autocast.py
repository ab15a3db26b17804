"""Automatic mixed precision: products in 16 bits, everything that sums over many in 32.

The lists are those of ``torch.autocast``: products and convolutions cast their operands to 16 bits,
softmax, norms and losses theirs to 32, and all else runs in what it is given, the wider of two.
Weights are kept in 32 bits and cast once a pass (the cache of autocast); a cast that reads and
writes is a kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import final

from silicast.core.dtypes import BITS
from silicast.workload.graphs.graph import Block, Graph, Node
from silicast.workload.graphs.op import Op, Variant
from silicast.workload.graphs.outputs import result_bytes

WIDE = "fp32"
NARROWED = frozenset(("gemm", "conv2d", "attention_prefill"))
"""Families that autocast runs in 16 bits."""
_PASSES = frozenset(("elementwise", "silu_mul", "rope"))


def autocast_graph(graph: Graph, dtype: str = "bf16") -> Graph:
    """A forward graph whose ops are all in 32 bits, under ``torch.autocast(dtype=dtype)``.

    >>> from silicast.workload.graphs.op import Op
    >>> product = Op.make("gemm", Variant(dtype="fp32"), m=64, n=64, k=64)
    >>> block = Block("forward", (Node("up", product, parameter_bytes=4 * 64 * 64),))
    >>> cast = autocast_graph(Graph("toy", (block,)))
    >>> [(node.name, node.op.variant.dtype) for _, node in cast.nodes()]
    [('up_weight_cast', 'fp32'), ('up', 'bf16')]
    """
    blocks = tuple(replace(block, nodes=tuple(_Cast(dtype).nodes(block))) for block in graph.blocks)
    return replace(graph, blocks=blocks)


@final
@dataclass(frozen=True)
class _Cast:
    dtype: str
    formats: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)

    def nodes(self, block: Block) -> Iterator[Node]:
        """All nodes with the casts before them, each in the format that it runs in."""
        for node in block.nodes:
            family = node.op.family
            if family in NARROWED:
                yield from self._narrowed(node)
                continue
            dtype = self._known(node) if family in _PASSES else WIDE
            yield self._put(node, dtype)

    def _narrowed(self, node: Node) -> Iterator[Node]:
        """A product: its weights and what comes in 32 bits are cast."""
        inputs: list[str] = []
        half = int(BITS[self.dtype]) / BITS[WIDE]
        if node.parameter_bytes:
            name = f"{node.name}_weight_cast"
            yield Node(name, _cast(node.parameter_bytes, half), (), node.stream, of_weights=True)
            inputs.append(name)
        for name in node.inputs:
            size, read = self.sizes.get(name, 0), name
            if self.formats.get(name) == WIDE and size:
                read = f"{node.name}_{name}_cast"
                yield Node(read, _cast(size, half), (name,), node.stream, int(size * half))
            inputs.append(read)
        parameters = round(node.parameter_bytes * half)
        yield self._put(replace(node, inputs=tuple(inputs), parameter_bytes=parameters), self.dtype)

    def _known(self, node: Node) -> str:
        """The widest format of what a pass reads; what comes from outside the block is wide."""
        distinct = {self.formats.get(name, WIDE) for name in node.inputs}
        reads = dict(node.op.dims).get("inputs", 1)
        sums = isinstance(reads, int) and len(node.inputs) < reads and node.op.variant.flag("add")
        return WIDE if not distinct or WIDE in distinct or sums else self.dtype

    def _put(self, node: Node, dtype: str) -> Node:
        op = node.op
        if op.variant.dtype == WIDE and dtype != WIDE:
            op = replace(op, variant=replace(op.variant, dtype=dtype))
        whole = all(isinstance(size, (int, tuple)) for _, size in op.dims)
        size = result_bytes(op) if whole else 0
        self.formats[node.name], self.sizes[node.name] = dtype, size
        return replace(node, op=op, output_bytes=size or node.output_bytes)


def _cast(size: int, share: float) -> Op:
    """From 32 bits, of which there are ``size`` bytes."""
    return Op.make(
        "data_movement",
        Variant(dtype=WIDE),
        read_bytes=size,
        written_bytes=max(int(size * share), 1),
        operations=size // 4,
    )
