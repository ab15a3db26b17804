"""Hierarchical: inside the nodes, then between them, then inside again, one after the other."""

from __future__ import annotations

from typing import final

from silicast.communication.algorithms.algorithm import (
    AlgorithmTime,
    Collective,
    CollectiveAlgorithm,
    Constants,
    register,
)
from silicast.communication.algorithms.ring import PASSES, contention, ring_crossing
from silicast.communication.protocol import PROTOCOLS, fastest, protocol_time
from silicast.communication.topology import Topology
from silicast.core.numerics import F64


@register
@final
class Hierarchical(CollectiveAlgorithm):
    """A reduce-scatter inside each node, an all-reduce of each share between the nodes' devices of
    one place (its rail), an all-gather inside; of the halves one pass each.

    Rings at both levels: as many hops between nodes as there are nodes, not devices. The levels
    take turns; the library's own algorithms keep both busy.
    """

    name = "hierarchical"

    def supports(self, op: Collective, topology: Topology) -> bool:
        """All-reduce and its halves over more than one node of equal size."""
        whole = topology.gpus % topology.local == 0
        return op in PASSES and topology.nodes > 1 and topology.local > 1 and whole

    def traffic(self, op: Collective, size: F64, topology: Topology) -> F64:
        """(m - 1)/m of the message per pass, of m devices a node."""
        return size * (PASSES[op] * (topology.local - 1) / topology.local)

    def times(
        self, op: Collective, size: F64, topology: Topology, constants: Constants
    ) -> AlgorithmTime:
        """The fastest protocol, which all levels have."""
        local, nodes, passes = topology.local, topology.nodes, PASSES[op]
        rate = topology.rate / contention(topology, constants)
        sent = size * (passes * (nodes - 1) / nodes / local)
        crossing = ring_crossing(sent, passes * (nodes - 1), topology, constants)
        items = []
        for p in PROTOCOLS:
            inside = protocol_time(
                p,
                constants,
                self.traffic(op, size, topology),
                size * (1.0 / local),
                rate=rate,
                steps=passes * (local - 1),
            )
            hops_s = crossing.latency_s(p, constants)
            across = hops_s + crossing.stream_s(p, constants)
            items.append(AlgorithmTime(inside.time_s + across, inside.latency_s + hops_s))
        return fastest(items)
