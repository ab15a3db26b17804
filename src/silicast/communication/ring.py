"""Ring: every device passes pieces to its neighbour, n - 1 steps to gather or to reduce."""

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
from silicast.communication.topology import Topology
from silicast.core.numerics import F64

PASSES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}


@register
@final
class Ring(CollectiveAlgorithm):
    """NCCL's ring for all_reduce (reduce-scatter then all-gather), its halves and broadcast."""

    name = "ring"
    libraries = frozenset({"nccl"})

    def supports(self, op: Collective, topology: Topology) -> bool:
        """Any topology; broadcast is one pass in which whole messages flow through."""
        return topology.gpus > 1 and (op in PASSES or op == "broadcast")

    def traffic(self, op: Collective, size: F64, topology: Topology) -> F64:
        """(n - 1)/n of the message per pass; a broadcast sends all of it once."""
        if op == "broadcast":
            return size * 1.0
        n = topology.gpus
        return size * (PASSES[op] * (n - 1) / n)

    def times(
        self, op: Collective, size: F64, topology: Topology, constants: Constants
    ) -> AlgorithmTime:
        """The fastest protocol; across nodes the network adapters of a node share the ring."""
        n = topology.gpus
        hops = PASSES.get(op, 1) * (n - 1)
        rate, network_hops = topology.rate / contention(topology, constants), 0
        if topology.inter is not None:
            network_hops = PASSES.get(op, 1) * (topology.nodes - 1)
            network = topology.inter.bandwidth_bytes_per_s * topology.local
            rate = min(rate, network * constants["network_efficiency"])
        traffic, kept = self.traffic(op, size, topology), size * (1.0 / n)
        extra = network_hops * constants["network_step_us"] * MICRO
        return fastest(
            [
                protocol_time(
                    protocol,
                    constants,
                    traffic,
                    kept,
                    rate=rate,
                    steps=hops - network_hops,
                    extra_s=extra,
                )
                for protocol in PROTOCOLS
            ],
        )


def contention(topology: Topology, constants: Constants) -> float:
    """How many devices' worth of traffic the host's shared links carry, at least 1.

    NVLink fabrics have a path for every pair. Transfers over PCIe beyond a pair cross root
    complexes, sockets or host memory that several devices share.
    """
    if topology.fabric not in {"pcie", "host"}:
        return 1.0
    return 1.0 + constants["contention"] * max(topology.local - 2, 0)
