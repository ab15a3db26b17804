"""Halving and doubling: partners at doubling distances swap halves, then gather them back."""

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
class HalvingDoubling(CollectiveAlgorithm):
    """Recursive halving with doubling distance, and its reverse (Thakur et al. 2005): a ring's
    bytes in the logarithm of its steps.
    """

    name = "halving_doubling"

    def supports(self, op: Collective, topology: Topology) -> bool:
        """All-reduce and its halves of two or more whose paths are all alike."""
        return topology.gpus > 1 and op in PASSES and not topology.torus

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
