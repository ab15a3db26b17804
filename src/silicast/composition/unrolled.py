"""A graph unrolled: every execution of its nodes in order, equal work named once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from silicast.core.errors import SilicastError
from silicast.core.numerics import I64
from silicast.workload.backward import BACKWARD
from silicast.workload.graph import Block, Direction, Graph, Node
from silicast.workload.outputs import result_bytes

DIRECTIONS: tuple[Direction, ...] = ("forward", "backward", "optimizer")
MOST_EXECUTIONS = 1_000_000
SEPARATE = 100
"""Nodes of a block up to which each is a part of its own; beyond, equal ones are one part."""


@final
@dataclass(frozen=True, slots=True)
class Execution:
    """One execution of a node: where it stands in the program.

    Attributes:
        kernel: place in :attr:`Unrolled.kernels`.
        repeat: number of the layer, or of the repeat of its block.
    """

    kernel: int
    block: Block
    node: Node
    repeat: int


@final
class Unrolled:
    """Executions of a graph; nothing here depends on a machine.

    Attributes:
        kernels: the first node, with its block, of each kind of equal work.
        executions: in order.
        order: which kernel each execution is, shape (executions,).
        counts: how often each kernel runs.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        count = sum(len(block.nodes) * block.count for block in graph.blocks)
        if count > MOST_EXECUTIONS:
            raise SilicastError(
                f"{graph.name} runs {count} operations; at most {MOST_EXECUTIONS} are unrolled",
                kind="limit",
                field="times",
                hint="predict a part of it, and multiply",
            )
        self.kernels: list[tuple[Block, Node]] = []
        self.executions: list[Execution] = []
        places: dict[tuple[object, ...], int] = {}
        known: dict[tuple[str, str], int] = {}
        for block, repeat, node in _execution_order(graph.blocks):
            where = (block.name, node.name)
            index = known.get(where)
            if index is None:
                label = node.name if len(block.nodes) <= SEPARATE else node.source
                index = places.setdefault((block.name, node.op, label), len(self.kernels))
                known[where] = index
                if index == len(self.kernels):
                    self.kernels.append((block, node))
            self.executions.append(Execution(index, block, node, repeat))
        self.order: I64 = np.array([each.kernel for each in self.executions], dtype=np.int64)
        self.counts: list[int] = np.bincount(self.order, minlength=len(self.kernels)).tolist()

    @cached_property
    def direction(self) -> I64:
        """Of each execution, as a place in :data:`DIRECTIONS`."""
        numbers = [DIRECTIONS.index(block.direction) for block, _ in self.kernels]
        found: I64 = np.array(numbers, dtype=np.int64)[self.order]
        return found

    @cached_property
    def streams(self) -> tuple[int, ...]:
        """Of each execution."""
        return tuple(each.node.stream for each in self.executions)

    @cached_property
    def waits(self) -> list[list[int]]:
        """Earlier executions whose results each reads.

        Inputs are of a node's own layer where that has them. A node without inputs reads what the
        block before its own left; a block's backward pass begins with what the block itself read.
        """
        latest: dict[str, int] = {}
        own: dict[tuple[str, int], int] = {}
        entries: dict[tuple[str, int], int] = {}
        once = all(block.count == 1 for block in self.graph.blocks)
        found: list[list[int]] = []
        inside: tuple[str, int] = ("", -1)
        left = -1
        barriers = self._barriers()
        for index, each in enumerate(self.executions):
            node = each.node
            where = (each.block.name, each.repeat)
            begins = where != inside
            if begins:
                inside, left = where, index - 1
                entries[where] = left
            if once:
                places = [latest[name] for name in node.inputs if name in latest]
            else:
                mine = (own.get((n, each.repeat), latest.get(n)) for n in node.inputs)
                places = [place for place in mine if place is not None]
                own[node.name, each.repeat] = index
            if not node.inputs and left >= 0:
                places.append(left)
            places += barriers.get(index, [])
            if begins and each.block.direction == "backward":
                read = entries.get((each.block.name.removesuffix(BACKWARD), each.repeat), -1)
                places += [read] if read >= 0 else []
            found.append(places)
            latest[node.name] = index
        return found

    def _barriers(self) -> dict[int, list[int]]:
        """Executions that wait for the direction before theirs to end on every stream: forward,
        backward and optimizer do not overlap.
        """
        if len({*self.streams}) == 1:
            return {}
        found: dict[int, list[int]] = {}
        ends: dict[int, int] = {}
        behind: dict[int, list[int]] = {}
        for index, (stream, way) in enumerate(zip(self.streams, self.direction, strict=True)):
            if index and way != self.direction[index - 1]:
                behind = {key: list(ends.values()) for key in self.streams}
            if stream in behind:
                found[index] = behind.pop(stream)
            ends[stream] = index
        return found

    @cached_property
    def result_bytes(self) -> I64:
        """Of what each execution writes for others, shape (executions,)."""
        each = [node.output_bytes or result_bytes(node.op) for _, node in self.kernels]
        sizes: I64 = np.array(each, dtype=np.int64)[self.order]
        stated = np.array([each.node.output_bytes for each in self.executions], dtype=np.int64)
        if stated.any() and all(each.node.source for each in self.executions):
            return stated  # a front end states every result: none is one written in place
        found: I64 = np.where(stated > 0, stated, sizes)
        return found


def _execution_order(blocks: Sequence[Block]) -> Iterator[tuple[Block, int, Node]]:
    """Every node as often as it runs: layers in their order (from the last one in a backward
    pass), other blocks where they stand.
    """
    for run in _runs(blocks):
        if not run[0].layers:
            for repeat in range(run[0].count):
                for node in run[0].nodes:
                    yield run[0], repeat, node
            continue
        backward = run[0].direction == "backward"
        layers = {layer: block for block in run for layer in block.layers}
        for layer in sorted(layers, reverse=backward):
            for node in layers[layer].nodes:
                yield layers[layer], layer, node


def _runs(blocks: Sequence[Block]) -> Iterator[list[Block]]:
    """Neighbouring blocks of layers of one direction together, any other block alone."""
    run: list[Block] = []
    for block in blocks:
        if run and not (block.layers and run[0].layers and block.direction == run[0].direction):
            yield run
            run = []
        run.append(block)
    if run:
        yield run


_RECENT: dict[int, Unrolled] = {}
_REMEMBERED = 8


def unrolled(graph: Graph) -> Unrolled:
    """The graph unrolled, once for as long as it is among the last few that were asked for."""
    found = _RECENT.get(id(graph))
    if found is None or found.graph is not graph:
        found = Unrolled(graph)
        while len(_RECENT) >= _REMEMBERED:
            del _RECENT[next(iter(_RECENT))]
        _RECENT[id(graph)] = found
    return found
