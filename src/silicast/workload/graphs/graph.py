"""A model's work as a layer pattern with its exceptions, instead of copies of every layer.

Of graphs from outside it is checked that sums over their sizes fit 64 bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, final

from silicast.core.dtypes import BITS
from silicast.core.errors import SilicastError
from silicast.workload.graphs.op import Affine, Dim, Op


@final
@dataclass(frozen=True, slots=True)
class TensorValue:
    """A tensor that an operator reads or writes.

    Attributes:
        dtype: a name of :data:`silicast.core.dtypes.BITS`, or the program's own where there is
            none ("complex64").
        nbytes: distinct bytes behind it: an axis that is only repeated counts once.
        parameter: it is (a view of) a weight.
        strides: elements from one index to the next along each axis, 0 where it is repeated; () =
            not stated: the last axis is contiguous, and so on.
        name: of what it holds, which all readers of one result share; "" = not stated. An operator
            in place gives its target another name: it holds something else from then on.
        offset: elements of its storage before the first one.
    """

    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    parameter: bool = False
    strides: tuple[int, ...] = ()
    name: str = ""
    offset: int = 0

    @property
    def elements(self) -> int:
        """Product of the sizes.

        >>> TensorValue((2, 3), "fp32", 24).elements
        6
        """
        return math.prod(self.shape)

    @property
    def channels_last(self) -> bool:
        """An image (batch, channels, height, width) whose channels lie beside each other in memory.

        >>> TensorValue((8, 3, 32, 32), "fp16", 49152, strides=(3072, 1, 96, 3)).channels_last
        True
        """
        if len(self.shape) != 4 or not self.strides or self.shape[1] == 1:
            return False
        return self.strides[1] == 1 and self.strides[3] == self.shape[1]


Loops = Literal["", "pointwise", "rows", "sums", "joined"]
"""What a compiler could generate for a kernel: nothing, as it is a library's (""); a loop over the
elements of its result; over rows that it reduces and writes whole (softmax, norms); sums over rows
or axes; "joined" is the rest of the operator before it, which such a loop does along.
"""

Direction = Literal["forward", "backward", "optimizer"]

BACKWARD = "_backward"
"""End of the name of a block's backward pass, after the block's own name."""

OTHER_PASS = 10
"""Stream of transfers of another pass that runs beside this one: no direction waits for it."""
BEFORE = ""
"""Among a node's inputs: what the block before its own left, beside others."""


@final
@dataclass(frozen=True, slots=True)
class Node:
    """An op at its place in a block.

    Attributes:
        name: role in the model ("qkv", "attention", "down").
        inputs: names of the nodes in the same block that it waits for; () = the block's input.
        stream: nodes of different streams may overlap where their inputs allow.
        output_bytes: of the result that later nodes read; 0 = not stated, or written in place.
        parameter_bytes: of the weights that it reads.
        source: its name in the program that it was read from ("aten.convolution.default").
        of_weights: it reads weights (or their gradients) alone, not the block's input.
        reads, writes: its tensors, where a program states them. Their names are data edges: who
            reads a name reads what its writer left there. ``inputs`` keep memory alive instead: the
            owner of a storage is among them though others wrote to it later.
        loops: what a compiler could make of it; see :data:`Loops`.
    """

    name: str
    op: Op
    inputs: tuple[str, ...] = ()
    stream: int = 0
    output_bytes: int = 0
    parameter_bytes: int = 0
    source: str = ""
    of_weights: bool = False
    reads: tuple[TensorValue, ...] = ()
    writes: tuple[TensorValue, ...] = ()
    loops: Loops = ""


@final
@dataclass(frozen=True, slots=True)
class Block:
    """A run of nodes and the layers that consist of it.

    Attributes:
        layers: indices of the layers that look like this; () = not part of a layer (embedding,
            head), runs ``times`` times.
        direction: which part of a training pass it belongs to.
    """

    name: str
    nodes: tuple[Node, ...]
    layers: tuple[int, ...] = ()
    times: int = 1
    direction: Direction = "forward"

    @property
    def count(self) -> int:
        """How often the block runs in one pass."""
        return len(self.layers) or self.times


