"""Whether the best ratio of prefill to decode is found among measured runs of both apart.

Runs are those of suite ``serving-disaggregated``; nothing is fitted. Silicast's part is the closed
form with which ``silicast recommend`` judges pools: a prompt waits as in a queue of one server, the
requests of all clients are in prefill or in decode. Of runs of one model, device, engine and
traffic (5 or more): throughput a device of the one that looks best, below the best one, and
Spearman's correlation of the order; also, of pairs of runs with the same clients, how
often the one with more is told.

    python benchmarks/disaggregated_ratios.py
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from lab.scorecard.figures import rank_correlation
from lab.scorecard.model_suite import Case
from lab.scorecard.suite import data_folder
from lab.scorecard.suites.serving import METRICS
from lab.scorecard.suites.serving_disaggregated import cases
from silicast.core.errors import SilicastError
from silicast.exploration.serving_plans import PlanCurve, PlanTraffic
from silicast.scenario.decode import decode
from silicast.scenario.resolving.deployments import deployment_of

OUT = Path(__file__).parent / "results" / "disaggregated_ratios.json"
LEAST = 5
STEPS = 50


def gpus_of(case: Case) -> int:
    return sum(
        pool["count"] * pool["parallel"]["tp"] * pool["parallel"]["attention_dp"]
        for pool in case.scenario["pools"].values()
    )


class Curves:
    """Closed forms of pools, each worked out once."""

    def __init__(self) -> None:
        self._known: dict[str, PlanCurve] = {}

    def of(self, case: Case, role: str) -> tuple[PlanCurve, int]:
        """Of one replica of a pool, and how many it has."""
        pool, work = case.scenario["pools"][role], case.scenario["workload"]
        share = (1.0 + work["range_ratio"]) / 2.0
        prompt, output = (max(round(work[n] * share), 2) for n in ("input_len", "output_len"))
        tree = {n: v for n, v in case.scenario.items() if n != "pools"}
        tree |= {name: pool[name] for name in ("device", "parallel")}
        tree |= {"workload": {**work, "arrival": {"kind": "closed", "concurrency": 1}}}
        key = json.dumps({**tree, "workload": [prompt, output]}, sort_keys=True)
        if key not in self._known:
            traffic = PlanTraffic(0.0, prompt, output, work["input_len"], work["output_len"], {})
            self._known[key] = PlanCurve(deployment_of(decode(tree))[0], traffic)
        return self._known[key], pool["count"]


def requests_per_s(case: Case, curves: Curves) -> float:
    """At which requests in prefill and in decode are all clients (Little); nan = not known."""
    work = case.scenario["workload"]
    output = work["output_len"] * (1.0 + work["range_ratio"]) / 2.0
    try:
        (prefill, prefills), (decoder, decoders) = (
            curves.of(case, role) for role in ("prefill", "decode")
        )
        low, high = 0.0, prefills / float(prefill.curve.first_s[0])
        for _ in range(STEPS):
            rate = (low + high) / 2.0
            ttft_s = prefill.prefilling(rate / prefills)
            _, tpot_s = decoder.decoding(rate / decoders)
            inside = rate * (ttft_s + (output - 1.0) * tpot_s)
            low, high = (rate, high) if inside < work["arrival"]["concurrency"] else (low, rate)
    except SilicastError:
        return math.nan
    return low


def figures_of(
    groups: Sequence[Sequence[int]], truth: Sequence[float], told: Sequence[float]
) -> dict[str, Any]:
    """Regret in percent, and the correlation of the order."""
    regret, order = [], []
    for rows in groups:
        real, view = np.array([truth[r] for r in rows]), np.array([told[r] for r in rows])
        regret.append(100.0 * (1.0 - real[int(np.argmax(view))] / real.max()))
        order.append(rank_correlation(real, view))
    return {
        "groups": len(groups),
        "regret_mean_pct": round(float(np.mean(regret)), 2),
        "regret_p90_pct": round(float(np.quantile(regret, 0.9)), 2),
        "spearman_mean": round(float(np.mean(order)), 3),
    }


def pairs_right(
    chosen: Sequence[Case], truth: Sequence[float], told: Sequence[float]
) -> dict[str, int]:
    """Of pairs of runs of one model, device, traffic and clients, with other pools or engines."""
    table: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for row, case in enumerate(chosen):
        labels = [case.labels[n] for n in ("device", "model", "traffic")]
        table[*labels, case.scenario["workload"]["arrival"]["concurrency"]].append(row)
    pairs = [pair for rows in table.values() for pair in combinations(rows, 2)]
    right = sum((truth[a] > truth[b]) == (told[a] > told[b]) for a, b in pairs)
    return {"pairs": len(pairs), "right": right}


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    every, curves = cases(data_folder()), Curves()
    known = [(case, requests_per_s(case, curves)) for case in every]
    chosen = [
        case
        for case, rate in known
        if math.isfinite(rate) and math.isfinite(case.peers[METRICS[2]]["aiconfigurator"])
    ]
    rates = {id(case): rate for case, rate in known}
    truth = [case.measured[METRICS[2]] / gpus_of(case) for case in chosen]
    views: Mapping[str, list[float]] = {
        "silicast, closed form": [rates[id(each)] / gpus_of(each) for each in chosen],
        "aiconfigurator 0.12.0": [
            each.peers[METRICS[2]]["aiconfigurator"] / gpus_of(each) for each in chosen
        ],
    }
    table: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for row, case in enumerate(chosen):
        table[tuple(case.labels[n] for n in ("device", "model", "engine", "traffic"))].append(row)
    groups = [rows for rows in table.values() if len(rows) >= LEAST]
    figures: dict[str, Any] = {
        "rows": len(every),
        "answered": sum(math.isfinite(rate) for _, rate in known),
        "answered_by_both": len(chosen),
    }
    figures |= {
        name: figures_of(groups, truth, view) | pairs_right(chosen, truth, view)
        for name, view in views.items()
    }
    print(json.dumps(figures, indent=1))
    OUT.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
