"""When each action of a pipeline runs: one list scheduler for every schedule.

A rank runs its actions in its own order, each as soon as the action before it on the rank has
ended and the message that it needs has arrived:

    start[i] = max(end[before i], end[sender of i's message] + transfer)

These are maxima of sums. All actions of one depth (the longest chain of actions that leads to
them) are independent, so each depth is evaluated as one array, for one plan or for many that share
the order. Depths follow from the order alone and are kept with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from silicast.core.errors import SilicastError
from silicast.core.numerics import I64
from silicast.distributed.pipeline.dependencies import (
    Dependencies,
    DependencyEdges,
    Waits,
    dependencies,
)
from silicast.distributed.schedules.order import KINDS, Order, Placement

Times = NDArray[Any]
"""Whole picoseconds (int64) or seconds (float64); a last axis may hold several plans."""


@final
@dataclass(frozen=True, eq=False)
class Durations:
    """How long each chunk of each rank takes for one micro-batch.

    Attributes:
        each: by kind (forward, backward, input gradient, weight gradient), rank and chunk, shape
            (4, ranks, chunks) or, for n plans, (4, ranks, chunks, n).
        joined: of a forward pass of one chunk and a backward pass of another that run together,
            shape (ranks, chunks, chunks[, n]); None = one after the other.
    """

    each: Times
    joined: Times | None = None

    @staticmethod
    def of_stages(
        placement: Placement, forward: Times, input_gradient: Times, weight_gradient: Times
    ) -> Durations:
        """From the times of the model's stages, each of shape (stages,) or (stages, n).

        >>> Durations.of_stages(Placement.interleaved(2), *np.ones((3, 2), int)).each[1].tolist()
        [[2], [2]]
        """
        kinds = np.stack(
            (forward, input_gradient + weight_gradient, input_gradient, weight_gradient)
        )
        return Durations(kinds[:, placement.stage])

    @staticmethod
    def equal(
        placement: Placement, forward: float, input_gradient: float, weight_gradient: float
    ) -> Durations:
        parts = (forward, input_gradient, weight_gradient)
        return Durations.of_stages(placement, *(np.full(placement.stages, part) for part in parts))


@final
@dataclass(frozen=True, eq=False)
class Critical:
    """The chain of actions that decides how long a pipeline takes.

    Attributes:
        actions: on it, from first to last, shape (k,).
        by_rank: time of it in each rank's actions, shape (ranks,).
        by_kind: time of it in each kind of action, shape (4,).
        transfers: time of it in messages.
    """

    actions: I64
    by_rank: Times
    by_kind: Times
    transfers: float

    @property
    def rank(self) -> int:
        """The rank on which most of it lies."""
        return int(np.argmax(self.by_rank))


@final
@dataclass(frozen=True, eq=False)
class PipelineTimes:
    """When each action runs; unit of the durations.

    Attributes:
        order: of the actions; ``durations`` of them, and ``transfer`` of messages.
        start, end: of each action, shape (n,), or (n, plans).
        busy: in actions, shape (ranks,) or (ranks, plans).
    """

    order: Order
    durations: Durations
    transfer: Times | float
    start: Times
    end: Times
    busy: Times
    _nodes: _Nodes

    @cached_property
    def makespan(self) -> Any:
        """From the beginning to the end of the last action: a number, or shape (plans,)."""
        result = self.end.max(axis=0)
        return result.item() if result.ndim == 0 else result

    @cached_property
    def bubble(self) -> Times:
        """Time in which each rank does nothing until all have ended; shape of ``busy``."""
        return np.asarray(self.makespan - self.busy)

    @cached_property
    def span(self) -> Times:
        """Of each rank from its first action to its last; shape of ``busy``.

        Where no rank waits for all before its optimizer's step, the longest span is the time of a
        step (Qi et al. 2023, section 4).
        """
        first = self.order.first
        return np.asarray(self.end[first[1:] - 1] - self.start[first[:-1]])

    @cached_property
    def idle_share(self) -> Any:
        """Of the time of all ranks, what they do nothing in; a number, or shape (plans,)."""
        value = self.bubble.mean(axis=0) / np.where(self.makespan, self.makespan, 1)
        return value.item() if value.ndim == 0 else value

    @cached_property
    def critical(self) -> Critical:
        """What decides the makespan; of the first plan where there are several."""
        return self._nodes.critical(self.order)


@final
@dataclass(frozen=True, eq=False)
class _Nodes:
    """Evaluated nodes of a pipeline: actions, of which joined pairs are one.

    Attributes:
        waits: what each depends on; ``delay``: until it hears of it, one array a column.
        duration, start, end: of each node in order of depth, shape (m[, plans]).
    """

    waits: Dependencies
    delay: tuple[Times, ...]
    duration: Times
    start: Times
    end: Times

    def critical(self, order: Order) -> Critical:
        ends = _first_plan(self.end)
        starts, lasts = _first_plan(self.start), _first_plan(self.duration)
        delays = [_first_plan(each) for each in self.delay]
        node = int(np.argmax(ends))
        chain, transfers = [], starts[0] * 0
        while node >= 0:
            chain.append(node)
            before = -1
            for edge, delay in zip(self.waits.edges, delays, strict=True):
                source = int(edge.source[node])
                if (
                    source < len(ends)
                    and starts[node] > 0
                    and (ends[source] + delay[node] == starts[node])
                ):
                    before, gap = source, delay[node]
                    break
            if before >= 0:
                transfers = transfers + gap
            node = before
        nodes = np.array(chain[::-1], dtype=np.int64)
        actions = self.waits.action[nodes]
        by_rank = np.zeros(order.placement.ranks, dtype=lasts.dtype)
        by_kind = np.zeros(len(KINDS), dtype=lasts.dtype)
        np.add.at(by_rank, order.rank[actions], lasts[nodes])
        np.add.at(by_kind, order.kind[actions], lasts[nodes])
        return Critical(actions, by_rank, by_kind, transfers.item())


def _first_plan(values: Times) -> Times:
    return values if values.ndim == 1 else values[:, 0]


def pipeline_times(
    order: Order, durations: Durations, transfer: Times | float = 0, waits: Waits = "none"
) -> PipelineTimes:
    """When each action of an order starts and ends.

    Args:
        order: of the actions on each rank.
        durations: of the actions.
        transfer: of a micro-batch's activations, or of their gradients, from one rank to another:
            a number, or shape (ranks, ranks[, plans]) by sender and receiver.
        waits: who does nothing meanwhile.

    Raises:
        SilicastError: a duration is negative or no number, or the order never ends: the ranks and
            the messages for which they wait are named.

    >>> from silicast.distributed.schedules.schedule import schedule
    >>> order = schedule("1f1b").order(ranks=4, micro_batches=8)
    >>> run = pipeline_times(order, Durations.equal(order.placement, 1.0, 1.0, 1.0))
    >>> run.makespan, run.bubble.tolist(), order.peak().tolist()
    (33.0, [9.0, 9.0, 9.0, 9.0], [4.0, 3.0, 2.0, 1.0])
    """
    position, shape = order.placement, np.shape(durations.each)
    if shape[:3] != (len(KINDS), position.ranks, position.chunks):
        raise SilicastError(
            f"shape is {shape}, expected {(len(KINDS), position.ranks, position.chunks)}",
            field="durations",
        )
    for field, values in (
        ("durations", durations.each),
        ("durations.joined", durations.joined),
        ("transfer", transfer),
    ):
        if values is not None and not (np.isfinite(values) & (np.asarray(values) >= 0)).all():
            raise SilicastError("a time is negative or no finite number", field=field)
    graph = dependencies(order, waits)
    duration = _node_durations(order, graph, durations)
    delay = [_delay(edge, np.asarray(transfer)) for edge in graph.edges]
    plans = np.broadcast_shapes(*(each.shape[1:] for each in (duration, *delay)))
    duration, *delay = (
        each.reshape(len(each), *(1,) * (len(plans) + 1 - each.ndim), *each.shape[1:])
        for each in (duration, *delay)
    )
    end = np.zeros((len(duration) + 1, *plans), dtype=np.result_type(duration, *delay))
    start = np.empty_like(end[:-1])
    for first, last in zip(graph.depth[:-1].tolist(), graph.depth[1:].tolist(), strict=True):
        begun = start[first:last]
        begun[...] = end[graph.edges[0].source[first:last]]
        for edge, late in zip(graph.edges[1:], delay[1:], strict=True):
            np.maximum(begun, end[edge.source[first:last]] + late[first:last], out=begun)
        np.add(begun, duration[first:last], out=end[first:last])
    busy = np.zeros((position.ranks, *plans), dtype=duration.dtype)
    np.add.at(busy, order.rank[graph.action], duration)
    nodes = _Nodes(graph, tuple(delay), duration, start, end[:-1])
    return PipelineTimes(
        order, durations, transfer, start[graph.node], end[graph.node], busy, nodes
    )


def _node_durations(order: Order, graph: Dependencies, durations: Durations) -> Times:
    action = graph.action
    times: Times = durations.each[order.kind[action], order.rank[action], order.chunk[action]]
    pair = np.flatnonzero(order.together[action])
    if not len(pair):
        return times
    action = action[pair]
    rank, forward, backward = order.rank[action], order.chunk[action], order.chunk[action + 1]
    if durations.joined is not None:
        times[pair] = durations.joined[rank, forward, backward]
    else:
        times[pair] += durations.each[order.kind[action + 1], rank, backward]
    return times


def _delay(edge: DependencyEdges, transfer: Times) -> Times:
    """Until a node hears of the one that it waits for, shape (m[, plans])."""
    travels = edge.sender != edge.receiver
    if transfer.ndim == 0:
        return np.where(travels, transfer, transfer.dtype.type(0))
    times: Times = transfer[edge.sender, edge.receiver]
    times[~travels] = 0
    return times
