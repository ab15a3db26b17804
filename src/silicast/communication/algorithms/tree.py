"""Tree: reduce up and broadcast down, few network hops; for all-reduce across many nodes."""

from __future__ import annotations

from typing import final

from silicast.communication.algorithms.algorithm import (
    AlgorithmTime,
    Collective,
    CollectiveAlgorithm,
    Constants,
    register,
)
from silicast.communication.algorithms.nvls import NOT_ADDED, SwitchReduction
from silicast.communication.algorithms.ring import contention, crowded
from silicast.communication.protocol import Crossing, protocol_time, quickest_protocol
from silicast.communication.topology import Topology
from silicast.core.numerics import F64

FEW = 4
"""The usual library leaves messages of at most so many devices of a node to its rings."""


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
        rate = topology.rate / contention(topology, constants)
        crossing = tree_crossing(size, topology, constants)
        traffic = self.traffic(op, size, topology)
        steps = 2 * (topology.local - 1)
        return quickest_protocol(
            constants, traffic, 0.0 * size, rate=rate, steps=steps, crossing=crossing
        )


@register
@final
class NvlsTree(SwitchReduction):
    """The same between nodes whose switches reduce: NCCL's NVLSTree."""

    name = "nvls_tree"
    not_added = NOT_ADDED

    def supports(self, op: Collective, topology: Topology) -> bool:
        """All-reduce over nodes with a switch that reduces among more than four devices."""
        switched = topology.nvls and topology.multicast and topology.local > FEW
        return op == "all_reduce" and topology.nodes > 1 and switched

    def traffic(self, op: Collective, size: F64, topology: Topology) -> F64:  # noqa: ARG002
        """Its own contribution once, and its reduced share of the node's once more."""
        return size * (1.0 + 1.0 / topology.local)

    def times(
        self, op: Collective, size: F64, topology: Topology, constants: Constants
    ) -> AlgorithmTime:
        """One protocol; each level of the tree waits for a chunk of the level below."""
        traffic = self.traffic(op, size, topology)
        crossing = tree_crossing(size, topology, constants)
        depth = (topology.local - 1).bit_length()
        return protocol_time(
            "nvls",
            constants,
            traffic,
            0.0 * traffic,
            rate=topology.rate,
            steps=depth,
            crossing=crossing,
        )


def tree_crossing(
    size: F64, topology: Topology, constants: Constants, share: float = 1.0
) -> Crossing | None:
    """What two binary trees between nodes send, each with half of the message.

    A node is inside one tree and a leaf of the other. Inside it sends one half up and one to each
    of two children, as a leaf one half up: twice the message from four nodes on. A
    ``share`` of one half goes down alone.
    """
    if topology.inter is None:
        return None
    depth = (topology.nodes - 1).bit_length()
    sent = min(topology.nodes, 4) / 2.0
    return Crossing(
        size * (share * sent / topology.local),
        topology.network_rate,
        share * 2 * depth,
        share=crowded(topology, constants),
        fill=constants.get("network_tree_fill", 0.0),
    )


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
