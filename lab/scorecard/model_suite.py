"""Suites of whole models: each measured run is a scenario, and its prediction is the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from lab.scorecard.suite import EVIDENCE, Scored
from silicast.core.errors import SilicastError
from silicast.core.numerics import F64
from silicast.core.prediction import Prediction
from silicast.scenario.decode import decode
from silicast.scenario.run import run

NAN = float("nan")
Believed = tuple[float, float, float, float]
"""Estimate, p05, p95 and bound of one metric; NaN = no prediction."""
UNANSWERED: Believed = (NAN, NAN, NAN, NAN)


@final
@dataclass(frozen=True)
class Case:
    """One measured run.

    Attributes:
        scenario: what ran, as ``silicast batch`` takes it.
        measured: metric of the answer -> value.
        labels: group to report by -> label.
        noise: metric -> relative run-to-run noise.
        peers: metric -> name -> another tool's prediction.
    """

    scenario: Mapping[str, Any]
    measured: Mapping[str, float]
    labels: Mapping[str, str]
    noise: Mapping[str, float] = field(default_factory=dict)
    peers: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


def answered(case: Case) -> dict[str, Believed]:
    """Metric -> our prediction, on the evidence that suites are scored with.

    Empty where something of the case has no model yet.
    """
    scenario = dict(case.scenario)
    if not EVIDENCE.get().learned:
        scenario["tier"] = "analytic"
    try:
        reply = run(decode(scenario))
    except SilicastError as error:
        if error.kind != "not_yet":
            raise
        return {}
    return {
        name: (belief.estimate, belief.p05, belief.p95, reply.bound.get(name, NAN))
        for name, belief in reply.metrics.items()
    }


def believed(prediction: Prediction | None, factor: float) -> Believed:
    """A prediction of a time in another unit."""
    if prediction is None:
        return UNANSWERED
    result = prediction.latency_s.times(factor)
    return result.estimate, result.p05, result.p95, prediction.bound_seconds * factor


def score_cases(
    metric: str, cases: Sequence[Case], answers: Sequence[Mapping[str, Believed]], *, of: str = ""
) -> Scored:
    """Those cases that measured a metric.

    Args:
        metric: as reported; of: as measured and answered, the same if left out.
    """
    current = of or metric
    remaining = [
        (case, answer)
        for case, answer in zip(cases, answers, strict=True)
        if np.isfinite(case.measured.get(current, NAN))
    ]
    first = remaining[0][0]

    def column(value: Callable[[Case], float]) -> F64:
        return np.array([value(case) for case, _ in remaining], dtype=np.float64)

    result = np.array([answer.get(current, UNANSWERED) for _, answer in remaining])
    return Scored(
        metric,
        measured=column(lambda case: case.measured[current]),
        estimate=result[:, 0],
        p05=result[:, 1],
        p95=result[:, 2],
        roofline=result[:, 3],
        peers={
            name: column(lambda case, name=name: case.peers[current][name])  # type: ignore[misc]
            for name in first.peers.get(current, ())
        },
        groups={n: np.array([case.labels[n] for case, _ in remaining]) for n in first.labels},
        noise=column(lambda case: case.noise[current]) if current in first.noise else None,
    )
