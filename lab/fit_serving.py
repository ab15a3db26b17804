"""What serving latencies are off by beyond their steps and the host.

    python -m lab.fit_serving

Runs of the train pairs of suite ``serving`` are predicted with the intervals that errors of steps
give. Launch settings and clients that nobody states move a first token further than a later one,
so each has one log sd of its own, added in quadrature. They are the same for all runs of a campaign
(one release of an engine, one model, one device), so that runs of one tell little of the next: nine
of ten runs of every campaign are inside.

The rows are few engines, devices and models, and choices were made on them: less is inside of
others. How much less is measured by leaving them out. Each engine, each device and each model is
left out in turn: nine of ten of their rows are at most so many times as far off as the intervals of
the others say, with equal weight for the three ways. All errors count as so many times longer.
Card: what is inside of each that is left out. Writes ``catalog/physics/serving.json``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lab import fitting
from lab.fitter import Body, Fitter
from lab.scorecard.model_suite import Case, answers_of
from lab.scorecard.silicon_runs import PEER, TABLE
from lab.scorecard.suites.serving import BLOCK, answer, cases
from silicast.core.prediction import Z90
from silicast.scenario.answers.serving.simulated import PHYSICS, beyond_steps

LATENCIES = {"ttft": "ttft_mean_ms", "tpot": "tpot_mean_ms"}
INSIDE = 0.9
MOST = 2.0
LEAST = 20
"""Runs that make a campaign count."""
GROUPS = ("engine", "device", "model")
"""What is left out in turn."""
Names = NDArray[np.str_]
Rows = dict[str, tuple[fitting.F, fitting.F, Names]]
"""Latency -> log of measured over predicted, log sd of the prediction without this fit's, and the
engine, device, model and campaign of each, shape (rows, 4)."""


def spread(away: fitting.F, current: fitting.F, campaigns: Names) -> float:
    """The least log sd, in quadrature with each row's own, that leaves :data:`INSIDE` of the rows
    of every campaign inside.

    >>> away = Z90 * np.array([0.1] * 20 + [0.3] * 20)
    >>> names = np.array(["one"] * 20 + ["other"] * 20)
    >>> round(spread(away, 0.0 * away, names), 3), round(spread(away, 0.1 + 0.0 * away, names), 3)
    (0.3, 0.283)
    """
    needed = np.sqrt(np.maximum((away / Z90) ** 2 - current**2, 0.0))
    names, counts = np.unique(campaigns, return_counts=True)
    each = [np.quantile(needed[campaigns == name], INSIDE) for name in names[counts >= LEAST]]
    return float(min(max(each, default=np.quantile(needed, INSIDE)), MOST))


def inside(away: fitting.F, current: fitting.F, log_sd: float) -> float:
    """Share of rows inside their intervals, percent."""
    return round(100.0 * float(np.mean(np.abs(away) <= Z90 * np.hypot(current, log_sd))), 1)


def left_out(
    away: fitting.F, current: fitting.F, names: Names
) -> dict[str, tuple[fitting.F, float]]:
    """Engine, device or model -> which rows are its, and the log sd that the others give."""
    groups = {}
    for column, kind in enumerate(GROUPS):
        for name in np.unique(names[:, column]):
            rows = names[:, column] == name
            if rows.sum() >= LEAST and not rows.all():
                log_sd = spread(away[~rows], current[~rows], names[~rows, -1])
                groups[f"{kind} {name}"] = rows, log_sd
    return groups


def longer(away: fitting.F, current: fitting.F, names: Names) -> float:
    """How many times as far off rows of groups that are left out are as the intervals of the others
    say, at :data:`INSIDE` of the rows; 1 where they are no further off.

    >>> away = Z90 * np.repeat([0.1, 0.2], 50)
    >>> names = np.array([["one", "here", "small", "a"]] * 50 + [["two", "there", "big", "b"]] * 50)
    >>> round(longer(away, 0.0 * away, names), 2)
    2.0
    """
    ratios, weights = [], []
    groups = left_out(away, current, names)
    for kind in GROUPS:
        mine = [group for name, group in groups.items() if name.startswith(f"{kind} ")]
        count = sum(int(rows.sum()) for rows, _ in mine)
        for rows, log_sd in mine:
            ratios.append(np.abs(away[rows]) / (Z90 * np.hypot(current[rows], log_sd)))
            weights.append(np.full(int(rows.sum()), 1.0 / count))
    if not ratios:
        return 1.0
    every, shares = np.concatenate(ratios), np.concatenate(weights)
    order = np.argsort(every)
    running = np.cumsum(shares[order]) / shares.sum()
    return max(float(every[order][np.searchsorted(running, INSIDE)]), 1.0)


class ServingErrors(Fitter[Rows]):
    """Errors of serving latencies beyond their steps."""

    group = PHYSICS
    data = (TABLE, PEER)
    split = "runs of the train pairs of suite serving: a third of the pairs of model and device"
    notes: ClassVar[str] = (
        "choices were made on the same rows, of two models: those of other models are off by more"
    )

    def rows(self, data: Path) -> Rows:
        chosen = [case for case in cases(data) if case.labels["pair"] == "train"]
        answers, shipped = answers_of(chosen, answer, BLOCK), beyond_steps()
        rows: Rows = {}
        for name, metric in LATENCIES.items():
            known = [(c, a) for c, a in zip(chosen, answers, strict=True) if a]
            pairs = [(case.measured[metric], *each[metric][:3]) for case, each in known]
            measured, estimate, low, high = np.array(pairs).T
            width = np.log(high / low) / (2.0 * Z90)
            current = np.sqrt(np.maximum(width**2 - shipped[name] ** 2, 0.0))
            names = np.array([_names(case) for case, _ in known])
            rows[name] = np.log(measured / estimate), current, names
        return rows

    def fit(self, rows: Rows) -> Body:
        constants = {
            f"{name}_log_sd": spread(longer(away, current, names) * away, current, names[:, -1])
            for name, (away, current, names) in rows.items()
        }
        return fitting.body(fitting.rounded(constants), {})

    def scores(self, rows: Rows, body: Body) -> Mapping[str, Any]:
        scores = {}
        for name, (away, current, names) in rows.items():
            times = longer(away, current, names)
            scores[name] = (
                fitting.percent(-away, "rows", "mape", "median", "bias", "log_sd")
                | {"inside_before_pct": inside(away, current, 0.0), "longer": round(times, 3)}
                | {
                    f"{group}_left_out_pct": inside(away[its], current[its], log_sd)
                    for group, (its, log_sd) in left_out(away, current, names).items()
                }
            )
        return scores


def _names(case: Case) -> tuple[str, str, str, str]:
    """Engine, device, model and campaign of a run."""
    labels, engine = case.labels, case.scenario["engine"]
    campaign = (engine["name"], engine["version"], labels["model"], labels["device"])
    model = labels["model"].partition(" ")[0].removesuffix("-NVFP4")
    return labels["engine"], labels["device"], model, " ".join(map(str, campaign))


if __name__ == "__main__":
    ServingErrors().run()
