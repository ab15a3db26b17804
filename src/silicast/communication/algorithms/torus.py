"""Torus: rings along one dimension after the other, on all dimensions at once."""

from __future__ import annotations

from typing import final

from silicast.communication.algorithms.algorithm import (
    AlgorithmTime,
    Collective,
    CollectiveAlgorithm,
    Constants,
    register,
)
from silicast.communication.algorithms.ring import PASSES
from silicast.communication.protocol import quickest_protocol
from silicast.communication.topology import Topology
from silicast.core.numerics import F64


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
        traffic, remaining = self.traffic(op, size, topology), size * (1.0 / topology.gpus)
        return quickest_protocol(constants, traffic, remaining, rate=topology.rate, steps=steps)
