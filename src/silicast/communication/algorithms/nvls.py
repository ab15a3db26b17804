"""NVLS: the NVSwitch reduces and multicasts (NVLink SHARP): half of an all-reduce's traffic."""

from __future__ import annotations

from typing import final

from silicast.communication.algorithms.algorithm import (
    AlgorithmTime,
    Collective,
    CollectiveAlgorithm,
    Constants,
    register,
)
from silicast.communication.protocol import protocol_time
from silicast.communication.topology import Topology
from silicast.core.numerics import F64

NOT_ADDED = frozenset({"int8", "uint8", "int32", "int64", "fp64"})
"""Formats that the switch does not add (``multimem.ld_reduce``: bf16, fp16, fp32). An op of a
quantised model still reduces its 16-bit outputs."""


class SwitchReduction(CollectiveAlgorithm):
    """Loads and stores that the switch carries out; who issues them differs."""

    def supports(self, op: Collective, topology: Topology) -> bool:
        return switch_reduces(op, topology)

    def traffic(self, op: Collective, size: F64, topology: Topology) -> F64:  # noqa: ARG002
        """Its own contribution once, and its reduced share once more."""
        return size * (1.0 + 1.0 / topology.gpus)

    def times(
        self, op: Collective, size: F64, topology: Topology, constants: Constants
    ) -> AlgorithmTime:
        """One protocol, with a barrier among the participants."""
        traffic = self.traffic(op, size, topology)
        depth = (topology.gpus - 1).bit_length()
        return protocol_time(
            "nvls", constants, traffic, 0.0 * traffic, rate=topology.rate, steps=depth
        )


@register
@final
class Nvls(SwitchReduction):
    """All-reduce in the switch: each device reads its share reduced and writes it to all."""

    name = "nvls"
    not_added = NOT_ADDED

    def supports(self, op: Collective, topology: Topology) -> bool:
        return usual_switch_reduces(op, topology)


@register
@final
class Multimem(SwitchReduction):
    """An engine's own kernel on symmetric memory: the same in the switch, with fewer barriers."""

    name = "multimem"


def switch_reduces(op: Collective, topology: Topology) -> bool:
    """All-reduce inside one node whose switch can multicast."""
    return op == "all_reduce" and topology.multicast and topology.nodes == 1


def usual_switch_reduces(op: Collective, topology: Topology) -> bool:
    """Whether the usual library too may leave it to the switch."""
    return topology.nvls and switch_reduces(op, topology)
