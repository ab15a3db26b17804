"""Exchange: point-to-point messages, one for send_recv, one to every peer for all_to_all."""

from __future__ import annotations

from typing import final

from silicast.communication.algorithm import (
    AlgorithmTime,
    Collective,
    CollectiveAlgorithm,
    Constants,
    register,
)
from silicast.communication.protocol import MICRO, fastest, protocol_time
from silicast.communication.ring import contention
from silicast.communication.topology import Topology
from silicast.core.numerics import F64

P2P = ("p2p_ll", "p2p")


@register
@final
class Exchange(CollectiveAlgorithm):
    """NCCL's grouped sends and receives."""

    name = "exchange"
    libraries = frozenset({"nccl"})

    def supports(self, op: Collective, topology: Topology) -> bool:
        """Any topology of two or more."""
        return topology.gpus > 1 and op in {"all_to_all", "send_recv"}

    def traffic(self, op: Collective, size: F64, topology: Topology) -> F64:
        """All of the message, or what is meant for others of an all_to_all buffer."""
        if op == "send_recv":
            return size * 1.0
        n = topology.gpus
        return size * ((n - 1) / n)

    def times(
        self, op: Collective, size: F64, topology: Topology, constants: Constants
    ) -> AlgorithmTime:
        """The slower of what stays in the node and what leaves it, each on its own link."""
        n, local = topology.gpus, topology.local
        away = 0 if topology.inter is None else n - local
        if op == "send_recv":
            inside, outside, messages = (0.0, 1.0, 1) if away else (1.0, 0.0, 1)
            rate = topology.peer_rate
            constants = {**constants, "p2p_efficiency": constants["single_efficiency"]}
        else:
            inside, outside, messages = (local - 1) / n, away / n, n - 1
            rate = topology.rate / contention(topology, constants)
        stay = 1.0 / n if op == "all_to_all" else 0.0
        extra = constants["network_step_us"] * MICRO if away else 0.0
        within = fastest(
            [
                protocol_time(
                    protocol,
                    constants,
                    size * inside,
                    size * stay,
                    rate=rate,
                    steps=messages,
                    extra_s=extra,
                )
                for protocol in P2P
            ],
        )
        if topology.inter is None or not away:
            return within
        network = topology.inter.bandwidth_bytes_per_s * constants["network_efficiency"]
        across = size * (outside / network) + within.latency_s
        slower = across > within.time_s
        time = within.time_s * (~slower) + across * slower
        return AlgorithmTime(time, within.latency_s)
