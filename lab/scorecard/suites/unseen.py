"""Boards left out whole, with their twins: what a board gets that nobody has measured.

Kernels and whole models alike are predicted as if no board of their architecture had ever been
measured (:func:`~lab.scorecard.held_out.unknown_architecture`), and stand beside
the same rows predicted with all that is shipped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from lab.scorecard.baselines.neusight import NeuSight
from lab.scorecard.baselines.wave_scaling import WaveScaling
from lab.scorecard.collective_points import predict
from lab.scorecard.collectives import read_collectives
from lab.scorecard.held_out import groups, held_out, unknown_architecture, unmeasured
from lab.scorecard.kernel_suite import scored_part
from lab.scorecard.model_suite import Metric, RunsScore
from lab.scorecard.rows import MeasuredRows, shares_of, subsample
from lab.scorecard.suite import Scored, Suite, predicted
from lab.scorecard.suites import communication, end_to_end, graph, silicon_sample, vllm_steps
from lab.scorecard.suites.ways import LABELS
from lab.scorecard.training import all_tables, by_metric_and_device
from silicast.core.numerics import F64
from silicast.hardware.catalog import find_device

ROWS = 1000
"""Of each kernel's metric and device, about."""
FEW_PARTS = 16
"""Parts of each metric and device that a sample reads."""
LEARNT_FROM = 2000
"""Rows of each other device that baselines learn from."""
KNOWN = "architecture known"
"""The same rows with all that is shipped."""

_Way = Callable[[MeasuredRows], F64]
_Key = tuple[str, str]
_Rows = Mapping[_Key, Sequence[MeasuredRows]]


def _score(data: Path, limit: int | None) -> Iterator[Scored]:
    """Sources of whole models and collectives; then kernels, one metric a family and format."""
    for source in ABOVE_KERNELS:
        yield from unseen(source, data, limit)
    yield from _kernels(data, limit)


def _kernels(data: Path, limit: int | None) -> Iterator[Scored]:
    rows = by_metric_and_device(data)
    wanted = {architecture for group in groups() for architecture in held_out(group)}
    table: dict[str, list[Scored]] = {}
    origins: dict[_Key, WaveScaling] = {}
    laws: dict[_Key, _Way] = {}
    for metric, device in rows:
        if find_device(device).architecture in wanted:
            more = _of_device(rows, metric, device, limit, origins, laws)
            table.setdefault(metric, []).extend(more)
    for metric in sorted(table):
        if table[metric]:
            yield Scored.joined(metric, table[metric])


