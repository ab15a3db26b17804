"""How good choices among measured serving runs are, beside those of a peer.

Runs are those of suite ``serving`` (aggregated, sane, each once). Silicast's part is its closed
form, the pass with which ``silicast recommend`` judges all plans. It chooses twice: by estimates,
as the peer must, and by beliefs, as ``silicast results`` does with ``--front`` and ``--best``: a
front of all points that belong to it with 5 % at least, and under a limit the point that is worth
most in the mean of what is believed. Under a limit a third choice is made as ``recommend`` makes
it, which simulates the best of its closed form: the points that lead are simulated, until all of
the first five were (``recommend``: 20). Nothing is fitted here; engine constants rest on a third of
the pairs of model and device, so that figures of the others alone ("held out") stand beside.
Questions:

plan        of runs of one model, device, traffic and concurrency (3 plans or more, engines
            included): throughput a device of the plan that looks best, below the best one
front       of runs of one model, device, engine and traffic (6 or more): what the points that look
            best enclose of what all of them enclose, throughput a device against 1 / TPOT
limit       of the same runs: the most throughput a device with TPOT of at most 15, 30, 60 ms:
            whether the limit is met, and the value (0 where it is missed); by beliefs also the
            confidence that was stated, beside the band in which 95 % of such counts lie: of
            independent choices, and of choices whose errors have common causes. A question is
            counted only where a measured point meets its limit, so that the confidence given that
            any point does ("where possible") is what the counts are to be held against

    python benchmarks/serving_choices.py [--rows N]   # N: the first rows, for a look

All rows take about four CPU minutes, most of them for simulations.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lab.scorecard.model_suite import Case
from lab.scorecard.suite import data_folder
from lab.scorecard.suites.serving import METRICS, answer, cases
from silicast.composition.passes.closed_loop import closed_loop
from silicast.core.dominance import front
from silicast.core.errors import SilicastError
from silicast.core.prediction import Z90, Quantity
from silicast.exploration.belonging import (
    UncertainPoint,
    belonging,
    drawn_metrics,
    expected_worth,
    meeting,
)
from silicast.exploration.pareto import hypervolume
from silicast.runner.stored_front import LEAST
from silicast.scenario.decode import decode
from silicast.scenario.resolving.deployments import deployment_of
from silicast.serving.capacity.room import room_of

OUT = Path(__file__).parent / "results" / "serving_choices.json"
LIMITS_MS = (15.0, 30.0, 60.0)
RATE, TPOT = "output_tokens_per_s_per_gpu", "tpot_p50_ms"
BELIEFS = "silicast, beliefs"
SIMULATIONS = "silicast, beliefs, leaders simulated"
LEADERS = 5
"""Points that are simulated before one of them is taken."""
Z95 = 1.96
LAW = (0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
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


def closed_form(case: Case) -> UncertainPoint | None:
    """None where the deployment cannot be predicted."""
    work = case.scenario["workload"]
    share = (1.0 + work["range_ratio"]) / 2.0
    prompt, output = (max(round(work[n] * share), 2) for n in ("input_len", "output_len"))
    clients = int(work["arrival"]["concurrency"])
    try:
        deployment, _ = deployment_of(decode(dict(case.scenario)))
        room = max(room_of(deployment, work["input_len"], work["output_len"]).sequences, 1)
        loop = closed_loop(deployment, min(clients, room), prompt, output)
    except SilicastError:
        return None
    sd = loop.decode.error.log_sd
    where = f"{case.labels['device']} {case.labels['engine']}"
    shared = {f"{where} {n}": value / sd for n, value in loop.decode.error.loadings.items()}
    rate, tpot = loop.tokens_per_s, loop.tpot_s
    beliefs = {
        RATE: Quantity(*(each / gpus(case) for each in (rate.estimate, rate.p05, rate.p95))),
        TPOT: Quantity(*(each * 1e3 for each in (tpot.estimate, tpot.p05, tpot.p95))),
    }
    return UncertainPoint(beliefs, shared)


def simulated(case: Case, closed: UncertainPoint) -> UncertainPoint:
    """The point as a simulation of its traffic has it; its common causes are those of the closed
    form.
    """
    table = answer(case)
    if not table:
        return closed
    rate, tpot = (Quantity(*table[name][:3]) for name in (METRICS[2], METRICS[1]))
    return UncertainPoint({RATE: rate.times(1.0 / gpus(case)), TPOT: tpot}, closed.shared)


def with_leaders(
    chosen: Sequence[Case],
    closed: Sequence[UncertainPoint],
    limit: float,
    simulations: dict[int, UncertainPoint],
) -> list[UncertainPoint]:
    """Points of a question, those simulated that lead as long as one of them was not.

    Args:
        known: simulated points by the identity of their case; is added to.
    """
    points, done = list(closed), set[int]()
    while True:
        worth = expected_worth(points, RATE, meeting(points, {TPOT: limit}))
        lead = [int(i) for i in np.argsort(-worth, kind="stable")[:LEADERS] if worth[i] > 0.0]
        new = set(lead) - done
        if not new:
            return points
        for row in new:
            case = chosen[row]
            if id(case) not in simulations:
                simulations[id(case)] = simulated(case, closed[row])
            points[row] = simulations[id(case)]
        done |= new


def estimated(point: UncertainPoint | None) -> Point:
    if point is None:
        return math.nan, math.nan
    return point.beliefs[RATE].estimate, point.beliefs[TPOT].estimate


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
    chosen: Sequence[Case],
    truth: Sequence[Point],
    views: Mapping[str, Sequence[Point]],
    beliefs: Sequence[UncertainPoint | None],
    known: dict[int, UncertainPoint],
) -> tuple[dict[str, Any], dict[str, Any]]:
    names = (*views, BELIEFS)
    shares: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    kept: dict[str, list[tuple[float, float]]] = {name: [] for name in (*names, SIMULATIONS)}
    choices_made: dict[str, list[_StatedChoice]] = {name: [] for name in (BELIEFS, SIMULATIONS)}
    for rows in groups(chosen, by_concurrency=False):
        points = [each for row in rows if (each := beliefs[row]) is not None]
        if len(rows) < 6 or len(points) < len(rows) or not _all_known(rows, views):
            continue
        real = _to_minimise([truth[row] for row in rows])
        whole = hypervolume(real, np.zeros(2))
        picked: dict[str, Any] = {
            name: front(_to_minimise([view[row] for row in rows])) for name, view in views.items()
        }
        picked[BELIEFS] = np.flatnonzero(belonging(points, [RATE, TPOT]) >= LEAST)
        for name, which in picked.items():
            enclosed = hypervolume(real[which], np.zeros(2)) / whole
            shares[name].append((enclosed, len(real[which]) / len(rows)))
        for limit in LIMITS_MS:
            possible = [truth[row][0] for row in rows if truth[row][1] <= limit]
            if not possible:
                continue
            takes: dict[str, int | None] = {}
            for name, view in views.items():
                within = [row for row in rows if view[row][1] <= limit]
                rates = {row: view[row][0] for row in within}
                takes[name] = max(rates, key=rates.__getitem__, default=None)
            led = with_leaders([chosen[row] for row in rows], points, limit, known)
            for name, these in ((BELIEFS, points), (SIMULATIONS, led)):
                meets = meeting(these, {TPOT: limit})
                best = int(np.argmax(expected_worth(these, RATE, meets)))
                takes[name] = rows[best]
                can = float(meets.any(axis=1).mean())
                sure = float(meets[:, best].mean())
                chance = sure / can if can else 0.0
                choices_made[name].append(_StatedChoice(these[best], limit, sure, chance))
            for name, row in takes.items():
                met = row is not None and truth[row][1] <= limit
                value = truth[row][0] / max(possible) if met and row is not None else 0.0
                kept[name].append((float(met), value))
    front_figures = {
        name: {
            "groups": len(v),
            "mean": round(float(np.mean([each[0] for each in v])), 4),
            "worst": round(min((each[0] for each in v), default=math.nan), 4),
            "share_of_points_chosen": round(float(np.mean([each[1] for each in v])), 3),
        }
        for name, v in shares.items()
    }
    limit_figures: dict[str, Any] = {
        name: {
            "questions": len(v),
            "limit_met_pct": round(100.0 * float(np.mean([each[0] for each in v])), 1),
            "value": round(float(np.mean([each[1] for each in v])), 4),
        }
        for name, v in kept.items()
    }
    for name, choices in choices_made.items():
        limit_figures[name] |= _stated(choices, sum(each[0] for each in kept[name]))
    return front_figures, limit_figures


@dataclass(frozen=True)
class _StatedChoice:
    """A point that is worth most under a limit, and how surely it keeps the limit.

    Attributes:
        confidence: as the tool states it; where_possible: given that any point of its group does,
            as in all questions that are counted here.
    """

    point: UncertainPoint
    limit: float
    confidence: float
    where_possible: float


def _stated(choices: Sequence[_StatedChoice], met: float) -> dict[str, Any]:
    """What was stated, and the counts of limits met that such confidences allow."""
    together = drawn_metrics([each.point for each in choices], [TPOT])[:, :, 0]
    counts = (together <= np.array([each.limit for each in choices])).sum(axis=1)
    percent = 100.0 / max(len(choices), 1)
    figures: dict[str, Any] = {}
    for name in ("confidence", "where_possible"):
        sure = np.array([getattr(each, name) for each in choices])
        expected, sd = float(sure.sum()), math.sqrt((sure * (1.0 - sure)).sum())
        band = expected - Z95 * sd, min(expected + Z95 * sd, len(choices))
        figures[f"{name}_pct"] = round(percent * expected, 1)
        figures[f"{name}_band_95_pct_binomial"] = _band(band, met, percent)
    band = float(np.quantile(counts, 0.025)), float(np.quantile(counts, 0.975))
    return figures | {"confidence_band_95_pct_common_causes": _band(band, met, percent)}


def _band(ends: tuple[float, float], met: float, percent: float) -> dict[str, Any]:
    return {
        "from": round(percent * ends[0], 1),
        "to": round(percent * ends[1], 1),
        "within": bool(ends[0] <= met <= ends[1]),
    }


def error_law(truth: Sequence[Point], beliefs: Sequence[UncertainPoint | None]) -> dict[str, Any]:
    """By how many of its standard deviations measured TPOT is above the prediction: quantiles, to
    lay beside those of a normal law.
    """
    deviations = []
    for (_, tpot_ms), point in zip(truth, beliefs, strict=True):
        if point is not None:
            belief = point.beliefs[TPOT]
            error = math.log(tpot_ms / belief.estimate)
            end = belief.p95 if error > 0.0 else belief.p05
            deviations.append(Z90 * error / abs(math.log(end / belief.estimate)))
    values = np.array(deviations)
    table = {f"p{100 * q:g}": round(float(np.quantile(values, q)), 2) for q in LAW}
    return {"rows": len(values)} | table


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
    beliefs = [closed_form(case) for case in chosen]
    seconds = time.process_time() - start
    figures: dict[str, Any] = {
        "rows": len(chosen),
        "not_predicted": sum(each is None for each in beliefs),
        "cpu_s": round(seconds, 1),
    }
    known: dict[int, UncertainPoint] = {}
    held = [row for row, case in enumerate(chosen) if case.labels["pair"] == "held out"]
    for part, which in (("", range(len(chosen))), ("held_out_", held)):
        of_part, beliefs_of = [chosen[row] for row in which], [beliefs[row] for row in which]
        views = {
            "silicast, estimates": [estimated(each) for each in beliefs_of],
            "aiconfigurator 0.12.0": [peer(case) for case in of_part],
        }
        truth = [measured(case) for case in of_part]
        fronts, limits = fronts_and_limits(of_part, truth, views, beliefs_of, known)
        figures |= {
            f"{part}plan_regret": regrets(of_part, truth, views),
            f"{part}front_hypervolume": fronts,
            f"{part}tpot_limit": limits,
        }
    figures["simulated_rows"] = len(known)
    fitted = [row for row in range(len(chosen)) if row not in set(held)]
    figures["tpot_error_law"] = {
        name: error_law([measured(chosen[row]) for row in these], [beliefs[row] for row in these])
        for name, these in (("of pairs that constants rest on", fitted), ("held out", held))
    }
    print(json.dumps(figures, indent=1))
    if rows is None:
        OUT.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
