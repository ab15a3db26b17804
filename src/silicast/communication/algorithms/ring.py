"""Ring: every device passes pieces to its neighbour, n - 1 steps to gather or to reduce."""

from __future__ import annotations

import math
from typing import final

from silicast.communication.algorithms.algorithm import (
    AlgorithmTime,
    Collective,
    CollectiveAlgorithm,
    Constants,
    register,
)
from silicast.communication.algorithms.nvls import usual_switch_reduces
from silicast.communication.protocol import MICRO, PROTOCOLS, Crossing, quickest_protocol
from silicast.communication.topology import Topology
from silicast.core.numerics import F64

P2P = ("p2p_ll", "p2p")


@register
@final
class Exchange(CollectiveAlgorithm):
    """NCCL's grouped sends and receives."""

    name = "exchange"

    def supports(self, op: Collective, topology: Topology) -> bool:
        """Any topology of two or more."""
        return topology.gpus > 1 and op in {"all_to_all", "send_recv"}

    def traffic(self, op: Collective, size: F64, topology: Topology) -> F64:
        """All of the message; of an all_to_all buffer the part for other ranks."""
        if op == "send_recv":
            return size * 1.0
        n = topology.gpus
        return size * ((n - 1) / n)

    def times(
        self, op: Collective, size: F64, topology: Topology, constants: Constants
    ) -> AlgorithmTime:
        """Messages within the node and to other nodes run at once, each on its own link."""
        if op == "send_recv":
            return _message(size, topology, constants)
        n, local = topology.gpus, topology.local
        rate = topology.exchange_rate / contention(topology, constants)
        inside, local_bytes = size * ((local - 1) / n), size * (1.0 / n)
        if topology.torus:
            inside = inside * hops_on(topology.torus)
        crossing = None
        if topology.inter is not None:
            crossing = Crossing(
                size * ((n - local) / n),
                topology.network_exchange_rate,
                1,
                share=crowded(topology, constants),
            )
        return quickest_protocol(
            constants, inside, local_bytes, rate=rate, steps=n - 1, crossing=crossing, protocols=P2P
        )


def hops_on(torus: tuple[int, ...]) -> float:
    """How many links of the busiest dimension a message takes on average, the shorter way round.

    >>> hops_on((4, 4, 4)), hops_on((2, 8))
    (1.0, 2.0)
    """
    return max((side * side - side % 2) / (4.0 * side) for side in torus)


def _message(size: F64, topology: Topology, constants: Constants) -> AlgorithmTime:
    """One message between two devices, of different nodes if there are several."""
    rate, share = topology.peer_rate, constants["single_efficiency"]
    latency_us = constants["base_us"] + constants["ll_step_us"]
    if topology.inter is not None:
        rate = topology.network_message_rate
        share = constants["network_efficiency"] * constants.get("network_alone", 1.0)
        latency_us += constants["network_step_us"]
    start = 0.0 * size + latency_us * MICRO
    return AlgorithmTime(start + size / (rate * share), start)


PASSES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}


class PassAlgorithm(CollectiveAlgorithm):
    """Passes in which every device sends all of the message but its own share."""

    def supports(self, op: Collective, topology: Topology) -> bool:
        """All-reduce and its halves of two or more whose paths are all alike."""
        return topology.gpus > 1 and op in PASSES and not topology.torus

    def traffic(self, op: Collective, size: F64, topology: Topology) -> F64:
        """(n - 1)/n of the message per pass."""
        return size * (PASSES[op] * (topology.gpus - 1) / topology.gpus)


@register
@final
class Ring(PassAlgorithm):
    """NCCL's ring for all_reduce (reduce-scatter then all-gather), its halves and broadcast."""

    name = "ring"

    def supports(self, op: Collective, topology: Topology) -> bool:
        """Any topology; broadcast is one pass in which whole messages flow through."""
        return topology.gpus > 1 and (op in PASSES or op == "broadcast")

    def traffic(self, op: Collective, size: F64, topology: Topology) -> F64:
        """(n - 1)/n of the message per pass; a broadcast sends all of it once."""
        if op == "broadcast":
            return size * 1.0
        return super().traffic(op, size, topology)

    def times(
        self, op: Collective, size: F64, topology: Topology, constants: Constants
    ) -> AlgorithmTime:
        """The fastest protocol; across nodes the network adapters of a node share the ring."""
        return _times(self.traffic(op, size, topology), PROTOCOLS, op, size, topology, constants)


@register
@final
class ShortRing(PassAlgorithm):
    """The ring where NCCL keeps long messages for the switch: without the Simple protocol."""

    name = "short_ring"

    def supports(self, op: Collective, topology: Topology) -> bool:
        """All-reduce inside a node whose switch reduces for the usual library."""
        return usual_switch_reduces(op, topology)

    def times(
        self, op: Collective, size: F64, topology: Topology, constants: Constants
    ) -> AlgorithmTime:
        """The faster of LL and LL128."""
        traffic = self.traffic(op, size, topology)
        return _times(traffic, PROTOCOLS[:2], op, size, topology, constants)


def _times(
    traffic: F64,
    protocols: tuple[str, ...],
    op: Collective,
    size: F64,
    topology: Topology,
    constants: Constants,
) -> AlgorithmTime:
    n, passes = topology.gpus, PASSES.get(op, 1)
    steps = passes * (n - 1)
    crossing = None
    if topology.inter is not None:
        # a piece passes n - 1 links of the ring, of which up to one a node leads to another
        hops = passes * min(topology.nodes, n - 1)
        steps -= hops
        crossing = ring_crossing(traffic / topology.local, hops, topology, constants)
    rate = topology.rate / contention(topology, constants)
    local_bytes = size * (
        0.0 if op == "broadcast" else 1.0 / n
    )  # what arrives is passed on in place
    return quickest_protocol(
        constants,
        traffic,
        local_bytes,
        rate=rate,
        steps=steps,
        crossing=crossing,
        protocols=protocols,
    )


def ring_crossing(traffic: F64, hops: float, topology: Topology, constants: Constants) -> Crossing:
    """What each adapter sends of a pattern whose pieces follow each other, as a ring's do."""
    fill = constants.get("network_ring_fill", 0.0)
    return Crossing(traffic, topology.network_rate, hops, crowded(topology, constants), fill)


def crowded(topology: Topology, constants: Constants) -> float:
    """Share of an adapter's rate that is left where many nodes send at once, for paths collide, and
    where one device alone feeds it.
    """
    alone = constants.get("network_alone", 1.0) if topology.local == 1 else 1.0
    return alone * math.pow(constants.get("network_doubling", 1.0), topology.doublings)


def contention(topology: Topology, constants: Constants) -> float:
    """How many times the traffic of one pair of devices the host's shared links carry, at least 1.

    NVLink fabrics have a path for every pair. Transfers over PCIe beyond a pair cross root
    complexes, sockets or host memory. Some hosts have a path for every pair, on others all n/2 x
    n/2 pairs between their two halves take turns. A host that is not stated is taken as usual of
    such boards, where a device file says so, else at the geometric mean of hosts, of which the
    share ``sharing_hosts`` makes them take turns. On a torus
    one ring has the links of one dimension.
    """
    return max(len(topology.torus), 1) * math.pow(topology.turns, sharing(topology, constants))


def sharing(topology: Topology, constants: Constants) -> float:
    """How likely pairs take turns: 0 or 1 where it is stated."""
    share_by_paths = {"own": 0.0, "shared": 1.0}
    return share_by_paths.get(topology.host_paths, constants["sharing_hosts"])
