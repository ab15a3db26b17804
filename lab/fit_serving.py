"""What serving latencies are off by beyond their steps and the host.

    python -m lab.fit_serving

Runs of the train pairs of suite ``serving`` are predicted with the intervals that errors of steps
give. Launch settings and clients that nobody states move a first token further than a later one,
so each has one log sd of its own, added in quadrature. They are the same for all runs of a campaign
(one release of an engine, one model, one device), so that runs of one tell little of the next, and
who asks has a campaign of his own: nine of ten runs of a campaign drawn at random are inside, where
each campaign of five runs and more counts alike.

Runs whose clients waited behind a limit that is not recorded are left out: by Little's law fewer
than half of them ran at once, where nothing that is known keeps any waiting. Card: what is inside
of an engine, a device and a model that are left out. Writes ``catalog/physics/serving.json``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lab import fitting
from lab.fitter import Body, Fitter
from lab.scorecard.model_suite import Believed, Case, answers_of
from lab.scorecard.silicon_runs import PEER, TABLE
from lab.scorecard.suites.serving import BLOCK, answer, cases
from silicast.core.prediction import Z90
from silicast.scenario.answers.serving.simulated import PHYSICS, beyond_steps

LATENCIES = {"ttft": "ttft_mean_ms", "tpot": "tpot_mean_ms"}
INSIDE = 0.9
LEAST = 5
"""Runs that make a campaign count."""
FEW, MOST_CLIENTS = 0.5, 0.9
"""Clients that ran at once, measured and predicted, of a run behind an unknown limit; shares."""
GROUPS = ("engine", "device", "model")
"""What is left out in turn."""
Names = NDArray[np.str_]
Answers = Mapping[str, Believed]
Rows = dict[str, tuple[fitting.F, fitting.F, Names]]
"""Latency -> log of measured over predicted, log sd of the prediction without this fit's, and the
engine, device, model and campaign of each, shape (rows, 4)."""


def spread(away: fitting.F, own_sd: fitting.F, campaigns: Names) -> float:
    """The least log sd, in quadrature with each row's own, that leaves :data:`INSIDE` of the runs
    of a campaign drawn at random inside; of all runs where no campaign has :data:`LEAST`.

    >>> away = Z90 * np.array([0.1] * 95 + [0.3] * 5)
    >>> names = np.array(["one"] * 95 + ["other"] * 5)
    >>> round(spread(away, 0.0 * away, names), 3), round(spread(away, 0.1 + 0.0 * away, names), 3)
    (0.3, 0.283)
    >>> round(spread(away, 0.0 * away, np.array(["one"] * 100)), 3)
    0.1
    """
    needed = np.sqrt(np.maximum((away / Z90) ** 2 - own_sd**2, 0.0))
    _, which, counts = np.unique(campaigns, return_inverse=True, return_counts=True)
    weights = np.where(counts >= LEAST, 1.0 / counts, 0.0)[which]
    weights = weights if weights.any() else np.ones(len(away))
    order = np.argsort(needed)
    running = np.cumsum(weights[order]) / weights.sum()
    return float(needed[order][np.searchsorted(running, INSIDE - 1e-9)])


def waited(case: Case, answer: Answers) -> bool:
    """Whether clients waited behind a limit that nothing tells of: of N clients R run, where a
    first token waits for (N - R) / R answers.
    """
    tokens = float(np.mean(case.scenario["workload"]["output_len"])) - 1.0
    ran = []
    for ttft, tpot in (
        (case.measured["ttft_mean_ms"], case.measured["tpot_mean_ms"]),
        (answer["ttft_mean_ms"][0], answer["tpot_mean_ms"][0]),
    ):
        ran.append(tokens * tpot / (ttft + tokens * tpot))
    return ran[0] < FEW and ran[1] >= MOST_CLIENTS


def inside(away: fitting.F, own_sd: fitting.F, log_sd: float) -> float:
    """Share of rows inside their intervals, percent."""
    return round(100.0 * float(np.mean(np.abs(away) <= Z90 * np.hypot(own_sd, log_sd))), 1)


def left_out(
    away: fitting.F, own_sd: fitting.F, names: Names
) -> dict[str, tuple[fitting.F, float]]:
    """Engine, device or model -> which rows are its, and the log sd that the others give."""
    groups = {}
    for column, kind in enumerate(GROUPS):
        for name in np.unique(names[:, column]):
            rows = names[:, column] == name
            if rows.sum() >= LEAST and not rows.all():
                log_sd = spread(away[~rows], own_sd[~rows], names[~rows, -1])
                groups[f"{kind} {name}"] = rows, log_sd
    return groups


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
            answered = [
                (case, beliefs)
                for case, beliefs in zip(chosen, answers, strict=True)
                if beliefs and not waited(case, beliefs)
            ]
            pairs = [(case.measured[metric], *beliefs[metric][:3]) for case, beliefs in answered]
            measured, estimate, low, high = np.array(pairs).T
            width = np.log(high / low) / (2.0 * Z90)
            own_sd = np.sqrt(np.maximum(width**2 - shipped[name] ** 2, 0.0))
            names = np.array([_names(case) for case, _ in answered])
            rows[name] = np.log(measured / estimate), own_sd, names
        return rows

    def fit(self, rows: Rows) -> Body:
        constants = {
            f"{name}_log_sd": spread(away, own_sd, names[:, -1])
            for name, (away, own_sd, names) in rows.items()
        }
        return fitting.body(fitting.rounded(constants), {})

    def scores(self, rows: Rows, body: Body) -> Mapping[str, Any]:
        scores = {}
        for name, (away, own_sd, names) in rows.items():
            scores[name] = (
                fitting.percent(-away, "rows", "mape", "median", "bias", "log_sd")
                | {"inside_before_pct": inside(away, own_sd, 0.0)}
                | {"inside_pct": inside(away, own_sd, body["default"][f"{name}_log_sd"])}
                | {
                    f"{group}_left_out_pct": inside(away[its], own_sd[its], log_sd)
                    for group, (its, log_sd) in left_out(away, own_sd, names).items()
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
