"""Double binary tree: two trees over all devices, each with half of the message."""

from __future__ import annotations

from typing import final

from silicast.communication.algorithms.algorithm import (
    AlgorithmTime,
    Collective,
    CollectiveAlgorithm,
    Constants,
    register,
)
from silicast.communication.algorithms.ring import contention
from silicast.communication.algorithms.tree import tree_crossing
from silicast.communication.protocol import quickest_protocol
from silicast.communication.topology import Topology
from silicast.core.numerics import F64

UP_AND_DOWN = {"all_reduce": 2, "broadcast": 1}


@register
@final
class DoubleBinaryTree(CollectiveAlgorithm):
    """Every device is inside one tree and a leaf of the other (Sanders, Speck, Traeff 2009). Unlike
    ``tree`` its levels go through the node as well, where the library has a chain.
    """

    name = "double_binary_tree"

    def supports(self, op: Collective, topology: Topology) -> bool:
        """All-reduce and broadcast of two or more whose paths are all alike."""
        return topology.gpus > 1 and op in UP_AND_DOWN and not topology.torus

    def traffic(self, op: Collective, size: F64, topology: Topology) -> F64:
        """One half to each of two children, and for an all-reduce a half up in both trees."""
        return size * (UP_AND_DOWN[op] * min(topology.gpus / 2.0, 2.0) / 2.0)

    def times(
        self, op: Collective, size: F64, topology: Topology, constants: Constants
    ) -> AlgorithmTime:
        """The fastest protocol; depth is the logarithm of the number of devices."""
        passes = UP_AND_DOWN[op]
        share = passes / 2.0
        return quickest_protocol(
            constants,
            self.traffic(op, size, topology),
            0.0 * size,
            rate=topology.rate / contention(topology, constants),
            steps=passes * (topology.local - 1).bit_length(),
            crossing=tree_crossing(size, topology, constants, share),
        )
