"""Collectives between nodes: each provider's published runs under constants without any of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lab.scorecard.collectives_between import TABLE, MultinodeRows, read_multinode
from lab.scorecard.held_out import constants_without
from lab.scorecard.kernel_suite import ranges
from lab.scorecard.rows import subsample
from lab.scorecard.suite import EVIDENCE, Scored, Suite
from silicast.communication.collective import collective_times
from silicast.communication.topology import Topology
from silicast.core.numerics import F64
from silicast.hardware.device import NETWORK
from silicast.kernels.physics.constants import replaced

US = 1e6
LEAST_BYTES = 1 << 20
ALPHAS_S = np.geomspace(5e-6, 1e-3, 40)
SHARES = np.linspace(0.2, 1.6, 57)
"""Of the adapters' rate; two nodes' algorithms beat what a ring can make of it."""


def _score(data: Path, limit: int | None) -> list[Scored]:
    every = read_multinode(data, least=LEAST_BYTES)
    rows = every.take(subsample(len(every), limit))
    result, constant, two = np.zeros((4, len(rows))), np.zeros(len(rows)), np.zeros(len(rows))
    for provider in sorted(set(rows.provider.tolist())):
        mine, others = rows.provider == provider, every.take(every.provider != provider)
        left = rows.take(mine)
        with replaced({NETWORK: constants_without(NETWORK, provider)}):
            result[:, mine] = predict(left)
        share = float(np.median(wire(others) / others.seconds))
        constant[mine] = wire(left) / share
        pairs = others.take(others.nodes == 2)
        alpha, reached = _line(pairs.seconds, wire(pairs))
        two[mine] = alpha + wire(left) / reached
    return [_scored(rows, result, {"constant busbw": constant, "two nodes' line": two})]


def _scored(rows: MultinodeRows, kernel_times: F64, others: dict[str, F64]) -> Scored:
    estimate, p05, p95, bound = kernel_times
    message = ("to 8 MiB", "to 128 MiB", "to 1 GiB", "longer")
    network = np.array([call.topology.network for call, index in rows.calls() for _ in index])
    order = np.concatenate([index for _, index in rows.calls()])
    kind = np.empty_like(network)
    kind[order] = network
    return Scored(
        metric="between_us",
        measured=rows.seconds * US,
        estimate=estimate * US,
        p05=p05 * US,
        p95=p95 * US,
        roofline=bound * US,
        baselines={name: values * US for name, values in others.items()},
        groups={
            "device": rows.device,
            "provider": rows.provider,
            "network": kind,
            "operation": rows.op,
            "nodes": np.array([f"{nodes} nodes" for nodes in rows.nodes.tolist()]),
            "per node": np.array([f"{count} GPUs a node" for count in rows.per_node.tolist()]),
            "algorithm": np.where(rows.forced == "", "the library's", rows.forced),
            "message": ranges(rows.size, (8 << 20, 128 << 20, 1 << 30), message),
        },
        noise=rows.noise,
    )


def predict(rows: MultinodeRows) -> F64:
    """Estimate, p05, p95 and bound of every row, seconds, shape (4, n)."""
    result = np.zeros((4, len(rows)))
    for call, index in rows.calls():
        times = collective_times(
            call.op, rows.size[index], call.topology.gpus, call.topology, call.library, call.launch,
            call.dtype, call.version, algorithm=call.forced, learned=EVIDENCE.get().learned,
        )  # fmt: skip
        result[:, index] = times.estimate_s, times.p05_s, times.p95_s, times.bound_s
    return result


def wire(rows: MultinodeRows) -> F64:
    """Seconds of what a ring sends at the full rate of all adapters of a node; shape (n,)."""
    wire = np.zeros(len(rows))
    for call, index in rows.calls():
        topology: Topology = call.topology
        n, passes = topology.gpus, 2 if call.op == "all_reduce" else 1
        rate = topology.network_rate * topology.local
        wire[index] = rows.size[index] * (passes * (n - 1) / n / rate)
    return wire


def _line(seconds: F64, sent_s: F64) -> tuple[float, float]:
    """The latency (s) and share of the adapters that fit best in the logarithm."""
    candidates = [
        (float(np.mean(np.abs(np.log((alpha + sent_s / share) / seconds)))), alpha, share)
        for alpha in ALPHAS_S
        for share in SHARES
    ]
    _, alpha, share = min(candidates)
    return float(alpha), float(share)


SUITES = (Suite("collectives-multinode", (TABLE,), _score),)
