"""Architectures held out whole: what a device gets if none of its architecture was measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from silicast.core.numerics import F64
from silicast.hardware.catalog import find_device
from silicast.validation.scorecard.baselines.neusight import NeuSight
from silicast.validation.scorecard.baselines.wave_scaling import WaveScaling
from silicast.validation.scorecard.held_out import groups, held_out, unmeasured
from silicast.validation.scorecard.kernel_suite import scored_part
from silicast.validation.scorecard.rows import MeasuredRows, shares_of
from silicast.validation.scorecard.suite import Scored, Suite, predicted
from silicast.validation.scorecard.suites.ways import LABELS
from silicast.validation.scorecard.training import all_tables, by_metric_and_device

ROWS = 1000
"""Of each metric and device, about."""
FEW_PARTS = 16
"""Parts of each metric and device that a sample reads."""
LEARNT_FROM = 2000
"""Rows of each other device that baselines learn from."""

_Way = Callable[[MeasuredRows], F64]
_Key = tuple[str, str]
_Rows = Mapping[_Key, Sequence[MeasuredRows]]


def _score(data: Path, limit: int | None) -> list[Scored]:
    """One metric a family and format."""
    rows = by_metric_and_device(data)
    wanted = {architecture for group in groups() for architecture in held_out(group)}
    found: dict[str, list[Scored]] = {}
    origins: dict[_Key, WaveScaling] = {}
    for metric, device in rows:
        if find_device(device).architecture in wanted:
            more = _of_device(rows, metric, device, limit, origins)
            found.setdefault(metric, []).extend(more)
    return [Scored.joined(metric, found[metric]) for metric in sorted(found) if found[metric]]


def _of_device(
    rows: _Rows, metric: str, device: str, limit: int | None, origins: dict[_Key, WaveScaling]
) -> Iterator[Scored]:
    """Rows of one metric and device; none if its family was not fitted without it."""
    count = ROWS if limit is None else max(10, limit // 4)
    parts = rows[metric, device]
    if limit is not None:
        parts = parts[:: math.ceil(len(parts) / FEW_PARTS)]
    parts = shares_of(parts, count, held=True)
    architecture = find_device(device).architecture
    known = [predicted(part).estimate_s for part in parts]
    with unmeasured(architecture):
        unknown = [predicted(part) for part in parts]
    if not parts or any(times.measured for times in unknown):
        return
    ways = _none() if limit is not None else _ways(rows, metric, architecture, parts, origins)
    for part, without, own in zip(parts, unknown, known, strict=True):
        others = {"architecture known": own, **{name: way(part) for name, way in ways.items()}}
        yield scored_part(metric, part, without, lambda _, x: x.bound_s, LABELS, others)


def _ways(
    rows: _Rows, metric: str, architecture: str, parts: Sequence[MeasuredRows],
    origins: dict[_Key, WaveScaling],
) -> dict[str, _Way]:  # fmt: skip
    """Baselines that know the other architectures only; ``origins`` remembers tables of devices."""
    others = [
        key for key in rows if key[0] == metric and find_device(key[1]).architecture != architecture
    ]
    if not others:
        return _none()
    model = parts[0].model
    taught = [part for key in others for part in shares_of(rows[key], LEARNT_FROM, held=False)]
    for key in others:
        if key not in origins:
            origins[key] = WaveScaling(model, rows[key])
    origin = max((origins[key] for key in others), key=lambda each: each.reach(parts))
    law = NeuSight(model, taught).seconds if taught else _unanswered
    return {"NeuSight's law": law, "wave scaling": origin.seconds}


def _none() -> dict[str, _Way]:
    return {"NeuSight's law": _unanswered, "wave scaling": _unanswered}


def _unanswered(part: MeasuredRows) -> F64:
    return np.full(len(part), np.nan)


SUITES = (Suite("architectures", all_tables(), _score, both_tiers=False),)
