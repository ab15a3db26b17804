"""Suites of whole models: each measured run is a scenario, and its prediction is the answer."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, final

import numpy as np

from lab import reads
from lab.scorecard.rows import subsample
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
        detail: what an answer needs that no scenario states.
    """

    scenario: Mapping[str, Any]
    measured: Mapping[str, float]
    labels: Mapping[str, str]
    noise: Mapping[str, float] = field(default_factory=dict)
    peers: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    detail: Any = None


Answer = Callable[[Case], Mapping[str, Believed]]
"""Metric -> our prediction; empty where something of the case has no model."""


def answered(case: Case) -> dict[str, Believed]:
    """The public answer, on the evidence that suites are scored with."""
    return explained(case)[0]


def explained(case: Case) -> tuple[dict[str, Believed], Mapping[str, Any]]:
    """:func:`answered` and its reasons, both empty where something has no model."""
    try:
        reply = run(decode(on_evidence(case)))
    except SilicastError as error:
        if error.kind != "not_yet":
            raise
        return {}, {}
    metrics = {
        name: (belief.estimate, belief.p05, belief.p95, reply.bound.get(name, NAN))
        for name, belief in reply.metrics.items()
    }
    return metrics, reply.why


def on_evidence(case: Case) -> dict[str, Any]:
    """The scenario of a case in the tier that suites are scored in."""
    return {**case.scenario, **({} if EVIDENCE.get().learned else {"tier": "analytic"})}


def simulated(case: Case, metrics: Sequence[str], *, server: bool = True) -> dict[str, Believed]:
    """Some metrics of served traffic, without what the public answer adds to explain them.

    Args:
        server: False = requests are handed to the engine in its own process.
    """
    from silicast.scenario.answers.serving.answerer import prepared
    from silicast.scenario.answers.serving.simulated import Simulated
    from silicast.serving.simulation.fleet import Fleet

    try:
        served = prepared(decode(on_evidence(case))).served
        spec = (
            served.spec if server else replace(served.spec, front_ns=0, front_token_ns=0, back_ns=0)
        )
        fleet = served.fleet if server else Fleet.from_deployment(served.deployment, spec)
        outcome = Simulated(fleet, served.simulate)
        beliefs, bound = outcome.metrics(served.metrics_of), outcome.bound()
    except SilicastError as error:
        if error.kind == "internal":
            raise
        return {}
    return {
        name: (belief.estimate, belief.p05, belief.p95, bound.get(name, NAN))
        for name in metrics
        for belief in (beliefs[name],)
    }


def believed(prediction: Prediction | None, factor: float) -> Believed:
    """A prediction of a time in another unit."""
    if prediction is None:
        return UNANSWERED
    result = prediction.latency_s.times(factor)
    return result.estimate, result.p05, result.p95, prediction.bound_seconds * factor


@final
@dataclass(frozen=True)
class Metric:
    """A metric that a suite of runs reports.

    Attributes:
        name: as reported.
        of: as measured and answered; the same if left out.
        where: label -> pattern that the whole label matches, of the runs that count.
        answer: how it is predicted, where not as the suite's others are.
        quiet: without the runs' noise.
    """

    name: str
    of: str = ""
    where: Mapping[str, str] = field(default_factory=dict)
    answer: Answer | None = None
    quiet: bool = False

    @property
    def measured(self) -> str:
        """The metric of cases and answers."""
        return self.of or self.name

    def counts(self, case: Case) -> bool:
        """Whether a run measured it and has the wanted labels."""
        return bool(np.isfinite(case.measured.get(self.measured, NAN))) and all(
            re.fullmatch(pattern, case.labels[label]) for label, pattern in self.where.items()
        )


