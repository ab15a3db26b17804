"""Architectures held out whole: what a device gets of whose kind nothing was ever measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar, final

import numpy as np

from silicast.core.numerics import F64
from silicast.hardware.catalog import find_device
from silicast.learning.training import MeasuredKernels
from silicast.validation.baselines.neusight import NeuSight
from silicast.validation.baselines.wave_scaling import WaveScaling
from silicast.validation.held_out import groups, held_out, unmeasured
from silicast.validation.held_rows import (
    Parts,
    Predicted,
    by_device,
    model_of,
    predicted,
    scored,
    some_rows,
)
from silicast.validation.source import sources
from silicast.validation.suite import Scored, Suite, register_suite

ROWS = 1000
"""Of each metric and device, about."""
LEARNT_FROM = 2000
"""Rows of each other device that baselines learn from."""

Say = Callable[[MeasuredKernels], F64]


@register_suite
@final
class Architectures(Suite):
    """The analytic tier with constants that were fitted without the architecture."""

    name: ClassVar[str] = "architectures"
    title: ClassVar[str] = "Kernels of architectures held out whole"
    split: ClassVar[str] = (
        "each architecture with all sister chips is left out of the constants of the kernels that "
        "are scored (refitted without it, src/silicast/validation/held_out); what still holds its "
        "rows: the share of bandwidth that inline ECC takes, tuned tiles of Triton's experts, and "
        "how wide intervals of streaming kernels are. Of the rows that corrections hold out, some "
        "1,000 a device and format. Families that were not refitted (conv2d) are left out. No "
        "correction speaks for an unmeasured architecture, so the learned tier is the analytic "
        "one. 'Architecture known' has constants and corrections with its own rows; NeuSight's law "
        "learns from the same other architectures; wave scaling starts from the other device that "
        "has most of the very rows measured, and answers those only."
    )
    source: ClassVar[tuple[str, ...]] = tuple(
        sorted({table for each in sources().values() for table in each.tables})
    )
    both_tiers: ClassVar[bool] = False
    thresholds: ClassVar[Mapping[str, Mapping[str, float]]] = {}

    def score(self, data: Path, limit: int | None = None) -> list[Scored]:
        """One metric a family and format."""
        rows = by_device(data)
        wanted = {architecture for group in groups() for architecture in held_out(group)}
        found: dict[str, list[Predicted]] = {}
        for metric, device in rows:
            architecture = find_device(device).architecture
            if architecture in wanted:
                found.setdefault(metric, []).extend(_device_rows(rows, metric, device, limit))
        return [scored(metric, found[metric]) for metric in sorted(found) if found[metric]]


def _device_rows(
    rows: Mapping[tuple[str, str], Parts], metric: str, device: str, limit: int | None
) -> Iterator[Predicted]:
    """Rows of one metric and device; none if its family was not fitted without it."""
    count = ROWS if limit is None else max(10, limit // 20)
    parts = some_rows(rows[metric, device], count, held_out=True)
    parts = parts if limit is None else parts[:2]
    architecture = find_device(device).architecture
    known = [predicted(part).estimate_s for part in parts]
    with unmeasured(architecture):
        unknown = [predicted(part) for part in parts]
    if not parts or any(times.measured for times in unknown):
        return
    ways = _ways(rows, metric, architecture, parts) if limit is None else _none(parts)
    for part, without, own in zip(parts, unknown, known, strict=True):
        others = {name: say(part) for name, say in ways.items()}
        yield Predicted(part, without, {"architecture known": own, **others})


def _ways(
    rows: Mapping[tuple[str, str], Parts], metric: str, architecture: str, parts: Parts
) -> dict[str, Say]:
    """Baselines that know the other architectures only."""
    others = [
        found
        for (name, device), found in rows.items()
        if name == metric and find_device(device).architecture != architecture
    ]
    if not others:
        return _none(parts)
    model = model_of(parts[0])
    taught = [part for each in others for part in some_rows(each, LEARNT_FROM, held_out=False)]
    origins = [WaveScaling(model, each) for each in others]
    origin = max(origins, key=lambda each: each.reach(parts))
    law = NeuSight(model, taught).seconds if taught else _unanswered
    return {"NeuSight's law": law, "wave scaling": origin.seconds}


def _none(parts: Parts) -> dict[str, Say]:
    del parts
    return {"NeuSight's law": _unanswered, "wave scaling": _unanswered}


def _unanswered(part: MeasuredKernels) -> F64:
    return np.full(len(part.seconds), np.nan)