@final
@dataclass(frozen=True, slots=True)
class Graph:
    """All work of one pass of a model on one rank, with symbolic batch-state dimensions.

    Symbols that nodes may use as dimensions: ``tokens`` (new tokens of all sequences),
    ``logit_rows`` (rows of the head: one per sequence that samples), ``prefill_q`` / ``prefill_kv``
    and ``decode_kv`` (per-sequence lengths).

    Attributes:
        blocks: in order of execution: before the layers, the layers, after them. Blocks of layers
            may interleave (``Block.layers`` says where); times do not depend on their order.
        phase: "inference" or "training".
        boundary: nodes that run at the end of every pipeline stage but the last.
        parameter_bytes: of all weights, each counted once; 0 = not stated.
        results: names of the nodes whose results the program hands out, where it states them.
    """

    name: str
    blocks: tuple[Block, ...]
    phase: str = "inference"
    boundary: tuple[Node, ...] = ()
    parameter_bytes: int = 0
    results: tuple[str, ...] = ()

    def nodes(self) -> Iterator[tuple[Block, Node]]:
        """Every node once, with its block."""
        for block in self.blocks:
            for node in block.nodes:
                yield block, node

    def runs(self) -> Iterator[tuple[Block, int]]:
        """Every block as often as it runs, with the number of the layer or repeat: layers in their
        order (from the last one in a backward pass), other blocks where they stand.
        """
        for run in self._neighbours():
            if not run[0].layers:
                yield from ((run[0], repeat) for repeat in range(run[0].count))
                continue
            backward = run[0].direction == "backward"
            layers = {layer: block for block in run for layer in block.layers}
            yield from ((layers[layer], layer) for layer in sorted(layers, reverse=backward))

    def _neighbours(self) -> Iterator[list[Block]]:
        """Neighbouring blocks of layers of one direction together, any other block alone."""
        run: list[Block] = []
        for block in self.blocks:
            if run and not (block.layers and run[0].layers and block.direction == run[0].direction):
                yield run
                run = []
            run.append(block)
        if run:
            yield run

    def stage(self, first: int, last: int, layers: int) -> Graph:
        """The pipeline stage that holds layers first..last-1 of ``layers``.

        The blocks before the layers stay on the first stage, those after on the last; a stage
        that is not the last ends with the ``boundary`` nodes, in a block "stage_send". A backward
        pass runs the other way: its first blocks are on the last stage, and the first stage sends
        nothing.
        """
        blocks: list[Block] = []
        backward = any(block.direction == "backward" for block in self.blocks)
        at_start, at_end = (
            (last == layers, first == 0) if backward else (first == 0, last == layers)
        )
        seen_layer = False
        for block in self.blocks:
            if block.layers:
                seen_layer = True
                inside = tuple(i for i in block.layers if first <= i < last)
                if inside:
                    blocks.append(replace(block, layers=inside))
            elif at_end if seen_layer else at_start:
                blocks.append(block)
        if self.boundary and not at_end:
            direction: Direction = "backward" if backward else "forward"
            name = "stage_send_backward" if backward else "stage_send"
            blocks.append(Block(name, self.boundary, direction=direction))
        return replace(self, blocks=tuple(blocks), boundary=())


def parameter_bytes_of(graph: Graph) -> int:
    """Bytes of all weights: as stated, else what forward nodes read as often as they run."""
    return graph.parameter_bytes or sum(
        node.parameter_bytes * block.count
        for block, node in graph.nodes()
        if block.direction == "forward"
    )


