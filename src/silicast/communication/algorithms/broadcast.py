"""Binomial broadcast: in every round all who have the message pass it on."""

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
from silicast.communication.protocol import Crossing, quickest_protocol
from silicast.communication.topology import Topology
from silicast.core.numerics import F64


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
