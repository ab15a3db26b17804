"""Training steps: MosaicML's published runs of small MPT models on one server of 8 devices.

Truth is the step's time that the published tokens a second of one device mean. Constants may be
fitted on some of the models (``python -m lab.fit_further_passes``); the others are scored.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from lab.scorecard.model_suite import Case, Metric, RunsScore
from lab.scorecard.suite import Suite
from lab.scorecard.suites import training
from lab.scorecard.suites.training import TABLE


def is_fitted(model: str) -> bool:
    """Whether constants may be fitted on a model's runs: some of them, by their names."""
    return int(hashlib.sha256(model.encode()).hexdigest(), 16) % 2 == 0


def on_servers(data: Path) -> list[Case]:
    """One case a run in 16 bits on a single server, sorted by its name."""
    return [
        case
        for case in training.cases(data)
        if case.labels["split"] == "fitted" and case.labels["format"] == "bf16"
    ]


def cases(data: Path) -> list[Case]:
    """Those of models on which nothing is fitted."""
    return [_labelled(case) for case in on_servers(data) if not is_fitted(case.scenario["model"])]


def _labelled(case: Case) -> Case:
    labels = {name: case.labels[name] for name in ("device", "recompute")}
    work = case.scenario["workload"]
    labels |= {"model": case.scenario["model"], "sequence": str(work["seq_len"])}
    return replace(case, labels=labels, peers={})


SCORE = RunsScore(cases, [Metric("step_time_s")])
SUITES = (Suite("training-step", (TABLE,), SCORE),)
