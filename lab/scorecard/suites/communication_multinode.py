"""Collectives between nodes: each provider's published runs under constants without any of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lab.scorecard.collective_points import nearest_line, predict, scored_points
from lab.scorecard.collectives_between import TABLE, MultinodeRows, read_multinode
from lab.scorecard.held_out import constants_without
from lab.scorecard.kernel_suite import ranges
from lab.scorecard.rows import subsample
from lab.scorecard.suite import Scored, Suite
from silicast.communication.topology import Topology
from silicast.core.numerics import F64
from silicast.hardware.device import NETWORK
from silicast.kernels.physics.constants import replaced

LEAST_BYTES = 1 << 20
ALPHAS_S = np.geomspace(5e-6, 1e-3, 40).tolist()
SHARES = np.linspace(0.2, 1.6, 57).tolist()
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
        alpha, reached = nearest_line(pairs.seconds, wire(pairs), ALPHAS_S, SHARES)
        two[mine] = alpha + wire(left) / reached
    return [_scored(rows, result, {"constant busbw": constant, "two nodes' line": two})]


def _scored(rows: MultinodeRows, kernel_times: F64, others: dict[str, F64]) -> Scored:
    message = ("to 8 MiB", "to 128 MiB", "to 1 GiB", "longer")
    network = np.array([call.topology.network for call, index in rows.calls() for _ in index])
    kind = np.empty_like(network)
    kind[np.concatenate([index for _, index in rows.calls()])] = network
    return scored_points(
        "between_us",
        rows,
        kernel_times,
        others,
        {
            "provider": rows.provider,
            "network": kind,
            "nodes": np.array([f"{nodes} nodes" for nodes in rows.nodes.tolist()]),
            "per node": np.array([f"{count} GPUs a node" for count in rows.per_node.tolist()]),
            "algorithm": np.where(rows.forced == "", "the library's", rows.forced),
            "message": ranges(rows.size, (8 << 20, 128 << 20, 1 << 30), message),
        },
    )


def wire(rows: MultinodeRows) -> F64:
    """Seconds of what a ring sends at the full rate of all adapters of a node; shape (n,)."""
    wire = np.zeros(len(rows))
    for call, index in rows.calls():
        topology: Topology = call.topology
        n, passes = topology.gpus, 2 if call.op == "all_reduce" else 1
        rate = topology.network_rate * topology.local
        wire[index] = rows.size[index] * (passes * (n - 1) / n / rate)
    return wire


SUITES = (Suite("collectives-multinode", (TABLE,), _score),)
