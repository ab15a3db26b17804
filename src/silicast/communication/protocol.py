"""NCCL's wire protocols: latency per step against share of the link's bandwidth.

LL writes 8-byte words of which 4 are flags, LL128 128-byte lines of which 8 are flags, Simple
whole chunks guarded by memory fences (NCCL source, ``device/prims_*.h``). A short message takes
the first, a long one the last; the model takes whichever is fastest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from silicast.communication.algorithms.algorithm import AlgorithmTime, Constants
from silicast.core.numerics import F64

MICRO = 1e-6
PROTOCOLS = ("ll", "ll128", "simple")
WIRE = {"ll": 0.5, "ll128": 120.0 / 128.0}
"""Share of what crosses the network that is payload; flags are the rest. 1 for other protocols."""


@final
@dataclass(frozen=True)
class Crossing:
    """What a collective sends between nodes.

    Attributes:
        traffic: bytes that one device's adapter sends, shape (n,).
        rate: datasheet bytes/s of the adapter.
        hops: messages from node to node, one after the other.
        share: of the adapter's rate that the pattern of the algorithm reaches.
        fill: share of the time of hops that pieces of a long message wait for each other. The best
            pieces through h hops of latency l take 2 sqrt(h l t) longer than the stream t alone.
    """

    traffic: F64
    rate: float
    hops: float
    share: float = 1.0
    fill: float = 0.0

    def latency_s(self, protocol: str, constants: Constants) -> float:
        """Time of its hops: each takes ``network_step_us``, by the protocol several times over."""
        times = constants.get(f"network_{protocol}_steps", 1.0)
        return self.hops * constants["network_step_us"] * times * MICRO

    def stream_s(self, protocol: str, constants: Constants) -> F64:
        """Time of its bytes at the share ``network_efficiency`` of the rate; shape (n,)."""
        share = self.share * constants["network_efficiency"] * WIRE.get(protocol, 1.0)
        return self.traffic / (self.rate * share)


def protocol_time(
    protocol: str,
    constants: Constants,
    traffic: F64,
    local_bytes: F64,
    *,
    rate: float,
    steps: float,
    crossing: Crossing | None = None,
) -> AlgorithmTime:
    """Start + steps + bytes moved over the protocol's share of the link + fill of the pipeline.

    Args:
        protocol: one of :data:`PROTOCOLS`.
        constants: ``base_us`` (or ``<p>_base_us``), and per protocol ``<p>_step_us``,
            ``<p>_efficiency``; optional ``<p>_local_copy`` and ``<p>_fill_us``.
        traffic: bytes per device over the link, shape (n,).
        local_bytes: bytes that the same thread blocks copy within the device, shape (n,).
        rate: datasheet bytes/s of the link.
        steps: sequential hops.
        crossing: what goes between nodes; it streams at the same time, over another link.

    The fill term sqrt(stream * fill) stands for the slow growth of channels and chunk sizes with
    the message: concave, so the time stays monotone and linear at the far end.
    """
    base_us = constants.get(f"{protocol}_base_us", constants["base_us"])
    start_s = (base_us + steps * constants[f"{protocol}_step_us"]) * MICRO
    moved = traffic + local_bytes * constants.get(f"{protocol}_local_copy", 0.0)
    stream = moved / (rate * constants[f"{protocol}_efficiency"])
    fill_s = constants.get(f"{protocol}_fill_us", 0.0) * MICRO
    if crossing is not None:
        hops_s = crossing.latency_s(protocol, constants)
        start_s += hops_s
        fill_s += crossing.fill * hops_s
        stream = np.maximum(stream, crossing.stream_s(protocol, constants))
    fill = stream * fill_s
    return AlgorithmTime(start_s + stream + np.sqrt(fill), start_s + 0.0 * traffic)


def quickest_protocol(
    constants: Constants,
    traffic: F64,
    local_bytes: F64,
    *,
    rate: float,
    steps: float,
    crossing: Crossing | None = None,
    protocols: Sequence[str] = PROTOCOLS,
) -> AlgorithmTime:
    """:func:`protocol_time` of whichever protocol is the fastest at each size."""
    return fastest(
        [
            protocol_time(
                p, constants, traffic, local_bytes, rate=rate, steps=steps, crossing=crossing
            )
            for p in protocols
        ]
    )


def fastest(candidates: list[AlgorithmTime]) -> AlgorithmTime:
    """Per row the fastest candidate; the first of equals."""
    best = candidates[0]
    for candidate in candidates[1:]:
        better = candidate.time_s < best.time_s
        best = AlgorithmTime(
            np.where(better, candidate.time_s, best.time_s),
            np.where(better, candidate.latency_s, best.latency_s),
        )
    return best
