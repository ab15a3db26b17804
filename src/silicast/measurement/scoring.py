"""Predictions beside what was measured, and figures of how far they are apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from silicast.core.calibrated import Figures
from silicast.core.calibration import Calibration, load_calibration
from silicast.core.errors import SilicastError
from silicast.core.hashing import content_hash
from silicast.core.prediction import Quantity
from silicast.hardware.device import Device
from silicast.hardware.host import Host
from silicast.measurement.calibrate_hosts import KEPT, NAMES, constant_of
from silicast.measurement.cases import Case
from silicast.measurement.records import HostRow
from silicast.scenario.answer import Answer
from silicast.scenario.answerer import answerer_for
from silicast.scenario.decode import Scenario, decode
from silicast.scenario.resolve import find_any_device

TYPICAL = 0.6744897501960817
"""Median of the absolute value of a normal error, in standard deviations."""
BEYOND_PERCENT = 100.0
"""What a row without a prediction counts as."""
AT_ONCE = 512


@final
@dataclass(frozen=True, slots=True)
class Scored:
    """A case and its prediction; NaN and a reason where there is none.

    Attributes:
        estimate, p05, p95, bound: in the unit of the case; tier: of the prediction.
    """

    case: Case
    estimate: float = math.nan
    p05: float = math.nan
    p95: float = math.nan
    tier: str = ""
    reason: str = ""
    bound: float = 0.0

    @property
    def answered(self) -> bool:
        """Whether there is a prediction."""
        return math.isfinite(self.estimate)

    @property
    def error(self) -> float:
        """Of predicted over measured, less one, percent; a missing prediction is 100 % low."""
        if not self.answered:
            return -BEYOND_PERCENT
        return 100.0 * (self.estimate / self.case.measured - 1.0)

    @property
    def inside(self) -> bool:
        """Whether the measured value is within the 90 % interval."""
        return self.answered and self.p05 <= self.case.measured <= self.p95


def scored(cases: Sequence[Case], calibrations: Sequence[Path] = ()) -> list[Scored]:
    """A prediction of each case, in order, resting on calibration files."""
    names = [str(path.absolute()) for path in calibrations]
    answers: dict[str, Answer | SilicastError] = {}
    asked: dict[str, list[tuple[str, Scenario]]] = {}
    keys = []
    for case in cases:
        if case.host is not None:
            keys.append("")
            continue
        tree: dict[str, Any] = {**case.tree, "calibration": names} if names else {**case.tree}
        key = content_hash([tree, str(case.folder)])
        keys.append(key)
        if key in answers:
            continue
        answers[key] = SilicastError("is not answered yet", kind="internal")
        try:
            scenario = decode(tree, folder=case.folder)
            asked.setdefault(scenario.raw.task, []).append((key, scenario))
        except SilicastError as error:
            answers[key] = error
    for task, rows in asked.items():
        for start in range(0, len(rows), AT_ONCE):
            some = rows[start : start + AT_ONCE]
            found = answerer_for(task).answer_many([scenario for _, scenario in some])
            answers |= {key: each for (key, _), each in zip(some, found, strict=True)}
    known = [load_calibration(path) for path in reversed(calibrations)]
    return [
        _of_host(case, case.host, known) if case.host is not None else _of(case, answers[key])
        for case, key in zip(cases, keys, strict=True)
    ]


def _of(case: Case, answer: Answer | SilicastError) -> Scored:
    if isinstance(answer, SilicastError):
        return Scored(case, reason=str(answer))
    found = answer.metrics.get(case.metric)
    if found is None:
        there = ", ".join(answer.metrics)
        return Scored(case, reason=f"{case.metric} is not predicted; there are {there}")
    bound = answer.bound.get(case.metric, 0.0)
    return Scored(case, found.estimate, found.p05, found.p95, answer.tier, bound=bound)


def _of_host(case: Case, row: HostRow, calibrations: Sequence[Calibration]) -> Scored:
    """By the engine's constants, measured ones in their place."""
    try:
        device = find_any_device(str(case.tree["device"]), case.folder)
        value, log_sd = host_constant(row, device, calibrations)
    except SilicastError as error:
        return Scored(case, reason=str(error))
    found = Quantity.around(value, log_sd)
    tier = "calibrated" if calibrations else "analytic"
    return Scored(case, found.estimate, found.p05, found.p95, tier)


