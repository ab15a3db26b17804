"""What is wrong with a Chakra trace, named by rank and node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

from silicast.formats.chakra.calls import TracedCall, collectives_of, messages_of
from silicast.formats.chakra.files import ChakraTrace
from silicast.formats.chakra.schema import COLL, RECV, SEND, TYPES, ChakraNode, RankTrace

CYCLE, MISSING_PARENT, TWICE = "cycle", "missing parent", "id given twice"
UNMATCHED, MISMATCH, UNKNOWN_TYPE = "unmatched", "mismatch", "unknown type"
UNKNOWN_FIELDS, NO_SIZE, OUTSIDE = "unknown fields", "no size", "outside its group"
FATAL = frozenset((CYCLE, UNMATCHED, MISMATCH, OUTSIDE, TWICE))
"""Kinds of defects with which a trace cannot run."""
_SHOWN = 6


@final
@dataclass(frozen=True, slots=True)
class Defect:
    """One thing that is wrong.

    Attributes:
        kind: which; text: what, with rank and node.
    """

    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


def defects_of(trace: ChakraTrace, world: int = 0) -> list[Defect]:
    """All defects, those that keep the trace from running first.

    Args:
        world: ranks in all, where more take part than have a file.
    """
    defects: list[Defect] = []
    for rank, item in trace.ranks.items():
        defects += _of_rank(rank, item)
    for call in collectives_of(trace, world):
        defects += _of_collective(call, trace)
    for call in messages_of(trace):
        defects += _of_message(call, trace)
    return sorted(defects, key=lambda defect: defect.kind not in FATAL)


def summarised(defects: Sequence[Defect], most: int = _SHOWN) -> list[str]:
    """The first of each kind in words, and how many more there are."""
    summarised = []
    counts = Counter(defect.kind for defect in defects)
    for kind, count in counts.items():
        shown = [str(defect) for defect in defects if defect.kind == kind][:most]
        summarised += shown
        if count > len(shown):
            summarised.append(f"{kind}: and {count - len(shown)} more")
    return summarised


def _of_rank(rank: int, rank_trace: RankTrace) -> Iterator[Defect]:
    if rank_trace.skipped:
        yield Defect(
            UNKNOWN_FIELDS, f"rank {rank} has {rank_trace.skipped} that the schema does not have"
        )
    ids = Counter(node.id for node in rank_trace.nodes)
    for number, count in ids.items():
        if count > 1:
            yield Defect(TWICE, f"rank {rank} has {count} nodes {number}")
    for node in rank_trace.nodes:
        if node.type not in TYPES:
            yield Defect(UNKNOWN_TYPE, f"rank {rank} {_name(node)} is of type {node.type}")
        for parent in node.parents:
            if parent not in ids:
                yield Defect(
                    MISSING_PARENT, f"rank {rank} {_name(node)} waits for node {parent}, not there"
                )
        if node.type in (COLL, SEND, RECV) and node.number("comm_size", -1) < 0:
            yield Defect(NO_SIZE, f"rank {rank} {_name(node)} has no comm_size")
    loop = cycle_of(rank_trace)
    if loop:
        names = " -> ".join(_name(node) for node in loop[:_SHOWN])
        more = f" and {len(loop) - _SHOWN} more" if len(loop) > _SHOWN else ""
        yield Defect(CYCLE, f"rank {rank}: {names}{more} wait for each other")


def cycle_of(rank_trace: RankTrace) -> list[ChakraNode]:
    """Nodes each of which waits for the next, and the last for the first; none = no cycle."""
    nodes = {node.id: node for node in rank_trace.nodes}
    waits = {number: sum(p in nodes for p in node.parents) for number, node in nodes.items()}
    readers: dict[int, list[int]] = {}
    for number, node in nodes.items():
        for parent in node.parents:
            readers.setdefault(parent, []).append(number)
    ready = [number for number, count in waits.items() if not count]
    while ready:
        for reader in readers.get(ready.pop(), ()):
            waits[reader] -= 1
            if not waits[reader]:
                ready.append(reader)
    left = {number for number, count in waits.items() if count}
    if not left:
        return []
    at, seen = min(left), dict[int, int]()
    while at not in seen:
        seen[at] = len(seen)
        at = next(parent for parent in nodes[at].parents if parent in left)
    return [nodes[number] for number, position in seen.items() if position >= seen[at]]


def _of_collective(call: TracedCall, trace: ChakraTrace) -> Iterator[Defect]:
    first, others = call.members[0], call.members[1:]
    name = f"group {call.group!r}" if call.group else "all ranks"
    if not call.op:
        kind = first.node.number("comm_type", -1)
        yield Defect(UNKNOWN_TYPE, f"{first} is a collective of type {kind}")
    for member in call.members:
        if member.rank not in call.ranks:
            yield Defect(OUTSIDE, f"{member}: {name} is {_listed(call.ranks)}")
    for member in others:
        for field in ("comm_type", "comm_size"):
            here, there = first.node.number(field, -1), member.node.number(field, -1)
            if here != there:
                yield Defect(MISMATCH, f"in {name} {first} has {field} {here} and {member} {there}")
    silent = [rank for rank in call.missing if rank in trace.ranks]
    if silent:
        yield Defect(
            UNMATCHED, f"{first} waits for {_listed(silent)} in {name}, never called there"
        )


def _of_message(call: TracedCall, trace: ChakraTrace) -> Iterator[Defect]:
    source, target = call.ranks
    if len(call.members) == 2:
        send, receive = call.members
        sizes = send.node.number("comm_size", -1), receive.node.number("comm_size", -1)
        if sizes[0] != sizes[1] and min(sizes) >= 0:
            yield Defect(MISMATCH, f"{send} sends {sizes[0]} bytes, {receive} takes {sizes[1]}")
    else:
        sole = call.members[0]
        peer = target if sole.node.type == SEND else source
        if peer in trace.ranks:
            word = "receive" if sole.node.type == SEND else "send"
            yield Defect(UNMATCHED, f"{sole}: rank {peer} has no {word} for it")
    for member in call.members:
        wanted = source if member.node.type == SEND else target
        if member.rank != wanted:
            yield Defect(OUTSIDE, f"{member} is from rank {source} to rank {target}")


def _name(node: ChakraNode) -> str:
    return f"{node.name[:60]!r} (node {node.id})"


def _listed(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:_SHOWN]))
    more = f" and {len(ranks) - _SHOWN} more" if len(ranks) > _SHOWN else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}{more}"
