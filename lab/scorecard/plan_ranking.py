"""Whether the best of several plans is found: plans of one model, device and traffic, ranked.

A group is all runs of a model (in one precision) on a device under one traffic and concurrency,
with at least :data:`LEAST` plans or engines. Ranked is throughput a device, as it follows from TTFT
and TPOT. Two metrics, of which the error in percent is read as follows:

``plan_regret``
    measured throughput of the plan that is predicted to be the best, against the best one
``plan_rank``
    Spearman's correlation of predicted and measured order, against 1
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from lab.scorecard.figures import rank_correlation
from lab.scorecard.model_suite import NAN, Believed, Case, score_cases
from lab.scorecard.suite import Scored
from silicast.core.numerics import F64

LEAST = 3
"""Plans of a group."""
REGRET, RANK = "plan_regret", "plan_rank"
LEAST_RANK = 1e-3
"""A correlation at or below 0 counts as this: errors are ratios."""
_SAME = ("device", "model", "traffic")


def ranked(
    chosen: Sequence[Case], answers: Sequence[Mapping[str, Believed]], metric: str
) -> list[Scored]:
    """Regret and rank of every group of cases.

    Args:
        metric: of which more is better.
    """
    cases, scores = [], []
    for group in _groups(chosen, answers):
        first = chosen[group[0][0]]
        measured = np.array([_of_plan(chosen, plan, metric) for plan in group])
        ours = np.array([_believed(chosen, answers, plan, metric) for plan in group])
        theirs = np.array([_of_plan(chosen, plan, metric, "aiconfigurator") for plan in group])
        best = float(measured.max())
        peers = {
            REGRET: {"aiconfigurator": _chosen(theirs, measured)},
            RANK: {"aiconfigurator": _correlation(theirs, measured)},
        }
        labels = {name: first.labels[name] for name in _SAME} | {
            "concurrency": first.labels["concurrency"],
            "plans": f"{min(len(group), 6)}",
        }
        cases.append(Case({}, {REGRET: best, RANK: 1.0}, labels, {}, peers))
        picked, order = _chosen(ours, measured), _correlation(ours, measured)
        scores.append(
            {name: (value, value, value, NAN) for name, value in ((REGRET, picked), (RANK, order))}
        )
    return [score_cases(name, cases, scores) for name in (REGRET, RANK)] if cases else []


def _groups(
    chosen: Sequence[Case], answers: Sequence[Mapping[str, Believed]]
) -> Iterator[list[list[int]]]:
    """Groups of plans; a plan is the rows that repeat it."""
    groups: dict[tuple[str, ...], dict[str, list[int]]] = defaultdict(dict)
    for row, (case, answer) in enumerate(zip(chosen, answers, strict=True)):
        if not answer:
            continue
        work, parallel = case.scenario["workload"], case.scenario["parallel"]
        same = *(case.labels[name] for name in _SAME), str(work["arrival"]["concurrency"])
        plan = f"{case.scenario['engine']['name']} {sorted(parallel.items())}"
        groups[same].setdefault(plan, []).append(row)
    for same in sorted(groups):
        if len(groups[same]) >= LEAST:
            yield [groups[same][plan] for plan in sorted(groups[same])]


def _gpus(case: Case) -> int:
    parallel = case.scenario["parallel"]
    return int(parallel["tp"] * parallel["pp"] * parallel["attention_dp"])


def _of_plan(chosen: Sequence[Case], rows: Sequence[int], metric: str, peer: str = "") -> float:
    """A device's share of what was measured, or of what a peer predicted; the mean of repeats."""
    values = [
        (case.peers[metric][peer] if peer else case.measured[metric]) / _gpus(case)
        for case in (chosen[row] for row in rows)
    ]
    return float(np.mean(values))


def _believed(
    chosen: Sequence[Case],
    answers: Sequence[Mapping[str, Believed]],
    rows: Sequence[int],
    metric: str,
) -> float:
    return float(np.mean([answers[row][metric][0] / _gpus(chosen[row]) for row in rows]))


def _chosen(predicted: F64, measured: F64) -> float:
    """What the plan gives that looks best; NaN if one was not predicted."""
    if not np.isfinite(predicted).all():
        return NAN
    return float(measured[int(np.argmax(predicted))])


def _correlation(predicted: F64, measured: F64) -> float:
    result = rank_correlation(predicted, measured)
    return result if np.isnan(result) else max(result, LEAST_RANK)
