"""Direct: every device sends to every other at once, one step a pass."""

from __future__ import annotations

from typing import final

from silicast.communication.algorithms.algorithm import (
    AlgorithmTime,
    Collective,
    CollectiveAlgorithm,
    Constants,
    register,
)
from silicast.communication.algorithms.ring import PASSES, contention, crowded
from silicast.communication.protocol import Crossing, quickest_protocol
from silicast.communication.topology import Topology
from silicast.core.numerics import F64


@register
@final
class Direct(CollectiveAlgorithm):
    """All-gather and reduce-scatter as messages to every peer; an all-reduce is both.

    The least steps, but between nodes each device's adapter sends to all devices of others.
    """

    name = "direct"

    def supports(self, op: Collective, topology: Topology) -> bool:
        """All-reduce and its halves of two or more whose paths are all alike."""
        return topology.gpus > 1 and op in PASSES and not topology.torus

    def traffic(self, op: Collective, size: F64, topology: Topology) -> F64:
        """(n - 1)/n of the message per pass."""
        return size * (PASSES[op] * (topology.gpus - 1) / topology.gpus)

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
