"""PAT: parallel aggregated trees, the logarithm of a ring's steps for one device a node."""

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
from silicast.communication.protocol import quickest_protocol
from silicast.communication.topology import Topology
from silicast.core.numerics import F64


@register
@final
class Pat(CollectiveAlgorithm):
    """NCCL's all-gather and reduce-scatter in rounds whose distance doubles (NCCL 2.23)."""

    name = "pat"

    def supports(self, op: Collective, topology: Topology) -> bool:
        """Over nodes of which each has one participant."""
        return op in ("all_gather", "reduce_scatter") and topology.nodes == topology.gpus > 1

    def traffic(self, op: Collective, size: F64, topology: Topology) -> F64:
        """(n - 1)/n of the message."""
        return size * (PASSES[op] * (topology.gpus - 1) / topology.gpus)

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