def _of_device(
    rows: _Rows,
    metric: str,
    device: str,
    limit: int | None,
    origins: dict[_Key, WaveScaling],
    laws: dict[_Key, _Way],
) -> Iterator[Scored]:
    """Rows of one metric and device; none if its family was not fitted without it."""
    count = ROWS if limit is None else max(10, limit // 4)
    parts = rows[metric, device]
    if limit is not None:
        parts = parts[:: math.ceil(len(parts) / FEW_PARTS)]
    parts = shares_of(parts, count, held=True)
    architecture = find_device(device).architecture
    estimates = [predicted(part).estimate_s for part in parts]
    with unmeasured(architecture):
        unknown = [predicted(part) for part in parts]
    if not parts or any(times.measured for times in unknown):
        return
    ways = _none()
    if limit is None:
        ways = _ways(rows, metric, architecture, parts, origins, laws)
    for part, without, item in zip(parts, unknown, estimates, strict=True):
        others = {KNOWN: item, **{name: way(part) for name, way in ways.items()}}
        yield scored_part(metric, part, without, lambda _, x: x.bound_s, LABELS, others)


def _ways(
    rows: _Rows,
    metric: str,
    architecture: str,
    parts: Sequence[MeasuredRows],
    origins: dict[_Key, WaveScaling],
    laws: dict[_Key, _Way],
) -> dict[str, _Way]:
    """Baselines that know the other architectures only; ``origins`` remembers tables of devices,
    ``laws`` those that were learned without an architecture.
    """
    others = [
        key for key in rows if key[0] == metric and find_device(key[1]).architecture != architecture
    ]
    if not others:
        return _none()
    model = parts[0].model
    for key in others:
        if key not in origins:
            origins[key] = WaveScaling(model, rows[key])
    origin = max((origins[key] for key in others), key=lambda origin_: origin_.reach(parts))
    law_key = metric, architecture
    if law_key not in laws:
        taught = [part for key in others for part in shares_of(rows[key], LEARNT_FROM, held=False)]
        laws[law_key] = NeuSight(model, taught).seconds if taught else _unanswered
    return {"NeuSight's law": laws[law_key], "wave scaling": origin.seconds}


def _none() -> dict[str, _Way]:
    return {"NeuSight's law": _unanswered, "wave scaling": _unanswered}


def _unanswered(part: MeasuredRows) -> F64:
    return np.full(len(part), np.nan)


Scores = Callable[[Path, int | None, Callable[[str], bool]], Iterable[Scored]]
"""A data folder, a limit of rows and which boards -> one metric after the other."""


def _runs(score: RunsScore, *metrics: Metric) -> Scores:
    """Some metrics of a suite of whole models, on some boards."""
    chosen = replace(score, metrics=metrics)

    def of_boards(data: Path, limit: int | None, on: Callable[[str], bool]) -> Iterator[Scored]:
        sample = chosen.sample(data, limit)
        yield from chosen.score([case for case in sample if on(case.labels["device"])])

    return of_boards


def _collectives(data: Path, limit: int | None, on: Callable[[str], bool]) -> Iterator[Scored]:
    """The half of the points that nothing is fitted on."""
    rows = read_collectives(data)
    rows = rows.take(~rows.fitted)
    rows = rows.take(subsample(len(rows), limit))
    rows = rows.take(np.array([on(name) for name in rows.device.tolist()]))
    if len(rows):
        yield communication.scored("collective_us", rows, predict(rows))


def _steps(data: Path, limit: int | None, on: Callable[[str], bool]) -> Iterator[Scored]:
    """Single steps of an engine, of one board."""
    for scored in vllm_steps.SUITES[0].score(data, limit):
        mine = np.array([on(name) for name in scored.groups["device"].tolist()])
        if scored.metric == "step_ms" and mine.any():
            yield replace(scored, metric="engine_step_ms").take(np.flatnonzero(mine))


_GRAPHS = {
    "plain_nvidia": graph.PLAIN,
    "mi100": "MI100",
    "parallel_or_compiled": f"{graph.PARALLEL}|{graph.COMPILED}",
}
OF_MODELS: tuple[tuple[Scores, str], ...] = (
    (
        _runs(end_to_end.SCORE, *(Metric(f"static_batch_{n}", n) for n in end_to_end.METRICS)),
        "bf16",
    ),
    *(
        (_runs(graph.SCORE, Metric(f"graph_{name}_ms", "e2e_ms", {"set": sets})), "fp32")
        for name, sets in _GRAPHS.items()
    ),
    (_runs(silicon_sample.SCORE, silicon_sample.CONSISTENT), "bf16"),
    (_steps, "bf16"),
)
"""Sources of whole models, and the format of most of their products."""
ABOVE_KERNELS: tuple[Scores, ...] = (*(score for score, _ in OF_MODELS), _collectives)
"""What is measured above the kernel."""


def unseen(score: Scores, data: Path, limit: int | None) -> Iterator[Scored]:
    """Each architecture's boards as if it were unknown, beside the same rows with all we know."""
    by_metric = {scored.metric: scored for scored in score(data, limit, lambda _: True)}
    table: dict[str, list[Scored]] = {metric: [] for metric in by_metric}
    boards = {name for scored in by_metric.values() for name in scored.groups["device"].tolist()}
    for architecture in sorted({find_device(name).architecture for name in boards}):

        def on(name: str, architecture: str = architecture) -> bool:
            return find_device(name).architecture == architecture

        with unknown_architecture(architecture):
            without = list(score(data, limit, on))
        for left_out in without:
            whole = by_metric[left_out.metric]
            mine = np.array([on(name) for name in whole.groups["device"].tolist()])
            table[left_out.metric].append(_labelled(left_out, architecture, whole.estimate[mine]))
    for metric, parts in table.items():
        yield Scored.joined(metric, parts)


def _labelled(scored: Scored, architecture: str, estimate: F64) -> Scored:
    device = np.array([find_device(name).name for name in scored.groups["device"].tolist()])
    groups = {**scored.groups, "device": device}
    groups["architecture"] = np.full(len(scored), architecture)
    return replace(
        scored, groups=groups, baselines={**scored.baselines, KNOWN: estimate}, noise=None
    )


_OF_RUNS = (end_to_end, graph, silicon_sample, vllm_steps, communication)
TABLES = {*all_tables(), *(name for suite in _OF_RUNS for name in suite.SUITES[0].source)}
SUITES = (Suite("unseen", tuple(sorted(TABLES)), _score, both_tiers=False),)