DEFAULT_ENGINE = "torch-eager"


def why_not_scored(case: Case) -> str:
    """Why a measured time says nothing of predictions: it is kept, and none is made of it; "" if it
    does.
    """
    if case.host is None or case.host.quantity not in NAMES:
        return ""
    device = find_any_device(str(case.tree["device"]), case.folder)
    why = KEPT.get(constant_of(case.host, device), "")
    return f"host time {case.host.quantity!r} is not predicted by itself: {why}" if why else ""


def host_constant(
    row: HostRow, device: Device, calibrations: Sequence[Calibration] = ()
) -> tuple[float, float]:
    """What an engine's host is said to take, microseconds, and its log sd.

    Raises:
        SilicastError: nothing predicts such a quantity, or the engine is not known.
    """
    from silicast.composition.engine import find_engine
    from silicast.composition.engine_options import with_options
    from silicast.composition.engine_versions import as_of
    from silicast.composition.measured_host import (
        BETWEEN,
        GRAPH_LAUNCH,
        LAUNCHES,
        with_measured_host,
    )
    from silicast.composition.power_state import PHYSICS
    from silicast.kernels.physics import load_physics

    name = constant_of(row, device) if row.quantity in NAMES else ""
    if not name or name in KEPT:
        raise SilicastError(f"host time {row.quantity!r} is not predicted by itself")
    if name == GRAPH_LAUNCH:
        name = "step_us"
    engine = as_of(find_engine(row.engine or DEFAULT_ENGINE), row.version if row.engine else "")
    if row.quantity == "graph_launch" and engine.kind == "framework":
        engine = with_options(engine, {"cuda_graph": "full"})
    for each in reversed(calibrations):  # the first of them counts, so it goes last
        engine = with_measured_host(engine, each.constants, Host(), None).engine
    host = engine.host
    value = getattr(host, name)
    if name == "round_trip_us" and not value:
        value = load_physics(PHYSICS).default[name]
    if value <= 0.0:
        raise SilicastError(f"{engine.name} has no {name}")
    launch = host.log_sd if host.launch_log_sd is None else host.launch_log_sd
    return value, launch if name in (*LAUNCHES, BETWEEN) else host.log_sd


def figures(rows: Sequence[Scored]) -> Figures:
    """How far predictions are from what was measured; at least one row."""
    errors = np.array([abs(row.error) for row in rows])
    answered = [row.error for row in rows if row.answered]
    return Figures(
        mean=float(errors.mean()),
        median=float(np.median(errors)),
        p90=float(np.percentile(errors, 90)),
        bias=math.fsum(answered) / len(answered) if answered else None,
        coverage=100.0 * sum(row.inside for row in rows) / len(rows),
    )


def noise_percent(cases: Sequence[Case]) -> float | None:
    """How far a repeat lies from the middle of its row, typically, percent; None = nobody knows.

    Rows that say nothing of their repeats are taken with other rows of the same.
    """
    known = [math.expm1(TYPICAL * case.noise) for case in cases if case.noise is not None]
    if known:
        return 100.0 * float(np.median(known))
    alike: dict[tuple[str, str], list[float]] = {}
    for case in cases:
        alike.setdefault((case.identity, case.metric), []).append(math.log(case.measured))
    apart = [
        abs(value - float(np.median(values)))
        for values in alike.values()
        if len(values) > 2
        for value in values
    ]
    return 100.0 * math.expm1(float(np.median(apart))) if apart else None
