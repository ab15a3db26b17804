"""What each action of a pipeline waits for, and how deep it lies in the chains of those.

Joined pairs are one node. Nodes are sorted by depth, such that all nodes of one depth can be
evaluated at once. An order in which ranks wait for each other is refused here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, final

import numpy as np

from silicast.core.errors import SilicastError
from silicast.core.numerics import I64
from silicast.distributed.schedules.order import FORWARD, WEIGHT, Order

Waits = Literal["none", "sender", "both"]
"""Who is held up by a transfer: nobody, its sender, or both: it starts when both stand ready."""
WAITS: tuple[Waits, ...] = ("none", "sender", "both")


@final
@dataclass(frozen=True, eq=False)
class DependencyEdges:
    """Of each node at most one node that must have ended, and the message that then travels.

    Attributes:
        source: the node, shape (m,); m = none.
        sender, receiver: ranks of the message, shape (m,); equal where nothing travels.
        message: the action that sends it, shape (m,); -1 = the rank's own turn.
    """

    source: I64
    sender: I64
    receiver: I64
    message: I64


@final
@dataclass(frozen=True, eq=False)
class Dependencies:
    """The graph of an order.

    Attributes:
        node: of each action, shape (n,).
        action: the first action of each node, shape (m,), nodes in order of depth.
        depth: where nodes of each depth begin, and m, shape (depths + 1,).
        edges: what each node waits for; the first is the node before it on its rank.
    """

    node: I64
    action: I64
    depth: I64
    edges: tuple[DependencyEdges, ...]


@lru_cache(maxsize=64)
def dependencies(order: Order, waits: Waits = "none") -> Dependencies:
    """The graph of an order.

    Raises:
        SilicastError: ranks wait for each other.
    """
    joined = np.concatenate(([False], order.together[:-1]))
    node = np.cumsum(~joined) - 1
    action = np.flatnonzero(~joined)
    edges = _edges(order, waits, node, action)
    level = _levels(order, action, edges)
    sort = np.argsort(level, kind="stable")
    position = np.empty(len(action) + 1, dtype=np.int64)
    position[sort], position[-1] = np.arange(len(action)), len(action)
    depth = np.concatenate(([0], np.cumsum(np.bincount(level)[1:])))
    return Dependencies(
        position[node],
        action[sort],
        depth,
        tuple(
            DependencyEdges(
                position[e.source[sort]], e.sender[sort], e.receiver[sort], e.message[sort]
            )
            for e in edges
        ),
    )


def producers(order: Order) -> I64:
    """The action whose output each action takes from its neighbouring stage; -1 = none, (n,)."""
    location, count = order.placement, len(order.kind)
    rank_of, chunk_of = location.holder
    backward = order.kind != FORWARD
    works = order.kind != WEIGHT
    position = np.full((2, *location.stage.shape, order.micro_batches), -1)
    slot = (backward.astype(np.int64), order.rank, order.chunk, order.micro_batch)
    position[tuple(each[works] for each in slot)] = np.arange(count)[works]
    from_stage = order.stage + np.where(backward, 1, -1)
    has = works & (from_stage >= 0) & (from_stage < location.stages)
    path, stage = location.path[order.chunk[has]], from_stage[has]
    producers = np.full(count, -1)
    producers[has] = position[
        slot[0][has], rank_of[path, stage], chunk_of[path, stage], order.micro_batch[has]
    ]
    return producers


def _edges(order: Order, waits: Waits, node: I64, action: I64) -> list[DependencyEdges]:
    count, rank = len(action), order.rank[action]
    before = np.arange(count) - 1
    before[np.searchsorted(action, order.first[:-1][np.diff(order.first) > 0])] = count
    none = np.full(count, -1)
    edges = [DependencyEdges(before, none, none, none)]
    producer = producers(order)
    consumer = np.full(len(producer), -1)
    consumer[producer[producer >= 0]] = np.flatnonzero(producer >= 0)
    previous = np.append(before, count)
    pairs = [action]  # the actions of each node, -1 = none
    if order.together.any():
        pairs.append(np.where(order.together[action], action + 1, -1))
    for pair in pairs:
        taken = np.where(pair >= 0, producer[pair], -1)
        source = np.where(taken >= 0, node[taken], count)
        sender = np.where(taken >= 0, order.rank[taken], -1)
        receiver = np.where(taken >= 0, rank, -1)
        edges.append(DependencyEdges(source, sender, receiver, taken))
        if waits == "both":
            travels = (taken >= 0) & (sender != receiver)
            ready = np.where(travels, before, count)
            edges.append(DependencyEdges(ready, sender, receiver, np.where(travels, taken, -1)))
    for pair in pairs if waits != "none" else []:
        sent = np.append(pair, -1)[before]
        target = np.where(sent >= 0, consumer[sent], -1)
        travels = (target >= 0) & (order.rank[target] != rank)
        sender, receiver = np.where(travels, rank, -1), np.where(travels, order.rank[target], -1)
        sent = np.where(travels, sent, -1)
        edges.append(DependencyEdges(np.where(travels, before, count), sender, receiver, sent))
        if waits == "both":
            ready = np.where(travels, previous[node[target]], count)
            edges.append(DependencyEdges(ready, sender, receiver, sent))
    return [edges[0]] + [each for each in edges[1:] if (each.source < count).any()]


def _levels(order: Order, action: I64, edges: Sequence[DependencyEdges]) -> I64:
    """The longest chain to each node, from 1, shape (m,)."""
    count = len(action)
    sources = [each.source for each in edges[1:]]
    needs = np.stack(sources, axis=1).tolist() if sources else [[]] * count
    bounds = np.searchsorted(action, order.first).tolist()
    at, last = bounds[:-1], bounds[1:]
    level = [-1] * count + [0]
    reached = [0] * len(at)
    waiting: dict[int, list[int]] = {}
    ready = list(range(len(at)))
    while ready:
        rank = ready.pop()
        i, deep, end = at[rank], reached[rank], last[rank]
        while i < end:
            here = deep
            for source in needs[i]:
                chain = level[source]
                if chain < 0:
                    waiting.setdefault(source, []).append(rank)
                    break
                here = max(here, chain)
            else:
                level[i] = deep = here + 1
                if i in waiting:
                    ready += waiting.pop(i)
                i += 1
                continue
            break
        at[rank], reached[rank] = i, deep
    stuck = {rank: i for rank, i in enumerate(at) if i < last[rank]}
    if stuck:
        raise _deadlock(order, action, edges, stuck, level)
    return np.array(level[:-1], dtype=np.int64)


def _deadlock(
    order: Order,
    action: I64,
    edges: Sequence[DependencyEdges],
    stuck: dict[int, int],
    level: list[int],
) -> SilicastError:
    """Names the ranks of one circle, and for what each waits."""
    words: dict[int, str] = {}
    rank = next(iter(stuck))
    while rank not in words:
        i = stuck[rank]
        for edge in edges[1:]:
            source = int(edge.source[i])
            if level[source] < 0:
                break
        message = int(edge.message[i])
        payload = "activations" if order.kind[message] == FORWARD else "gradients"
        payload = f"{payload} of {order.named(message).partition(' of ')[2]}"
        sender, receiver = int(edge.sender[i]), int(edge.receiver[i])
        here = order.named(int(action[i]))
        if receiver == rank:
            words[rank] = f"rank {rank}, before {here}, waits for {payload} from rank {sender}"
        else:
            words[rank] = f"rank {rank}, before {here}, waits to send {payload} to rank {receiver}"
        rank = int(order.rank[action[source]])
    circle = list(words)[list(words).index(rank) :]
    others = len(stuck) - len(circle)
    also = f"; {others} more ranks wait for these" if others else ""
    return SilicastError(
        f"deadlock: {'; '.join(words[each] for each in circle)}{also}",
        field="schedule",
        hint="change the order of these ranks, or let transfers overlap",
    )
