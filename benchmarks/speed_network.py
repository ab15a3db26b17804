"""Time of simulating a collective of 1,024 ranks, alone and beside another, from flow to flow.

    .venv/bin/python -m benchmarks.speed_network [OUT.json]

Smallest CPU time of several runs, routes and folding included; none may take more than a second.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from silicast.communication.flows.groups import Method, rounds_of
from silicast.communication.flows.job import Job
from silicast.communication.flows.product import (
    Fabric,
    FabricDimension,
    ProductFabric,
    rail_cluster,
    torus,
)
from silicast.communication.flows.simulation import simulate

RANKS = 1024
SIZE = float(1 << 28)
BUDGET_S = 1.0
REPEATS = 3
METHODS: tuple[Method, ...] = ("ring", "halving_doubling", "tree")


def rails(pod: int = 0, oversubscription: float = 1.0) -> ProductFabric:
    return rail_cluster(
        RANKS // 8, 8, node_bytes_per_s=450e9, network_bytes_per_s=50e9, node_latency_s=0.5e-6,
        network_latency_s=2e-6, nodes_per_pod=pod, oversubscription=oversubscription,
    )  # fmt: skip


FABRICS: dict[str, Fabric] = {
    "one switch": ProductFabric((FabricDimension("switch", RANKS, 50e9, 1e-6),)),
    "rails of 128 nodes": rails(),
    "rails, pods of 16 nodes, oversubscribed 4 times": rails(16, 4.0),
    "torus of 8 x 8 x 16": torus((8, 8, 16), 50e9, 1e-6),
}


def timed(fabric: Fabric, jobs: list[Job]) -> dict[str, float | int]:
    best, outcome = float("inf"), simulate(fabric, jobs)
    for _ in range(REPEATS):
        start = time.process_time()
        outcome = simulate(fabric, jobs)
        best = min(best, time.process_time() - start)
    return {
        "cpu_ms": round(best * 1e3, 1), "simulated_ms": round(outcome.end_s * 1e3, 6),
        "events": outcome.events, "messages": outcome.messages, "classes": outcome.classes,
    }  # fmt: skip


def cases() -> dict[str, tuple[Fabric, list[Job]]]:
    every = tuple(range(RANKS))
    cases: dict[str, tuple[Fabric, list[Job]]] = {}
    for name, fabric in FABRICS.items():
        for method in METHODS:
            rounds = rounds_of("all_reduce", method, RANKS, SIZE)
            cases[f"all_reduce, {method}, {name}"] = (fabric, [Job("a", every, rounds)])
    half = rounds_of("all_reduce", "ring", RANKS // 2, SIZE)
    pair = [Job("even", every[::2], half), Job("odd", every[1::2], half)]
    cases["two ring all_reduce of 512, rails of 128 nodes"] = (rails(), pair)
    return cases


def main() -> None:
    result = {name: timed(*case) for name, case in cases().items()}
    for name, row in result.items():
        mark = "!" if row["cpu_ms"] > BUDGET_S * 1e3 else " "
        print(f"{mark} {name:70} {row['cpu_ms']:8.1f} ms, {row['events']:6} events")
    if len(sys.argv) > 1:
        text = json.dumps({"budget_ms": BUDGET_S * 1e3, "cases": result}, indent=1) + "\n"
        Path(sys.argv[1]).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
