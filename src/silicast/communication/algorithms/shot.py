"""One-shot and two-shot all-reduce: engines' own kernels that read peers' memory directly.

One-shot: every device reads all peers' whole messages; one barrier. Two-shot: each reduces its
share, then all gather the shares; two barriers, 2/n of the traffic.
"""

from __future__ import annotations

from typing import final

from silicast.communication.algorithms.algorithm import (
    AlgorithmTime,
    Collective,
    CollectiveAlgorithm,
    Constants,
    register,
)
from silicast.communication.protocol import MICRO
from silicast.communication.topology import Topology
from silicast.core.numerics import F64, smooth_max

GIGA = 1e9
LARGEST_GROUP = 8


def peer_memory_supports(op: Collective, topology: Topology) -> bool:
    """All-reduce of 2..8 devices of one node that see each other's memory: NVLink, or a pair."""
    return (
        op == "all_reduce"
        and topology.nodes == 1
        and 2 <= topology.gpus <= LARGEST_GROUP
        and topology.peer_access
    )


def direct_time(constants: Constants, payload: F64, topology: Topology) -> AlgorithmTime:
    """Barriers + payload over what a few dozen thread blocks can pull through the link.

    The kernel runs a fixed, small number of blocks, so its rate has a ceiling of its own
    (bytes in flight over latency: ``ceiling_gbps`` in all, ``peer_gbps`` from each peer where
    each has its own blocks) beside a share of the link. ``floor_us`` is the time of the barriers,
    which overlaps with the transfer.
    """
    others = max(topology.gpus - 2, 0)
    start_s = (constants["base_us"] + constants["peer_us"] * others) * MICRO
    floor_s = (
        constants.get("floor_us", 0.0) + constants.get("floor_peer_us", 0.0) * others
    ) * MICRO
    ceiling = constants["ceiling_gbps"]
    per_peer = constants.get("peer_gbps", ceiling) * (topology.gpus - 1)
    rate = min(topology.rate * constants["efficiency"], ceiling * GIGA, per_peer * GIGA)
    streamed = start_s + payload / rate
    flat = 0.0 * payload
    return AlgorithmTime(
        smooth_max([streamed, flat + floor_s]), smooth_max([flat + start_s, flat + floor_s])
    )


class DirectReads(CollectiveAlgorithm):
    """Devices read the memory of their peers."""

    def supports(self, op: Collective, topology: Topology) -> bool:
        return peer_memory_supports(op, topology)

    def times(
        self, op: Collective, size: F64, topology: Topology, constants: Constants
    ) -> AlgorithmTime:
        """Barriers, then reads from all peers."""
        return direct_time(constants, self.traffic(op, size, topology), topology)


@register
@final
class OneShot(DirectReads):
    """Every device reads everything: one barrier."""

    name = "one_shot"

    def traffic(self, op: Collective, size: F64, topology: Topology) -> F64:  # noqa: ARG002
        """The whole message of every peer."""
        return size * (topology.gpus - 1.0)


@register
@final
class TwoShot(DirectReads):
    """Reduce-scatter, then all-gather: two barriers and two passes."""

    name = "two_shot"

    def traffic(self, op: Collective, size: F64, topology: Topology) -> F64:  # noqa: ARG002
        """(n - 1)/n of the message, twice."""
        return size * (2.0 * (topology.gpus - 1) / topology.gpus)
