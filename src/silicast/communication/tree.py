"""Tree: reduce up and broadcast down, few network hops; for all-reduce across many nodes."""

from __future__ import annotations

from typing import final

from silicast.communication.algorithm import (
    AlgorithmTime,
    Collective,
    CollectiveAlgorithm,
    Constants,
    register,
)
from silicast.communication.protocol import MICRO, PROTOCOLS, fastest, protocol_time
from silicast.communication.ring import contention
from silicast.communication.topology import Topology
from silicast.core.numerics import F64


@register
@final
class Tree(CollectiveAlgorithm):
    """NCCL's double binary tree between nodes with a chain inside each node."""

    name = "tree"

    def supports(self, op: Collective, topology: Topology) -> bool:
        """All-reduce over more than one node."""
        return op == "all_reduce" and topology.nodes > 1

    def traffic(self, op: Collective, size: F64, topology: Topology) -> F64:  # noqa: ARG002
        """Up once and down once."""
        return size * 2.0

    def times(
        self, op: Collective, size: F64, topology: Topology, constants: Constants
    ) -> AlgorithmTime:
        """The fastest protocol; depth is the logarithm of the number of nodes."""
        depth = (topology.nodes - 1).bit_length()
        rate = topology.rate / contention(topology, constants)
        if topology.inter is not None:
            network = topology.network_rate * topology.local
            rate = min(rate, network * constants["network_efficiency"])
        extra = 2 * depth * constants["network_step_us"] * MICRO
        traffic = self.traffic(op, size, topology)
        return fastest(
            [
                protocol_time(
                    protocol, constants, traffic, 0.0 * size, rate=rate,
                    steps=2 * (topology.local - 1), extra_s=extra,
                )
                for protocol in PROTOCOLS
            ]
        )  # fmt: skip
