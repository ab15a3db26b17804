"""When packets matter: closed form and flow level against ns-3, on leaf-spine networks.

    python -m benchmarks.network_fidelity NS3 PROGRAM [later]

NS3 is the folder of the package ``ns3`` of PyPI (3.44, in a virtual environment of its own),
PROGRAM what ``benchmarks/packets/leaf_spine.cc`` was compiled to:

    g++ -O1 -std=c++20 -I NS3/include benchmarks/packets/leaf_spine.cc -o PROGRAM -L NS3/lib64
        -lns3.44-core -lns3.44-network -lns3.44-internet -lns3.44-point-to-point
        -lns3.44-applications -lns3.44-traffic-control -Wl,--allow-shlib-undefined

8 to 128 hosts, four on a leaf, links of 100 Gbit/s and 1 us; 4, 2 or 1 spines (1:1, 2:1, 4:1);
packets that take any spine, or one by their destination. All-reduce by ring and by halving and
doubling, all-gather by ring, direct all-to-all, transfers of KV caches between halves, incast, and
two rings at once on every other host, 64 KiB to 64 MiB. Rounds of a
collective are simulated apart, each until its last byte; connections are open when a round begins
(a handshake is taken off). TCP with DCTCP: there is no RoCE, no PFC and no adaptive routing, and
reordered packets of sprayed flows are taken for lost ones, as RoCE with selective repeat would not.

Closed form: the busiest link of each round, beside its latency. Flow level: the product's max-min
fair simulation, where a leaf's uplinks are one trunk. The rule (how small messages are, how many
come together, whether destinations choose spines) is made on half of the fabrics and checked on the
other. Beside it a rule by mechanisms (:func:`mechanisms`): its form was chosen with the first 120
cells in sight (16 hosts, one job, to 16 MiB), its two thresholds are made on the same half; the
cells of other sizes, hosts, patterns and of two jobs, simulated afterwards ("later" as a third
argument), are judged apart. Writes benchmarks/results/network_fidelity.json; without arguments its
cells are judged anew.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lab import fitting
from silicast.communication.algorithms.algorithm import Collective
from silicast.communication.flows.groups import Groups, rounds_of
from silicast.communication.flows.job import Job, Round
from silicast.communication.flows.packets import SLOWER, packet_effects
from silicast.communication.flows.product import FabricDimension, ProductFabric
from silicast.communication.flows.simulation import simulate
from silicast.communication.topology import Topology
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Link

OUT = Path(__file__).parent / "results" / "network_fidelity.json"
HOSTS, POD, GBIT, DELAY_US = 16, 4, 100.0, 1.0
RATE, HOPS_S = GBIT * 1e9 / 8.0, 4 * DELAY_US * 1e-6
PAYLOAD = 4096.0 / (4096.0 + 20 + 32 + 2)
"""Of a packet: TCP with time stamps, IP and PPP are on the wire too."""
KIB = 1024
SIZES = (64 * KIB, 256 * KIB, 1024 * KIB)
LARGE = {4096 * KIB: ("ring", "kv", "incast"), 16384 * KIB: ("ring", "incast")}
PATTERNS = ("ring", "halving_doubling", "all_to_all", "kv", "incast")
LATER = (
    *(("all_gather", size, 16) for size in SIZES),
    *(("two_rings", size, 16) for size in (256 * KIB, 1024 * KIB)),
    *((pattern, 65536 * KIB, 16) for pattern in ("ring", "incast")),
    *((pattern, 1024 * KIB, hosts) for pattern in ("ring", "incast") for hosts in (8, 32)),
    ("all_to_all", 1024 * KIB, 8),
    ("all_to_all", 1024 * KIB, 32),
    ("ring", 16384 * KIB, 128),
)
"""Pattern, bytes and hosts of cells that were simulated when the rule by mechanisms stood."""
FABRICS = tuple(itertools.product((4, 2, 1), ("spray", "hash")))
MADE_ON = ((4, "spray"), (2, "hash"), (1, "hash"))
OFF = 0.10


def main(arguments: list[str]) -> None:
    """Prints and writes every cell, the errors and the rule."""
    if not arguments:
        cells = json.loads(OUT.read_text())["cells"]
        fitting.write(OUT, {"summary": summed_up(cells), "cells": cells})
        print(summed_up(cells))
        return
    ns3, program = Path(arguments[0]), arguments[1]
    environment = os.environ | {"LD_LIBRARY_PATH": str(ns3 / "lib64")}

    def packets(
        hosts: int, spines: int, routing: str, flows: Sequence[tuple[int, int, int]]
    ) -> float:
        text = "".join(f"{a} {b} {n}\n" for a, b, n in flows)
        names = (hosts // POD, POD, spines, GBIT, DELAY_US, routing)
        command = [program, *(f"{each}" for each in names)]
        done = subprocess.run(
            command, input=text, env=environment, capture_output=True, text=True, check=True
        )
        return float(done.stdout)

    cells = json.loads(OUT.read_text())["cells"] if "later" in arguments else []
    cells = [cell for cell in cells if cell.get("hosts", HOSTS) == HOSTS and not cell.get("later")]
    for spines, routing in FABRICS:
        for pattern, size, hosts in LATER if "later" in arguments else cases():
            handshake = packets(hosts, spines, routing, [(0, hosts - 1, 1)]) - HOPS_S
            rounds = rounds_in(pattern, size, hosts)
            before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
            real = sum(
                each.repeat * max(packets(hosts, spines, routing, flows_of(each)) - handshake, 0.0)
                for each in rounds
            )
            spent = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
            started = time.process_time()
            flow = flow_level_s(hosts, spines, rounds)
            of_flow = time.process_time() - started
            closed = sum(each.repeat * closed_s(hosts, spines, each) for each in rounds)
            cells.append(
                {
                    "pattern": pattern,
                    "bytes": size,
                    "hosts": hosts,
                    "later": "later" in arguments,
                    "spines": spines,
                    "routing": routing,
                    "packets_s": real,
                    "flow_error": round(flow / real - 1.0, 4),
                    "closed_error": round(closed / real - 1.0, 4),
                    "packets_cpu_s": round(spent, 3),
                    "flow_cpu_s": round(of_flow, 4),
                    "message": float(min(each.size.min() for each in rounds)),
                    "fan_in": max(int(np.bincount(each.target).max()) for each in rounds),
                }
            )
            print(cells[-1], flush=True)
    summary = summed_up(cells)
    print(summary)
    fitting.write(OUT, {"summary": summary, "cells": cells})


def cases() -> list[tuple[str, int, int]]:
    """Patterns and sizes, the large ones of a few patterns alone."""
    usual = [(pattern, size, HOSTS) for pattern in PATTERNS for size in SIZES]
    return usual + [(pattern, size, HOSTS) for size, some in LARGE.items() for pattern in some]


def rounds_in(pattern: str, size: int, hosts: int) -> tuple[Round, ...]:
    if pattern in ("ring", "halving_doubling"):
        return rounds_of("all_reduce", pattern, hosts, float(size))  # type: ignore[arg-type]
    if pattern == "two_rings":  # in step: one on even hosts, one on odd ones
        return tuple(
            Round.from_messages(
                np.concatenate([2 * each.source, 2 * each.source + 1]),
                np.concatenate([2 * each.target, 2 * each.target + 1]),
                float(each.size[0]),
                each.repeat,
            )
            for each in rounds_of("all_reduce", "ring", hosts // 2, float(size))
        )
    if pattern == "all_gather":
        return rounds_of("all_gather", "ring", hosts, float(size))
    if pattern == "all_to_all":
        return rounds_of("all_to_all", "direct", hosts, float(size))
    ranks = np.arange(hosts, dtype=np.int64)
    if pattern == "kv":
        half = hosts // 2
        return (Round.from_messages(ranks[:half], ranks[half:], float(size)),)
    return (Round.from_messages(ranks[1:], np.zeros(hosts - 1, dtype=np.int64), size / hosts),)


def flows_of(moves: Round) -> list[tuple[int, int, int]]:
    rows = zip(moves.source.tolist(), moves.target.tolist(), moves.size.tolist(), strict=True)
    return [(source, target, max(round(size), 1)) for source, target, size in rows]


def flow_level_s(hosts: int, spines: int, rounds: Sequence[Round]) -> float:
    """The product's simulation; a leaf's uplinks are one trunk."""
    link = FabricDimension(
        "switch", hosts, RATE * PAYLOAD, DELAY_US * 1e-6, pod=POD, oversubscription=POD / spines
    )
    fabric = ProductFabric((link,))
    return simulate(fabric, [Job("all", tuple(range(hosts)), tuple(rounds))]).end_s


def closed_s(hosts: int, spines: int, moves: Round) -> float:
    """The busiest host, or the busiest leaf's uplinks, and the latency of the longest way."""
    across = moves.source // POD != moves.target // POD
    ends = [np.bincount(side, moves.size, hosts).max() for side in (moves.source, moves.target)]
    trunk = [
        np.bincount(side[across] // POD, moves.size[across], hosts // POD).max() / spines
        for side in (moves.source, moves.target)
    ]
    return float(max(*ends, *trunk)) / (RATE * PAYLOAD) + HOPS_S


def summed_up(cells: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Errors by fabric, CPU times, and the rule with what it finds."""
    made = [each for each in cells if (each["spines"], each["routing"]) in MADE_ON]
    other = [each for each in cells if each not in made]
    choices = itertools.product([2.0**n for n in range(10, 25)], (2, 4, 8, 15, 99), (False, True))

    def score(rule: tuple[float, int, bool]) -> tuple[float, float]:
        marked_share, false = rates(made, rule)
        return min(marked_share, 0.9) - max(false - 0.2, 0.0), marked_share - false

    rule = max(choices, key=score)
    of_fabric = {
        f"{spines} spines, {routing}": {
            name: round(
                100.0
                * float(
                    np.median(
                        [
                            abs(each[f"{name}_error"])
                            for each in cells
                            if (each["spines"], each["routing"]) == (spines, routing)
                        ]
                    )
                ),
                2,
            )
            for name in ("closed", "flow")
        }
        for spines, routing in FABRICS
    }
    large = [
        abs(each["flow_error"])
        for each in cells
        if each["spines"] == 4 and each["routing"] == "spray" and each["bytes"] >= 4096 * KIB
    ]
    return {
        "cells": len(cells),
        "median_error_pct": of_fabric,
        "sprayed_from_4_mib_worst_pct": round(100.0 * max(large), 2),
        "cpu_s": {
            name: sum(each[f"{name}_cpu_s"] for each in cells) for name in ("packets", "flow")
        },
        "rule": {"message_below": rule[0], "fan_in_from": rule[1], "hashed_spines": rule[2]},
        "made_on": dict(zip(("found", "false_alarms"), rates(made, rule), strict=True)),
        "checked_on": dict(zip(("found", "false_alarms"), rates(other, rule), strict=True)),
        "by_mechanisms": by_mechanisms(made, other),
        "in_product": in_product(cells),
    }


WINDOW = 32 * 4096.0
"""Bytes that a sender has under way before the first answer, as the simulation sets it."""


def mechanisms(cell: dict[str, Any]) -> tuple[float, float, bool]:
    """Why packets may differ from flows: round trips in which windows grow over all of the time;
    the share of the time in which hosts' links are the narrowest and carry data and answers both
    ways; sprayed packets, which come out of order, unless all go to one host, whose link then sets
    the pace.
    """
    hosts, spines, trip_s = cell.get("hosts", HOSTS), cell["spines"], 2 * HOPS_S
    targets = 1
    grows = both = whole = 0.0
    for each in rounds_in(cell["pattern"], cell["bytes"], hosts):
        source, target = each.source, each.target
        sends, takes = (np.bincount(side, minlength=hosts) for side in (source, target))
        across = source // POD != target // POD
        targets = max(targets, len(np.unique(target)))
        up, down = (
            np.bincount(e[across] // POD, minlength=hosts // POD) / spines for e in (source, target)
        )
        shared = np.maximum(sends[source], takes[target]).astype(float)
        trunk = np.maximum(up[source // POD], down[target // POD])
        shared = np.where(across, np.maximum(shared, trunk), shared)
        under_way = np.minimum(each.size, RATE * trip_s / shared)
        seconds = each.repeat * closed_s(hosts, spines, each)
        grows += each.repeat * trip_s * float(np.log2(1.0 + under_way / WINDOW).max())
        ends = max(np.bincount(side, each.size).max() for side in (source, target))
        at_hosts = ends / (RATE * PAYLOAD) + HOPS_S >= 0.9999 * closed_s(hosts, spines, each)
        both += seconds * bool(at_hosts and np.intersect1d(source, target).size)
        whole += seconds
    sprayed = cell["routing"] == "spray" and spines > 1 and targets > 1
    return grows / whole, both / whole, sprayed


COLLECTIVES: dict[str, Collective] = {
    "ring": "all_reduce",
    "all_gather": "all_gather",
    "all_to_all": "all_to_all",
}
"""Patterns of the study that the product's rounds are of."""


def in_product(cells: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What the product finds of the cells whose rounds are its own, which knows no routing: packets
    are taken to be spread where a leaf has several uplinks.
    """
    chosen = [each for each in cells if each["pattern"] in COLLECTIVES]
    marked = []
    for each in chosen:
        hosts, spines = each.get("hosts", HOSTS), each["spines"]
        adapter = Link("tcp", RATE * PAYLOAD)
        topology = Topology.from_device(find_device("H100"), hosts, gpus_per_node=1, inter=adapter)
        uplink = Link("uplink", RATE * PAYLOAD * spines / POD, domain=POD)
        fabric = replace(topology, uplink=uplink)
        op = COLLECTIVES[each["pattern"]]
        effects = packet_effects(op, each["bytes"], fabric, Groups(1, hosts))
        marked.append(effects is not None and bool(effects.reasons))
    marked_share, false = shares(chosen, marked)
    slower = [
        -float(np.log1p(each["flow_error"])) <= SLOWER
        for each, mark in zip(chosen, marked, strict=True)
        if mark
    ]
    held = round(float(np.mean(slower)), 4)
    return {
        "cells": len(chosen),
        "found": marked_share,
        "false_alarms": false,
        "upper_end_holds": held,
    }


def by_mechanisms(
    made: Sequence[dict[str, Any]], other: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Thresholds made on one half of the fabrics with the first cells, and what the rule finds: on
    each half of those, and among the later cells, which had no part in its form or thresholds.
    """
    later = [each for each in (*made, *other) if each.get("later")]
    made, other = ([c for c in cells if not c.get("later")] for cells in (made, other))
    choices = itertools.product([n / 50 for n in range(1, 51)], (0.1, 0.3, 0.5, 0.7, 0.9))

    groups = (made, other, later)
    reasons = {id(cells): [mechanisms(each) for each in cells] for cells in groups}

    def found_by(cells: Sequence[dict[str, Any]], grows: float, both: float) -> tuple[float, float]:
        marked = [a > grows or b > both or spray for a, b, spray in reasons[id(cells)]]
        return shares(cells, marked)

    def score(rule: tuple[float, float]) -> tuple[float, float]:
        found, false = found_by(made, *rule)
        return min(found, 0.9) - max(false - 0.2, 0.0), found - false

    rule = max(choices, key=score)
    return {
        "rule": dict(zip(("windows_above", "both_ways_above"), rule, strict=True)),
        "made_on": dict(zip(("found", "false_alarms"), found_by(made, *rule), strict=True)),
        "checked_on": dict(zip(("found", "false_alarms"), found_by(other, *rule), strict=True)),
        "later": dict(zip(("found", "false_alarms"), found_by(later, *rule), strict=True)),
    }


def rates(cells: Sequence[dict[str, Any]], rule: tuple[float, int, bool]) -> tuple[float, float]:
    """Of cells in which the flow level is off, the share that a rule finds; of the others, the
    share that it names too.
    """
    below, fan_in, hashed = rule
    return shares(
        cells,
        [
            each["message"] < below
            or each["fan_in"] >= fan_in
            or (hashed and each["routing"] == "hash" and each["spines"] > 1)
            for each in cells
        ],
    )


def shares(cells: Sequence[dict[str, Any]], marked: Sequence[bool]) -> tuple[float, float]:
    """:func:`rates` of cells that a rule has marked."""
    named = np.array(marked, dtype=bool)
    off = np.array([abs(each["flow_error"]) > OFF for each in cells], dtype=bool)
    marked_share = float(named[off].mean()) if off.any() else 1.0
    false = float(named[~off].mean()) if (~off).any() else 0.0
    return round(marked_share, 4), round(false, 4)


if __name__ == "__main__":
    main(sys.argv[1:])
