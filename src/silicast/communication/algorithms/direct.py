"""Algorithms of messages: to all peers, by levels, in halves, in doubling rounds, on a torus."""

from __future__ import annotations

from typing import final

from silicast.communication.algorithms.algorithm import (
    AlgorithmTime,
    Collective,
    CollectiveAlgorithm,
    Constants,
    register,
)
from silicast.communication.algorithms.ring import (
    PASSES,
    PassAlgorithm,
    contention,
    crowded,
    ring_crossing,
)
from silicast.communication.protocol import (
    PROTOCOLS,
    Crossing,
    fastest,
    protocol_time,
    quickest_protocol,
)
from silicast.communication.topology import Topology
from silicast.core.numerics import F64


@register
@final
class Direct(PassAlgorithm):
    """All-gather and reduce-scatter as messages to every peer; an all-reduce is both.

    The least steps, but between nodes each device's adapter sends to all devices of others.
    """

    name = "direct"

    def times(
        self, op: Collective, size: F64, topology: Topology, constants: Constants
    ) -> AlgorithmTime:
        """Messages within the node and to other nodes run at once."""
        n, local, passes = topology.gpus, topology.local, PASSES[op]
        crossing = None
        if topology.inter is not None:
            sent = size * (passes * (n - local) / n)
            share = crowded(topology, constants)
            crossing = Crossing(sent, topology.network_exchange_rate, passes, share)
        return quickest_protocol(
            constants,
            size * (passes * (local - 1) / n),
            size * (1.0 / n),
            rate=topology.exchange_rate / contention(topology, constants),
            steps=passes,
            crossing=crossing,
        )


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
        by_protocol = []
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
            by_protocol.append(AlgorithmTime(inside.time_s + across, inside.latency_s + hops_s))
        return fastest(by_protocol)


@register
@final
class HalvingDoubling(PassAlgorithm):
    """Recursive halving with doubling distance, and its reverse (Thakur et al. 2005): a ring's
    bytes in the logarithm of its steps.
    """

    name = "halving_doubling"

    def traffic(self, op: Collective, size: F64, topology: Topology) -> F64:
        """(n - 1)/n of the message per pass; those beyond a power of two hand theirs over first and
        get it back.
        """
        n = topology.gpus
        core = 1 << (n.bit_length() - 1)
        folded = 0.0 if core == n else 1.0
        return size * (PASSES[op] * ((core - 1) / core + folded / 2.0))

    def times(
        self, op: Collective, size: F64, topology: Topology, constants: Constants
    ) -> AlgorithmTime:
        """Near partners swap the large halves, so that nodes send what devices have left."""
        passes, local, nodes = PASSES[op], topology.local, topology.nodes
        steps = passes * (local - 1).bit_length()
        crossing = None
        if topology.inter is not None:
            sent = size * (passes * (nodes - 1) / nodes / local)
            hops = passes * (nodes - 1).bit_length()
            crossing = ring_crossing(sent, hops, topology, constants)
        return quickest_protocol(
            constants,
            self.traffic(op, size, topology),
            size * (1.0 / topology.gpus),
            rate=topology.rate / contention(topology, constants),
            steps=steps,
            crossing=crossing,
        )


@register
@final
class Pat(PassAlgorithm):
    """NCCL's all-gather and reduce-scatter in rounds whose distance doubles (NCCL 2.23)."""

    name = "pat"

    def supports(self, op: Collective, topology: Topology) -> bool:
        """Over nodes of which each has one participant."""
        return op in ("all_gather", "reduce_scatter") and topology.nodes == topology.gpus > 1

    def times(
        self, op: Collective, size: F64, topology: Topology, constants: Constants
    ) -> AlgorithmTime:
        """The Simple protocol alone."""
        traffic = self.traffic(op, size, topology)
        hops = (topology.nodes - 1).bit_length()
        crossing = None
        if topology.inter is not None:
            crossing = ring_crossing(traffic, hops, topology, constants)
        rate = topology.rate / contention(topology, constants)
        return quickest_protocol(
            constants,
            traffic,
            size * (1.0 / topology.gpus),
            rate=rate,
            steps=0,
            crossing=crossing,
            protocols=("simple",),
        )


@register
@final
class Torus(CollectiveAlgorithm):
    """Each of d equal parts of the message starts along another dimension, so that the links of all
    d dimensions are busy: a reduce-scatter along one shrinks what goes along the next.
    """

    name = "torus"

    def supports(self, op: Collective, topology: Topology) -> bool:
        """All-reduce and its halves on a torus."""
        return op in PASSES and len(topology.torus) > 0 and topology.gpus > 1

    def traffic(self, op: Collective, size: F64, topology: Topology) -> F64:
        """(n - 1)/n of the message per pass; more where unequal sides make parts wait, counted at
        the rate of all links.
        """
        sides = topology.torus
        count, waited = len(sides), 0.0
        left = [1.0] * count  # of each part
        for phase in range(count):
            turn = [sides[(part + phase) % count] for part in range(count)]
            sent = [share * (side - 1) / side for share, side in zip(left, turn, strict=True)]
            waited += max(sent)
            left = [share / side for share, side in zip(left, turn, strict=True)]
        return size * (PASSES[op] * waited)

    def times(
        self, op: Collective, size: F64, topology: Topology, constants: Constants
    ) -> AlgorithmTime:
        """The fastest protocol; steps are those of a ring along each dimension."""
        steps = PASSES[op] * sum(side - 1 for side in topology.torus)
        traffic, local_bytes = self.traffic(op, size, topology), size * (1.0 / topology.gpus)
        return quickest_protocol(constants, traffic, local_bytes, rate=topology.rate, steps=steps)


@register
@final
class Binomial(CollectiveAlgorithm):
    """Few steps, but the root sends the whole message in each: for short messages. A ring's
    broadcast sends it once, in n - 1 steps.
    """

    name = "binomial"

    def supports(self, op: Collective, topology: Topology) -> bool:
        """Broadcast to one other or more."""
        return topology.gpus > 1 and op == "broadcast"

    def traffic(self, op: Collective, size: F64, topology: Topology) -> F64:  # noqa: ARG002
        """The message in every round."""
        return size * float((topology.gpus - 1).bit_length())

    def times(
        self,
        op: Collective,  # noqa: ARG002
        size: F64,
        topology: Topology,
        constants: Constants,
    ) -> AlgorithmTime:
        """Rounds between nodes first, one message of a node's adapter each, then inside."""
        rounds, hops = (topology.local - 1).bit_length(), (topology.nodes - 1).bit_length()
        crossing = None
        if topology.inter is not None:
            rate = topology.network_message_rate
            crossing = Crossing(size * float(hops), rate, hops, crowded(topology, constants))
        return quickest_protocol(
            constants,
            size * float(rounds),
            0.0 * size,
            rate=topology.rate / contention(topology, constants),
            steps=rounds,
            crossing=crossing,
        )
