"""What serving latencies are off by beyond their steps and the host.

    python -m lab.fit_serving

Runs of the train pairs of suite ``serving`` are predicted with the intervals that errors of steps
give. Launch settings and clients that nobody states move a first token further than a later one,
so each has one log sd of its own, added in quadrature, with which nine of ten runs are inside.
Writes ``catalog/physics/serving.json``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from lab import fitting
from lab.fitter import Body, Fitter
from lab.scorecard.model_suite import answers_of
from lab.scorecard.silicon_runs import PEER, TABLE
from lab.scorecard.suites.serving import BLOCK, answer, cases
from silicast.core.prediction import Z90
from silicast.scenario.answers.serving.simulated import PHYSICS, beyond_steps

LATENCIES = {"ttft": "ttft_mean_ms", "tpot": "tpot_mean_ms"}
INSIDE = 0.9
MOST = 2.0
Rows = dict[str, tuple[fitting.F, fitting.F]]
"""Latency -> log of measured over predicted, and log sd of the prediction without this fit's."""


def spread(away: fitting.F, current: fitting.F) -> float:
    """The least log sd, in quadrature with each row's own, that leaves :data:`INSIDE` inside."""
    needed = np.sqrt(np.maximum((away / Z90) ** 2 - current**2, 0.0))
    return float(min(np.quantile(needed, INSIDE), MOST))


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
            pairs = [
                (case.measured[metric], *each[metric][:3])
                for case, each in zip(chosen, answers, strict=True)
                if each
            ]
            measured, estimate, low, high = np.array(pairs).T
            width = np.log(high / low) / (2.0 * Z90)
            current = np.sqrt(np.maximum(width**2 - shipped[name] ** 2, 0.0))
            rows[name] = np.log(measured / estimate), current
        return rows

    def fit(self, rows: Rows) -> Body:
        constants = {f"{name}_log_sd": spread(*each) for name, each in rows.items()}
        return fitting.body(fitting.rounded(constants), {})

    def scores(self, rows: Rows, body: Body) -> Mapping[str, Any]:
        return {
            name: fitting.percent(-away, "rows", "mape", "median", "bias", "log_sd")
            | {"inside_before_pct": round(100.0 * float(np.mean(np.abs(away) <= Z90 * current)), 1)}
            for name, (away, current) in rows.items()
        }


if __name__ == "__main__":
    ServingErrors().run()
