"""A Chakra trace run on predicted devices: who computes, who talks, who waits.

A rank runs one operation at a time on its device and one on its host. A collective starts when all
its ranks have reached it and ends for all at once, one at a time in a group; a message likewise
(rendezvous, as NCCL's), one at a time from a rank to another. Computation and communication do not
slow each other down.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

from silicast.core.errors import SilicastError
from silicast.formats.chakra.calls import Member, TracedCall, collectives_of, messages_of
from silicast.formats.chakra.check import FATAL, Defect, defects_of, summarised
from silicast.formats.chakra.files import ChakraTrace
from silicast.formats.chakra.schema import COLL, COMP, MEM_LOAD, MEM_STORE, RECV, SEND

NEVER = math.inf


@final
@dataclass(frozen=True, slots=True)
class Activity:
    """Something that runs once: an operation of a rank, or a call in which several take part.

    Attributes:
        waits: indices of what must have ended before it.
        resource: what it keeps busy, one activity at a time; None = nothing.
    """

    waits: tuple[int, ...]
    resource: Hashable = None


def scheduled(
    activities: Sequence[Activity], seconds: Sequence[float]
) -> tuple[list[float], list[float]]:
    """Start and end of each; what never starts because it waits in a circle has :data:`NEVER`.

    Of those that a resource could run next it runs the one that comes first in ``activities``.

    >>> both = [Activity((), "device"), Activity((), "device"), Activity((0,), "link")]
    >>> scheduled(both, [2.0, 3.0, 1.0])
    ([0.0, 2.0, 2.0], [2.0, 5.0, 3.0])
    """
    return _Schedule(activities, seconds).run()


def least_seconds(activities: Sequence[Activity], seconds: Sequence[float]) -> float:
    """No order is quicker: the longest chain, and the busiest resource.

    >>> least_seconds([Activity((), "d"), Activity((), "d")], [2.0, 3.0])
    5.0
    """
    _, end = scheduled([Activity(activity.waits) for activity in activities], seconds)
    load: dict[Hashable, float] = {}
    for activity, item in zip(activities, seconds, strict=True):
        if activity.resource is not None:
            load[activity.resource] = load.get(activity.resource, 0.0) + item
    return max([*end, *load.values()], default=0.0)


@final
class _Schedule:
    def __init__(self, activities: Sequence[Activity], seconds: Sequence[float]) -> None:
        count = len(activities)
        self.activities, self.seconds = activities, seconds
        self.start, self.end = [NEVER] * count, [NEVER] * count
        self.left = [len(activity.waits) for activity in activities]
        self.readers: list[list[int]] = [[] for _ in range(count)]
        for index, activity in enumerate(activities):
            for other in activity.waits:
                self.readers[other].append(index)
        self.queues: dict[Hashable, list[int]] = {}
        self.busy: set[Hashable] = set()
        self.changed: dict[Hashable, None] = {}
        self.ends: list[tuple[float, int]] = []

    def run(self) -> tuple[list[float], list[float]]:
        """Start and end of each."""
        for index, count in enumerate(self.left):
            if not count:
                self._ready(index, 0.0)
        self._dispatch(0.0)
        while self.ends:
            now = self.ends[0][0]
            while self.ends and self.ends[0][0] == now:  # all end before a resource chooses anew
                self._finish(heapq.heappop(self.ends)[1], now)
            self._dispatch(now)
        return self.start, self.end

    def _begin(self, index: int, now: float) -> None:
        self.start[index] = now
        heapq.heappush(self.ends, (now + self.seconds[index], index))

    def _ready(self, index: int, now: float) -> None:
        resource = self.activities[index].resource
        if resource is None:
            self._begin(index, now)
            return
        heapq.heappush(self.queues.setdefault(resource, []), index)
        self.changed[resource] = None

    def _finish(self, index: int, now: float) -> None:
        self.end[index] = now
        resource = self.activities[index].resource
        if resource is not None:
            self.busy.discard(resource)
            self.changed[resource] = None
        for reader in self.readers[index]:
            self.left[reader] -= 1
            if not self.left[reader]:
                self._ready(reader, now)

    def _dispatch(self, now: float) -> None:
        for resource in self.changed:
            if resource not in self.busy and self.queues[resource]:
                self.busy.add(resource)
                self._begin(heapq.heappop(self.queues[resource]), now)
        self.changed.clear()


COMPUTE, HOST, COMMUNICATION, WAITING = "compute", "host", "communication", "waiting"
_SHOWN = 8


@final
@dataclass(frozen=True)
class ActivityProgram:
    """A trace as activities.

    Attributes:
        activities: in the order of the trace, rank by rank.
        work: of each, its node, or the call in which several nodes take part.
        defects: of the trace, none of which keeps it from running.
    """

    trace: ChakraTrace
    activities: tuple[Activity, ...]
    work: tuple[Member | TracedCall, ...]
    defects: tuple[Defect, ...]


@final
@dataclass(frozen=True)
class Replay:
    """When each activity of a program runs, seconds."""

    program: ActivityProgram
    start_s: Sequence[float]
    end_s: Sequence[float]

    @cached_property
    def total_s(self) -> float:
        """Until the last activity has ended."""
        return max(self.end_s, default=0.0)

    @cached_property
    def by_rank(self) -> Mapping[int, list[int]]:
        """Activities of each rank that take time, by when they start."""
        table: dict[int, list[int]] = {rank: [] for rank in self.program.trace.ranks}
        for index, work in enumerate(self.program.work):
            if self.end_s[index] > self.start_s[index]:
                for member in members_of(work):
                    table[member.rank].append(index)
        for row in table.values():
            row.sort(key=lambda index: (self.start_s[index], index))
        return table

    @cached_property
    def last_rank(self) -> int:
        """The rank that ends last; the first of several."""
        ends = {
            rank: max((self.end_s[index] for index in row), default=0.0)
            for rank, row in self.by_rank.items()
        }
        return max(ends, key=lambda rank: (ends[rank], -rank))

    def shares_s(self, rank: int) -> dict[str, float]:
        """The whole time by what a rank does: computes, else runs on its host, else communicates,
        else waits. The shares add up to the whole.
        """
        spans: dict[str, list[tuple[float, float]]] = {COMPUTE: [], HOST: [], COMMUNICATION: []}
        for index in self.by_rank[rank]:
            kind = kind_of(self.program.work[index])
            spans[kind].append((self.start_s[index], self.end_s[index]))
        covered: list[tuple[float, float]] = []
        table, before = {}, 0.0
        for name, own_spans in spans.items():
            covered = _union(covered + own_spans)
            length = sum(end - start for start, end in covered)
            table[name], before = length - before, length
        return {**table, WAITING: max(self.total_s - before, 0.0)}


def program_of(trace: ChakraTrace, world: int = 0) -> ActivityProgram:
    """The trace as activities.

    Args:
        world: ranks in all, where more take part than have a file.

    Raises:
        SilicastError: it cannot run: a cycle, a call that a rank never makes, or calls that do not
            match; names ranks and nodes.
    """
    defects = defects_of(trace, world)
    fatal = [defect for defect in defects if defect.kind in FATAL]
    if fatal:
        shown = summarised(fatal, 3)
        raise SilicastError(
            f"the trace cannot run: {'; '.join(shown[:_SHOWN])}",
            field="nodes",
            hint="record all ranks of the same steps, from their start to their end",
        )
    activities: list[Activity] = []
    work: list[Member | TracedCall] = []
    position: dict[tuple[int, int], int] = {}
    calls = [*collectives_of(trace, world), *messages_of(trace)]
    in_call = {(m.rank, m.place): number for number, c in enumerate(calls) for m in c.members}
    placed: dict[int, int] = {}
    for rank, item in trace.ranks.items():
        for index, node in enumerate(item.nodes):
            number = in_call.get((rank, index))
            if number is not None and number in placed:
                position[rank, node.id] = placed[number]
                continue
            if number is not None:
                placed[number] = len(work)
            position[rank, node.id] = len(work)
            work.append(Member(rank, index, node) if number is None else calls[number])
    for call in work:
        waits = dict.fromkeys(
            position[member.rank, parent]
            for member in members_of(call)
            for parent in member.node.parents
            if (member.rank, parent) in position
        )
        activities.append(Activity(tuple(waits), _resource(call)))
    harmless = tuple(defect for defect in defects if defect.kind not in FATAL)
    return ActivityProgram(trace, tuple(activities), tuple(work), harmless)


def replayed(program: ActivityProgram, seconds: Sequence[float]) -> Replay:
    """Runs a program whose activities take ``seconds``.

    Raises:
        SilicastError: ranks wait for each other; names them and their calls.
    """
    start, end = scheduled(program.activities, seconds)
    if NEVER in end:
        raise _deadlock(program, end)
    return Replay(program, start, end)


def members_of(work: Member | TracedCall) -> tuple[Member, ...]:
    """The nodes that are one activity."""
    return work.members if isinstance(work, TracedCall) else (work,)


def kind_of(work: Member | TracedCall) -> str:
    """What an activity is, for the shares of a rank's time."""
    if isinstance(work, TracedCall) or work.node.type in (COLL, SEND, RECV):
        return COMMUNICATION
    return HOST if work.node.on_cpu else COMPUTE


