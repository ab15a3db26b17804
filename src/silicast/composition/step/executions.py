"""Every execution of a graph's nodes in order, equal work named once; independent of a machine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import final

import numpy as np
from msgspec import Struct

from silicast.core.errors import over_limit
from silicast.core.numerics import I64
from silicast.workload.graphs.graph import (
    BACKWARD,
    BEFORE,
    OTHER_PASS,
    Block,
    Direction,
    Graph,
    Node,
)
from silicast.workload.graphs.op import Dim

DIRECTIONS: tuple[Direction, ...] = ("forward", "backward", "optimizer")
MOST_EXECUTIONS = 1_000_000
GATHER = "all_gather"
SEPARATE = 100
"""Nodes of a block up to which each is a kernel of its own; beyond, equal ones are one kernel."""


@final
class KernelExecution(Struct, frozen=True):
    """Equal work of one block on one pipeline stage, timed once."""

    stage: int
    block: Block
    node: Node


@final
class Execution(Struct, frozen=True):
    """One execution of a node.

    Attributes:
        kernel: place in :attr:`Executions.kernels`.
        repeat: number of the layer, or of the repeat of its block.
    """

    kernel: int
    block: Block
    node: Node
    repeat: int


@final
class Executions:
    """Executions of graphs that run one after the other.

    Args:
        segments: pipeline stage and graph of each.

    Attributes:
        kernels: equal work, in the order in which it first runs.
        order: which kernel each execution is, shape (executions,).
        counts: how often each kernel runs.

    Raises:
        SilicastError: more than :data:`MOST_EXECUTIONS` executions.
    """

    def __init__(self, segments: Sequence[tuple[int, Graph]]) -> None:
        graphs = [graph for _, graph in segments]
        count = sum(len(block.nodes) * block.count for graph in graphs for block in graph.blocks)
        if count > MOST_EXECUTIONS:
            raise over_limit(
                f"{graphs[0].name} runs {count} operations; at most {MOST_EXECUTIONS} are unrolled",
                "times",
                "predict a part of it, and multiply",
            )
        self.kernels: list[KernelExecution] = []
        self._runs: list[tuple[Block, int, I64]] = []
        self._repeats: dict[tuple[int, str], int] = {}
        self._once = all(block.count == 1 for graph in graphs for block in graph.blocks)
        positions: dict[tuple[object, ...], int] = {}
        for stage, graph in segments:
            known: dict[int, I64] = {}
            for block, repeat in graph.runs():
                if id(block) not in known:
                    known[id(block)] = self._kernels_of(stage, block, positions)
                self._runs.append((block, repeat, known[id(block)]))
                where = (stage, block.name)
                self._repeats[where] = self._repeats.get(where, 0) + 1
        empty: I64 = np.zeros(0, dtype=np.int64)
        self.order: I64 = np.concatenate([empty, *(each for _, _, each in self._runs)])
        self.counts: list[int] = np.bincount(self.order, minlength=len(self.kernels)).tolist()

    @staticmethod
    def from_graph(graph: Graph) -> Executions:
        return Executions([(0, graph)])

    def _kernels_of(
        self, stage: int, block: Block, positions: dict[tuple[object, ...], int]
    ) -> I64:
        """The kernel of each node of a block; nodes of one name are one kernel."""
        items = []
        for node in block.nodes:
            where = (stage, block.name, node.name)
            if where not in positions:
                label = node.name if len(block.nodes) <= SEPARATE else node.source
                alike = (stage, block.name, node.op, label)
                positions[where] = positions.setdefault(alike, len(self.kernels))
                if positions[where] == len(self.kernels):
                    self.kernels.append(KernelExecution(stage, block, node))
            items.append(positions[where])
        return np.array(items, dtype=np.int64)

    def repeats(self, stage: int, block: str) -> int:
        """How often blocks of a name run on a stage."""
        return self._repeats[stage, block]

    @cached_property
    def sequence(self) -> list[Execution]:
        """All executions in order."""
        return [
            Execution(kernel, block, node, repeat)
            for block, repeat, kernels in self._runs
            for kernel, node in zip(kernels.tolist(), block.nodes, strict=True)
        ]

    @cached_property
    def direction(self) -> I64:
        """Of each execution, as a place in :data:`DIRECTIONS`."""
        numbers = [DIRECTIONS.index(kernel.block.direction) for kernel in self.kernels]
        direction: I64 = np.array(numbers, dtype=np.int64)[self.order]
        return direction

    @cached_property
    def streams(self) -> tuple[int, ...]:
        return tuple(node.stream for block, _, _ in self._runs for node in block.nodes)

    @cached_property
    def turns(self) -> list[list[int]]:
        """Transfers of weights and of their gradients by the ranks that take part, in the order in
        which a communicator runs them, one at a time: NCCL serialises what one communicator was
        given, on whichever streams. A gather that nothing waits with is issued ahead of the
        sums of the layer before its own, as FSDP prefetches weights in the backward pass.
        """
        table: dict[tuple[Dim, ...], list[int]] = {}
        sequence = self.sequence
        for index, each in enumerate(sequence):
            node = each.node
            sizes = dict(node.op.dims)
            if not node.of_weights or "gpus" not in sizes:
                continue
            queue = table.setdefault((sizes["gpus"], sizes.get("stride", 1)), [])
            position = len(queue)
            if node.op.family == GATHER and not node.inputs and node.stream:
                while position and self._may_pass(sequence[queue[position - 1]], each):
                    position -= 1
            queue.insert(position, index)
        return [queue for queue in table.values() if len({self.streams[i] for i in queue}) > 1]

    @staticmethod
    def _may_pass(sums: Execution, gather: Execution) -> bool:
        """Whether a gather is issued ahead of a transfer: of a sum of another layer of its pass."""
        return bool(
            sums.node.op.family != GATHER
            and sums.block.direction == gather.block.direction
            and (sums.block.name, sums.repeat) != (gather.block.name, gather.repeat)
        )

    @cached_property
    def waits(self) -> list[list[int]]:
        """Earlier executions whose results each reads.

        Inputs are of a node's own layer where that has them. A node without inputs reads what the
        block before its own left; a block's backward pass begins with what the block itself read.
        Transfers of weights beside the device's work neither wait for a block nor end it.
        """
        latest: dict[str, int] = {}
        table: dict[tuple[str, int], int] = {}
        entries: dict[tuple[str, int], int] = {}
        waits: list[list[int]] = []
        inside: tuple[str, int] = ("", -1)
        left, last = -1, -1
        barriers = self._barriers()
        for index, each in enumerate(self.sequence):
            node = each.node
            where = (each.block.name, each.repeat)
            begins, apart = where != inside, node.of_weights and node.stream != 0
            if begins:
                inside, left = where, last
                entries[where] = left
            if self._once:
                indices = [latest[name] for name in node.inputs if name in latest]
            else:
                mine = (table.get((n, each.repeat), latest.get(n)) for n in node.inputs)
                indices = [position for position in mine if position is not None]
                table[node.name, each.repeat] = index
            if (not node.inputs or BEFORE in node.inputs) and left >= 0 and not apart:
                indices.append(left)
            indices += barriers.get(index, [])
            if begins and each.block.direction == "backward" and not apart:
                read = entries.get((each.block.name.removesuffix(BACKWARD), each.repeat), -1)
                indices += [read] if read >= 0 else []
            waits.append(indices)
            latest[node.name] = index
            last = last if apart else index
        return waits

    def _barriers(self) -> dict[int, list[int]]:
        """Executions that wait for the direction before theirs to end on every stream: forward,
        backward and optimizer do not overlap, but for what is of another pass.
        """
        if len({*self.streams}) == 1:
            return {}
        barriers: dict[int, list[int]] = {}
        ends: dict[int, int] = {}
        behind: dict[int, list[int]] = {}
        for index, (stream, way) in enumerate(zip(self.streams, self.direction, strict=True)):
            if index and way != self.direction[index - 1]:
                behind = {key: list(ends.values()) for key in self.streams if key != OTHER_PASS}
            if stream in behind:
                barriers[index] = behind.pop(stream)
            if stream != OTHER_PASS:
                ends[stream] = index
        return barriers

    @cached_property
    def result_bytes(self) -> I64:
        """Of what each execution writes for others, shape (executions,)."""
        from silicast.workload.graphs.outputs import result_bytes

        each = [kernel.node.output_bytes or result_bytes(kernel.node.op) for kernel in self.kernels]
        sizes: I64 = np.array(each, dtype=np.int64)[self.order]
        nodes = [node for block, _, _ in self._runs for node in block.nodes]
        stated = np.array([node.output_bytes for node in nodes], dtype=np.int64)
        if stated.any() and all(node.source for node in nodes):
            return stated  # a front end states every result: none is one written in place
        result: I64 = np.where(stated > 0, stated, sizes)
        return result
