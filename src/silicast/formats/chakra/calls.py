"""Collectives and messages of a Chakra trace, matched over its ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from silicast.formats.chakra.files import ChakraTrace
from silicast.formats.chakra.schema import COLL, COLLECTIVES, RECV, SEND, ChakraNode

WORLD = ""
"""The group of collectives that name none: all ranks."""


@final
@dataclass(frozen=True, slots=True)
class Member:
    """A node at its place: rank, and index among the nodes of its rank."""

    rank: int
    place: int
    node: ChakraNode

    def __str__(self) -> str:
        """Rank, name and id, for people."""
        return f"rank {self.rank} {self.node.name[:60]!r} (node {self.node.id})"


@final
@dataclass(frozen=True, slots=True)
class TracedCall:
    """One collective or message, on all ranks that have a file.

    Attributes:
        op: "all_reduce", "send_recv", ...; "" = none that the schema has.
        group: name of its group; of a message "source>target".
        ranks: that take part, in their order, with or without a file.
        size_bytes: ``comm_size``: of each rank's own contribution.
    """

    op: str
    group: str
    ranks: tuple[int, ...]
    size_bytes: int
    members: tuple[Member, ...]

    @property
    def missing(self) -> tuple[int, ...]:
        """Ranks that take part and have no node here."""
        there = {member.rank for member in self.members}
        return tuple(rank for rank in self.ranks if rank not in there)


def collectives_of(trace: ChakraTrace, world: int = 0) -> list[TracedCall]:
    """Collectives, the n-th of a group on each rank being one, as NCCL matches them.

    A group that no file of groups holds is made of the ranks that call it.

    Args:
        world: ranks in all, where more take part than have a file.
    """
    rows: dict[str, dict[int, list[Member]]] = {}
    for member in _of_type(trace, COLL):
        rows.setdefault(group_of(member.node), {}).setdefault(member.rank, []).append(member)
    calls = []
    for group, by_rank in rows.items():
        ranks = trace.groups.get(group)
        if ranks is None:
            there = tuple(trace.ranks) if group == WORLD else tuple(sorted(by_rank))
            ranks = tuple(range(world)) if len(there) < world and _is_world(trace, group) else there
        for number in range(max(map(len, by_rank.values()))):
            members = tuple(row[number] for row in by_rank.values() if number < len(row))
            op = COLLECTIVES.get(members[0].node.number("comm_type", -1), "")
            size = max(member.node.number("comm_size") for member in members)
            calls.append(TracedCall(op, group, ranks, max(size, 0), members))
    return calls


def messages_of(trace: ChakraTrace) -> list[TracedCall]:
    """Messages: the n-th send from a rank to another under a tag with the n-th receive."""
    rows: dict[tuple[int, int, int], tuple[list[Member], list[Member]]] = {}
    for kind, number in ((SEND, 0), (RECV, 1)):
        for member in _of_type(trace, kind):
            ends = (member.node.number("comm_src"), member.node.number("comm_dst"))
            key = (*ends, member.node.number("comm_tag"))
            rows.setdefault(key, ([], []))[number].append(member)
    calls = []
    for (source, target, _), (sends, receives) in rows.items():
        for number in range(max(len(sends), len(receives))):
            members = (*sends[number : number + 1], *receives[number : number + 1])
            size = max(member.node.number("comm_size") for member in members)
            calls.append(
                TracedCall(
                    "send_recv", f"{source}>{target}", (source, target), max(size, 0), members
                )
            )
    return calls


def group_of(node: ChakraNode) -> str:
    """Name of a collective's group; "" where it names none."""
    value = node.attribute("pg_name")
    return str(value) if isinstance(value, str | int) else WORLD


def _is_world(trace: ChakraTrace, group: str) -> bool:
    """Whether nothing says that a group is smaller than the world."""
    return group == WORLD or (len(trace.ranks) == 1 and not trace.groups)


def _of_type(trace: ChakraTrace, kind: int) -> Iterator[Member]:
    for rank, item in trace.ranks.items():
        for index, node in enumerate(item.nodes):
            if node.type == kind:
                yield Member(rank, index, node)
