"""How good choices among measured serving runs are, beside those of a peer.

Runs are those of suite ``serving`` (aggregated, sane, each once). Silicast's part is its closed
form alone, the pass with which ``silicast recommend`` judges all plans: no simulation. Questions:

plan        of runs of one model, device, traffic and concurrency (3 plans or more, engines
            included): throughput a device of the plan that looks best, below the best one
front       of runs of one model, device, engine and traffic (6 or more): what the points that look
            best enclose of what all of them enclose, throughput a device against 1 / TPOT
limit       of the same runs: the most throughput a device with TPOT of at most 15, 30, 60 ms:
            whether the limit is met, and the value (0 where it is missed)

    python benchmarks/serving_choices.py [--rows N]   # N: the first rows, for a look
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lab.scorecard.model_suite import Case
from lab.scorecard.suite import data_folder
from lab.scorecard.suites.serving import METRICS, cases
from silicast.composition.passes.closed_loop import loop_curve
from silicast.core.dominance import front
from silicast.core.errors import SilicastError
from silicast.exploration.pareto import hypervolume
from silicast.scenario.decode import decode
from silicast.scenario.resolving.deployments import deployment_of
from silicast.serving.capacity.room import room_of

OUT = Path(__file__).parent / "results" / "serving_choices.json"
LIMITS_MS = (15.0, 30.0, 60.0)
Point = tuple[float, float]
"""Output tokens/s of a device, and TPOT in milliseconds."""


def gpus(case: Case) -> int:
    parallel = case.scenario["parallel"]
    return int(parallel["tp"] * parallel["pp"] * parallel["attention_dp"])


def measured(case: Case) -> Point:
    return case.measured[METRICS[2]] / gpus(case), case.measured[METRICS[1]]


def peer(case: Case) -> Point:
    rate, tpot = (case.peers[name]["aiconfigurator"] for name in (METRICS[2], METRICS[1]))
    return rate / gpus(case), tpot


def closed_form(case: Case) -> Point:
    """NaN where the deployment cannot be predicted."""
    work = case.scenario["workload"]
    share = (1.0 + work["range_ratio"]) / 2.0
    prompt, output = (max(round(work[n] * share), 2) for n in ("input_len", "output_len"))
    clients = int(work["arrival"]["concurrency"])
    try:
        deployment, _ = deployment_of(decode(dict(case.scenario)))
        room = max(room_of(deployment, work["input_len"], work["output_len"]).sequences, 1)
        curve = loop_curve(deployment, [min(clients, room)], prompt, output)
    except SilicastError:
        return math.nan, math.nan
    return float(curve.requests_per_s[0]) * output / gpus(case), float(curve.tpot_s[0]) * 1e3


def groups(chosen: Sequence[Case], by_concurrency: bool) -> Iterator[list[int]]:
    table: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for row, case in enumerate(chosen):
        key: tuple[Any, ...] = tuple(case.labels[n] for n in ("device", "model", "traffic"))
        if by_concurrency:
            key = (*key, case.scenario["workload"]["arrival"]["concurrency"])
        else:
            key = (*key, case.labels["engine"])
        table[key].append(row)
    for key in sorted(table, key=str):
        yield table[key]


def plan_of(case: Case) -> str:
    return f"{case.scenario['engine']['name']} {sorted(case.scenario['parallel'].items())}"


def regrets(
    chosen: Sequence[Case], truth: Sequence[Point], views: Mapping[str, Sequence[Point]]
) -> dict[str, Any]:
    """Regret of each view in percent, over groups that all views answer."""
    table: dict[str, list[float]] = {name: [] for name in views}
    for rows in groups(chosen, by_concurrency=True):
        plans: dict[str, list[int]] = defaultdict(list)
        for row in rows:
            plans[plan_of(chosen[row])].append(row)
        if len(plans) < 3 or not _all_known(rows, views):
            continue
        real = [float(np.mean([truth[r][0] for r in each])) for each in plans.values()]
        for name, view in views.items():
            told = [float(np.mean([view[r][0] for r in each])) for each in plans.values()]
            table[name].append(100.0 * (1.0 - real[int(np.argmax(told))] / max(real)))
    return {
        name: {
            "groups": len(values),
            "mean_pct": round(float(np.mean(values)), 2),
            "p90_pct": round(float(np.quantile(values, 0.9)), 2),
        }
        for name, values in table.items()
    }


def fronts_and_limits(
    chosen: Sequence[Case], truth: Sequence[Point], views: Mapping[str, Sequence[Point]]
) -> tuple[dict[str, Any], dict[str, Any]]:
    shares: dict[str, list[float]] = {name: [] for name in views}
    met: dict[str, list[float]] = {name: [] for name in views}
    value: dict[str, list[float]] = {name: [] for name in views}
    for rows in groups(chosen, by_concurrency=False):
        if len(rows) < 6 or not _all_known(rows, views):
            continue
        real = _to_minimise([truth[row] for row in rows])
        whole = hypervolume(real, np.zeros(2))
        for name, view in views.items():
            picked = front(_to_minimise([view[row] for row in rows]))
            shares[name].append(hypervolume(real[picked], np.zeros(2)) / whole)
            for limit in LIMITS_MS:
                possible = [truth[row][0] for row in rows if truth[row][1] <= limit]
                within = [row for row in rows if view[row][1] <= limit]
                if not possible:
                    continue
                best = max(within, key=lambda row: view[row][0], default=None)
                kept = best is not None and truth[best][1] <= limit
                met[name].append(float(kept))
                value[name].append(
                    truth[best][0] / max(possible) if kept and best is not None else 0.0
                )
    front_figures = {
        name: {"groups": len(v), "mean": round(float(np.mean(v)), 4), "worst": round(min(v), 4)}
        for name, v in shares.items()
    }
    limit_figures = {
        name: {
            "questions": len(met[name]),
            "limit_met_pct": round(100.0 * float(np.mean(met[name])), 1),
            "value": round(float(np.mean(value[name])), 4),
        }
        for name in views
    }
    return front_figures, limit_figures


def _to_minimise(points: Sequence[Point]) -> Any:
    return np.array([(-rate, -1.0 / tpot) for rate, tpot in points])


def _all_known(rows: Sequence[int], views: Mapping[str, Sequence[Point]]) -> bool:
    return all(math.isfinite(x) for view in views.values() for row in rows for x in view[row])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, help="only the first rows, for a look")
    rows = parser.parse_args().rows
    chosen = cases(data_folder())[:rows]
    start = time.process_time()
    ours = [closed_form(case) for case in chosen]
    seconds = time.process_time() - start
    views = {"silicast, closed form": ours, "aiconfigurator 0.12.0": [peer(c) for c in chosen]}
    truth = [measured(case) for case in chosen]
    fronts, limits = fronts_and_limits(chosen, truth, views)
    figures = {
        "rows": len(chosen),
        "not_predicted": sum(math.isnan(rate) for rate, _ in ours),
        "plan_regret": regrets(chosen, truth, views),
        "front_hypervolume": fronts,
        "tpot_limit": limits,
        "cpu_s": round(seconds, 1),
    }
    print(json.dumps(figures, indent=1))
    if rows is None:
        OUT.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
