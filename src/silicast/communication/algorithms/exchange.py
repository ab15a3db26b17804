"""Exchange: point-to-point messages, one for send_recv, one to every peer for all_to_all."""

from __future__ import annotations

from typing import final

from silicast.communication.algorithms.algorithm import (
    AlgorithmTime,
    Collective,
    CollectiveAlgorithm,
    Constants,
    register,
)
from silicast.communication.algorithms.ring import contention, crowded
from silicast.communication.protocol import MICRO, Crossing, quickest_protocol
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
        inside, remaining = size * ((local - 1) / n), size * (1.0 / n)
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
            constants, inside, remaining, rate=rate, steps=n - 1, crossing=crossing, protocols=P2P
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
