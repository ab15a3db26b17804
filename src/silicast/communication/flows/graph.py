"""Irregular networks: named nodes, links between them, the shortest way."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from silicast.communication.flows.fabric import Fabric, Routes, check_link
from silicast.core.errors import SilicastError, unknown_name
from silicast.core.numerics import F64, I64


@final
@dataclass(frozen=True)
class Wire:
    """A link of one direction between two nodes, hosts or switches."""

    source: str
    target: str
    bytes_per_s: float
    latency_s: float = 0.0

    @property
    def name(self) -> str:
        """Both ends."""
        return f"{self.source} -> {self.target}"


@final
@dataclass(frozen=True)
class Graph(Fabric):
    """Any network. A message takes the way of the fewest links, of equal ones the first listed.

    Attributes:
        hosts: names of the nodes that are ranks, in order of rank.
        wires: links; for both directions list two.

    Raises:
        SilicastError: a link without bandwidth, or that ends nowhere; a host named twice.

    >>> graph = Graph(("a", "b"), (Wire("a", "s", 1e9), Wire("s", "b", 1e9)))
    >>> graph.route(np.array([0]), np.array([1])).links.tolist()
    [0, 1]
    >>> graph.route(np.array([1]), np.array([0]))
    Traceback (most recent call last):
    silicast.core.errors.SilicastError: wires: rank 1 (b) cannot reach rank 0 (a) \
(b has no link out)
    """

    hosts: tuple[str, ...]
    wires: tuple[Wire, ...]

    def __post_init__(self) -> None:
        if len(set(self.hosts)) != len(self.hosts):
            twice = next(name for name in self.hosts if self.hosts.count(name) > 1)
            raise SilicastError(f"host {twice!r} is listed twice", field="hosts")
        for wire in self.wires:
            check_link(wire.name, wire.bytes_per_s, wire.latency_s, "wires")
            if wire.source == wire.target:
                raise SilicastError(f"{wire.name} ends where it starts", field="wires")
        ends = {end for wire in self.wires for end in (wire.source, wire.target)}
        for host in self.hosts:
            if len(self.hosts) > 1 and host not in ends:
                raise unknown_name(f"no link ends at host {host!r}", "wires", "join it to others")

    @property
    def ranks(self) -> int:
        """See :class:`Fabric`."""
        return len(self.hosts)

    @cached_property
    def capacity(self) -> F64:
        """See :class:`Fabric`."""
        return np.array([wire.bytes_per_s for wire in self.wires])

    @cached_property
    def latency_s(self) -> F64:
        """See :class:`Fabric`."""
        return np.array([wire.latency_s for wire in self.wires])

    @cached_property
    def _leaving(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for number, wire in enumerate(self.wires):
            found.setdefault(wire.source, []).append(number)
        return found

    def route(self, source: I64, target: I64) -> Routes:
        """See :class:`Fabric`."""
        ways: list[I64] = []
        links: list[I64] = []
        trees: dict[int, dict[str, int]] = {}
        for way, (start, end) in enumerate(zip(source.tolist(), target.tolist(), strict=True)):
            if start not in trees:
                trees[start] = self._arrivals(start)
            path = self._path(trees[start], start, end)
            ways.append(np.full(len(path), way, dtype=np.int64))
            links.append(np.array(path, dtype=np.int64))
        return Routes.of(len(source), ways, links)

    def _arrivals(self, start: int) -> dict[str, int]:
        """The link by which each node is reached first."""
        first = self.hosts[start]
        reached: dict[str, int] = {}
        waiting = deque([first])
        while waiting:
            for number in self._leaving.get(waiting.popleft(), ()):
                node = self.wires[number].target
                if node != first and node not in reached:
                    reached[node] = number
                    waiting.append(node)
        return reached

    def _path(self, reached: dict[str, int], start: int, end: int) -> list[int]:
        node, path = self.hosts[end], list[int]()
        while node != self.hosts[start]:
            if node not in reached:
                raise SilicastError(
                    f"rank {start} ({self.hosts[start]}) cannot reach rank {end} "
                    f"({self.hosts[end]})",
                    field="wires", hint=self._gap(reached, start, end),
                )  # fmt: skip
            path.append(reached[node])
            node = self.wires[reached[node]].source
        return path[::-1]

    def _gap(self, reached: dict[str, int], start: int, end: int) -> str:
        """Where the way ends."""
        if not reached:
            return f"{self.hosts[start]} has no link out"
        before = [wire.source for wire in self.wires if wire.target == self.hosts[end]]
        if not before:
            return f"{self.hosts[end]} has no link in"
        return f"no link from {', '.join(sorted(reached)[:4])} leads to {before[0]}"

    def link_name(self, link: int) -> str:
        """See :class:`Fabric`."""
        return self.wires[link].name
