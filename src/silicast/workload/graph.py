"""A model's work as a layer pattern with its exceptions, instead of copies of every layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, final

from silicast.workload.op import Op

Direction = Literal["forward", "backward", "optimizer"]


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
        of_weights: it reads weights alone, not the block's input.
    """

    name: str
    op: Op
    inputs: tuple[str, ...] = ()
    stream: int = 0
    output_bytes: int = 0
    parameter_bytes: int = 0
    source: str = ""
    of_weights: bool = False


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
    """

    name: str
    blocks: tuple[Block, ...]
    phase: str = "inference"
    boundary: tuple[Node, ...] = ()
    parameter_bytes: int = 0

    def nodes(self) -> Iterator[tuple[Block, Node]]:
        """Every node once, with its block."""
        for block in self.blocks:
            for node in block.nodes:
                yield block, node

    def stage(self, first: int, last: int, layers: int) -> Graph:
        """The pipeline stage that holds layers first..last-1 of ``layers``.

        The blocks before the layers stay on the first stage, those after on the last; a stage
        that is not the last ends with the ``boundary`` nodes, in a block "stage_send".
        """
        kept: list[Block] = []
        seen_layer = False
        for block in self.blocks:
            if block.layers:
                seen_layer = True
                inside = tuple(i for i in block.layers if first <= i < last)
                if inside:
                    kept.append(replace(block, layers=inside))
            elif (not seen_layer and first == 0) or (seen_layer and last == layers):
                kept.append(block)
        if self.boundary and last < layers:
            kept.append(Block("stage_send", self.boundary))
        return replace(self, blocks=tuple(kept), boundary=())


def parameter_bytes_of(graph: Graph) -> int:
    """Bytes of all weights: as stated, else what forward nodes read as often as they run."""
    return graph.parameter_bytes or sum(
        node.parameter_bytes * block.count
        for block, node in graph.nodes()
        if block.direction == "forward"
    )