def with_symbol(low: Graph, high: Graph, symbol: str, low_at: int, high_at: int) -> Graph | None:
    """Two graphs of the same nodes, in which sizes follow a symbol linearly, as one graph.

    Args:
        low, high: at the values ``low_at`` < ``high_at`` of the symbol.

    Returns:
        ``low`` with every size of an op that differs as a multiple of the symbol, and without the
        tensors that differ; None where other nodes run, or a size does not follow the symbol in
        whole numbers.

    >>> one, two = (Graph("g", (Block("b", (Node("a", Op.make("softmax", rows=8, cols=n)),)),))
    ...             for n in (100, 160))
    >>> found = with_symbol(one, two, "decode_longest", 50, 80)
    >>> found.blocks[0].nodes[0].op.dim("cols")
    Affine(symbol='decode_longest', factor=2, constant=0)
    """
    if [(b.name, b.count, len(b.nodes)) for b in low.blocks] != [
        (b.name, b.count, len(b.nodes)) for b in high.blocks
    ]:
        return None
    blocks = []
    for block, other in zip(low.blocks, high.blocks, strict=True):
        nodes = []
        for node, above in zip(block.nodes, other.nodes, strict=True):
            op = _linear(node.op, above.op, symbol, low_at, high_at)
            if op is None or node.name != above.name:
                return None
            same = (node.reads, node.writes) == (above.reads, above.writes)
            nodes.append(
                replace(node, op=op) if same else replace(node, op=op, reads=(), writes=())
            )
        blocks.append(replace(block, nodes=tuple(nodes)))
    return replace(low, blocks=tuple(blocks))


def _linear(low: Op, high: Op, symbol: str, low_at: int, high_at: int) -> Op | None:
    same = [name for name, _ in low.dims] == [name for name, _ in high.dims]
    if (low.family, low.variant) != (high.family, high.variant) or not same:
        return None
    dims: list[tuple[str, Dim]] = []
    for (name, small), (_, large) in zip(low.dims, high.dims, strict=True):
        if small == large:
            dims.append((name, small))
            continue
        if not isinstance(small, int) or not isinstance(large, int):
            return None
        factor, remainder = divmod(large - small, high_at - low_at)
        if remainder:
            return None
        dims.append((name, Affine(symbol, factor, small - factor * low_at)))
    return replace(low, dims=tuple(dims))


LARGEST = 1 << 50
"""Of one size, in elements or bytes: a million GB. Sums over the largest graph stay below 2^63."""
STREAMS = 1 << 10
LENGTHS = ("q_len", "kv_len")
"""Sizes that may be lists, a length for each sequence."""


def require_countable(graph: Graph) -> Graph:
    """The graph, if no size is beyond :data:`LARGEST`, and lists are lengths of sequences.

    Raises:
        SilicastError: names the node, the size and the limit.
    """
    _require("the program", "parameter_bytes", graph.parameter_bytes)
    for _, node in graph.nodes():
        where = f"node {node.name[:60]!r}"
        for name, dim in node.op.dims:
            _require(where, name, dim, "dims")
        _require_lengths(where, node.op)
        if node.stream >= STREAMS:
            raise SilicastError(
                f"{where}: stream {node.stream} is not below {STREAMS:,}", field="stream"
            )
        _require(where, "output_bytes", node.output_bytes)
        _require(where, "parameter_bytes", node.parameter_bytes)
    return graph


def _require(where: str, name: str, dim: Dim, field: str = "") -> None:
    sizes = dim if isinstance(dim, tuple) else (dim,)
    if any(isinstance(size, int) and size > LARGEST for size in sizes):
        raise SilicastError(
            f"{where}: {name} is beyond 2^50 = {LARGEST:,}",
            field=field or name,
            hint="is the size right, and in elements or bytes?",
        )


def _require_lengths(where: str, op: Op) -> None:
    lists = {name: dim for name, dim in op.dims if isinstance(dim, tuple)}
    for name, dim in lists.items():
        if name not in LENGTHS or not dim:
            raise SilicastError(
                f"{where}: {name} is {'a list' if dim else 'empty'}",
                field="dims",
                hint=f"only {' and '.join(LENGTHS)} may be lists, a length for each sequence",
            )
    if len({len(dim) for dim in lists.values()}) > 1:
        raise SilicastError(
            f"{where}: {' and '.join(lists)} are lists of different lengths",
            field="dims",
            hint="give one of each for every sequence",
        )


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