def _resource(work: Member | TracedCall) -> tuple[str, str | int] | None:
    if isinstance(work, TracedCall):
        return (work.op, work.group) if work.op == "send_recv" else ("group", work.group)
    if work.node.type in (COMP, MEM_LOAD, MEM_STORE):
        return kind_of(work), work.rank
    return None


def _union(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    union: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if union and start <= union[-1][1]:
            union[-1] = (union[-1][0], max(union[-1][1], end))
        else:
            union.append((start, end))
    return union


def _deadlock(program: ActivityProgram, end: Sequence[float]) -> SilicastError:
    """Who waits in which call for whom, along one circle."""
    activities, work = program.activities, program.work
    at, seen = end.index(NEVER), dict[int, int]()
    while at not in seen:
        seen[at] = len(seen)
        at = next(other for other in activities[at].waits if end[other] == NEVER)
    circle = [index for index, position in seen.items() if position >= seen[at]]
    calls = [call for index in circle if isinstance(call := work[index], TracedCall)]
    texts = []
    for call in calls[:_SHOWN]:
        here = _ready(program, call, end)
        there = [member for member in call.members if member not in here]
        waiting = " and ".join(map(str, here[:_SHOWN])) or "nobody yet"
        texts.append(
            f"{call.op or 'a collective'} of {call.size_bytes} bytes, in which {waiting} "
            f"waits for {' and '.join(map(str, there[:_SHOWN])) or 'its other ranks'}"
        )
    stuck = sorted(
        {m.rank for i, call in enumerate(work) if end[i] == NEVER for m in members_of(call)}
    )
    ranks = ", ".join(map(str, stuck[:_SHOWN])) + (" and more" if len(stuck) > _SHOWN else "")
    return SilicastError(
        f"deadlock of ranks {ranks}: {'; '.join(texts)}",
        field="nodes",
        hint="ranks must reach their calls in an order that all of them share",
    )


def _ready(program: ActivityProgram, call: TracedCall, end: Sequence[float]) -> list[Member]:
    """Members whose own rank has done all that they wait for."""
    done = {
        (member.rank, member.node.id)
        for index, call in enumerate(program.work)
        if end[index] != NEVER
        for member in members_of(call)
    }
    ids = {rank: {node.id for node in item.nodes} for rank, item in program.trace.ranks.items()}
    return [
        member
        for member in call.members
        if all(
            (member.rank, parent) in done
            for parent in member.node.parents
            if parent in ids[member.rank]
        )
    ]