@final
@dataclass(frozen=True)
class RunsScore:
    """What a suite of runs scores.

    Attributes:
        cases: the runs of a data folder.
        metrics: reported, in this order; those that no run has are left out.
        answer: how a run is predicted.
        hidden: labels that select runs and are not reported by.
        block: runs that a process takes at a time; 0 = all in this one.
        more: further rows, from all runs and their answers.
    """

    cases: Callable[[Path], Sequence[Case]]
    metrics: Sequence[Metric]
    answer: Answer = answered
    hidden: Sequence[str] = ()
    block: int = 0
    more: Callable[[Sequence[Case], Sequence[Mapping[str, Believed]]], Iterable[Scored]] | None = (
        None
    )

    def __call__(self, data: Path, limit: int | None) -> Iterator[Scored]:
        """All metrics of all runs, or of so many of them."""
        yield from self.score(self.sample(data, limit))

    def sample(self, data: Path, limit: int | None) -> list[Case]:
        """The runs that count for any metric, or so many of them."""
        every = [case for case in self.cases(data) if self._counts(case)]
        return [every[index] for index in subsample(len(every), limit)]

    def _counts(self, case: Case) -> bool:
        return any(metric.counts(case) for metric in self.metrics)

    def score(self, cases: Sequence[Case]) -> Iterator[Scored]:
        """The metrics of some runs."""
        answers: dict[Answer, dict[int, Mapping[str, Believed]]] = {}
        for metric in self.metrics:
            rows = [row for row, case in enumerate(cases) if metric.counts(case)]
            if not rows:
                continue
            answer = metric.answer or self.answer
            answer_by_row = answers.setdefault(answer, {})
            missing = [row for row in rows if row not in answer_by_row]
            result = answers_of([cases[row] for row in missing], answer, self.block)
            answer_by_row.update(zip(missing, result, strict=True))
            yield self._scored(
                metric, [cases[row] for row in rows], [answer_by_row[row] for row in rows]
            )
        if self.more:
            answer_by_row = answers.get(self.answer, {})
            yield from self.more(
                [cases[row] for row in answer_by_row], list(answer_by_row.values())
            )

    def _scored(
        self, metric: Metric, cases: Sequence[Case], answers: Sequence[Mapping[str, Believed]]
    ) -> Scored:
        scored = score_cases(metric.name, cases, answers, of=metric.measured)
        groups = {name: x for name, x in scored.groups.items() if name not in self.hidden}
        return replace(scored, groups=groups, noise=None if metric.quiet else scored.noise)


def answers_of(
    cases: Sequence[Case], answer: Answer, block: int = 0
) -> list[Mapping[str, Believed]]:
    """Every answer, in order; runs of one scenario that measured the same metrics have one.

    Args:
        block: neighbours that a process takes at a time, which share deployments; 0 = none does.
    """
    keys = [_key(case) for case in cases]
    distinct = dict(zip(keys, cases, strict=True))
    if not block:
        answer_by_case = {key: answer(case) for key, case in distinct.items()}
        return [answer_by_case[key] for key in keys]
    with ProcessPoolExecutor(initializer=EVIDENCE.set, initargs=(EVIDENCE.get(),)) as pool:
        result = list(pool.map(partial(_with_reads, answer), distinct.values(), chunksize=block))
    for _, files in result:
        reads.add(files)
    answer_by_case = dict(zip(distinct, (answer_ for answer_, _ in result), strict=True))
    return [answer_by_case[key] for key in keys]


def _with_reads(answer: Answer, case: Case) -> tuple[Mapping[str, Believed], reads.Reads]:
    return answer(case), reads.of_worker()


def _key(case: Case) -> str:
    measured = sorted(name for name, value in case.measured.items() if np.isfinite(value))
    if case.detail is not None:
        return f"{id(case)}"
    return json.dumps([case.scenario, measured], sort_keys=True)


def score_cases(
    metric: str, cases: Sequence[Case], answers: Sequence[Mapping[str, Believed]], *, of: str = ""
) -> Scored:
    """Those cases that measured a metric.

    Args:
        metric: as reported; of: as measured and answered, the same if left out.
    """
    column_name = of or metric
    measured = [
        (case, answer)
        for case, answer in zip(cases, answers, strict=True)
        if np.isfinite(case.measured.get(column_name, NAN))
    ]
    first = measured[0][0]

    def column(value: Callable[[Case], float]) -> F64:
        return np.array([value(case) for case, _ in measured], dtype=np.float64)

    result = np.array([answer.get(column_name, UNANSWERED) for _, answer in measured])
    return Scored(
        metric,
        measured=column(lambda case: case.measured[column_name]),
        estimate=result[:, 0],
        p05=result[:, 1],
        p95=result[:, 2],
        roofline=result[:, 3],
        peers={
            name: column(lambda case, name=name: case.peers[column_name][name])  # type: ignore[misc]
            for name in first.peers.get(column_name, ())
        },
        groups={n: np.array([case.labels[n] for case, _ in measured]) for n in first.labels},
        noise=column(lambda case: case.noise[column_name]) if column_name in first.noise else None,
    )
