"""Predictions of measured cases, and statistics of their errors."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from silicast.core.calibrated import Figures, HeldOutRows
from silicast.core.calibration import Calibration, load_calibration, save_calibration
from silicast.core.errors import SilicastError
from silicast.core.hashing import content_hash
from silicast.core.prediction import Quantity
from silicast.hardware.device import Device
from silicast.hardware.host import Host
from silicast.measurement.calibrating.calibrate_kernels import KEPT, NAMES, constant_of
from silicast.measurement.records.cases import Case
from silicast.measurement.records.records import HostRow
from silicast.scenario.answer import Answer
from silicast.scenario.answerer import answerer_for
from silicast.scenario.decode import Scenario, decode
from silicast.scenario.resolve import find_any_device

NORMAL_MEDIAN = 0.6744897501960817
"""Median of the absolute value of a standard normal variable."""
UNANSWERED_PERCENT = 100.0
"""Error of a row without a prediction."""
BATCH = 512
DEFAULT_ENGINE = "torch-eager"


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
        """Relative error of the prediction, percent; -100 without one."""
        if not self.answered:
            return -UNANSWERED_PERCENT
        return 100.0 * (self.estimate / self.case.measured - 1.0)

    @property
    def inside(self) -> bool:
        """Whether the measured value is within the 90 % interval."""
        return self.answered and self.p05 <= self.case.measured <= self.p95


def scored(cases: Sequence[Case], calibrations: Sequence[Path] = ()) -> list[Scored]:
    """A prediction of each case, in order, using calibration files."""
    names = [str(path.absolute()) for path in calibrations]
    answers: dict[str, Answer | SilicastError | None] = {}
    batches: dict[str, list[tuple[str, Scenario]]] = {}
    keys = []
    for case in cases:
        tree: dict[str, Any] = {**case.tree, "calibration": names} if names else {**case.tree}
        key = "" if case.host is not None else content_hash([tree, str(case.folder)])
        keys.append(key)
        if not key or key in answers:
            continue
        answers[key] = None
        try:
            scenario = decode(tree, folder=case.folder)
            batches.setdefault(scenario.raw.task, []).append((key, scenario))
        except SilicastError as error:
            answers[key] = error
    for task, rows in batches.items():
        for start in range(0, len(rows), BATCH):
            batch = rows[start : start + BATCH]
            answer_many = answerer_for(task).answer_many([scenario for _, scenario in batch])
            answers |= {key: each for (key, _), each in zip(batch, answer_many, strict=True)}
    loaded = [load_calibration(path) for path in reversed(calibrations)]
    return [
        _host(case, case.host, loaded) if case.host is not None else _scored(case, answers[key])
        for case, key in zip(cases, keys, strict=True)
    ]


def _scored(case: Case, answer: Answer | SilicastError | None) -> Scored:
    assert answer is not None
    if isinstance(answer, SilicastError):
        return Scored(case, reason=str(answer))
    metric = answer.metrics.get(case.metric)
    if metric is None:
        names = ", ".join(answer.metrics)
        return Scored(case, reason=f"{case.metric} is not predicted, only {names}")
    bound = answer.bound.get(case.metric, 0.0)
    return Scored(case, metric.estimate, metric.p05, metric.p95, answer.tier, bound=bound)


def _host(case: Case, row: HostRow, calibrations: Sequence[Calibration]) -> Scored:
    """A host time by the constants of its engine, those of calibrations first."""
    try:
        device = find_any_device(str(case.tree["device"]), case.folder)
        value, log_sd = host_constant(row, device, calibrations)
    except SilicastError as error:
        return Scored(case, reason=str(error))
    around = Quantity.around(value, log_sd)
    tier = "calibrated" if calibrations else "analytic"
    return Scored(case, around.estimate, around.p05, around.p95, tier)


def why_not_scored(case: Case) -> str:
    """Why nothing predicts a measured host time by itself; "" if something does."""
    if case.host is None or case.host.quantity not in NAMES:
        return ""
    device = find_any_device(str(case.tree["device"]), case.folder)
    why = KEPT.get(constant_of(case.host, device), "")
    return f"host time {case.host.quantity!r} is not predicted by itself: {why}" if why else ""


def host_constant(
    row: HostRow, device: Device, calibrations: Sequence[Calibration] = ()
) -> tuple[float, float]:
    """Predicted time of an engine's host, microseconds, and its log standard deviation.

    Raises:
        SilicastError: nothing predicts such a quantity, or the engine is unknown.
    """
    from silicast.composition.engines.engine import find_engine
    from silicast.composition.engines.engine_options import with_options
    from silicast.composition.engines.engine_versions import as_of
    from silicast.composition.engines.host_time import PHYSICS
    from silicast.composition.engines.measured_host import (
        BETWEEN,
        GRAPH_LAUNCH,
        LAUNCHES,
        with_measured_host,
    )
    from silicast.kernels.physics.constants import load_physics

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
    """Statistics of the errors of at least one row."""
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
    """Typical distance of a repeat from the median of its row, percent; None = unknown.

    Where rows state no spread of their repeats, rows of the same case are compared.
    """
    noises = [math.expm1(NORMAL_MEDIAN * case.noise) for case in cases if case.noise is not None]
    if noises:
        return 100.0 * float(np.median(noises))
    repeats: dict[tuple[str, str], list[float]] = {}
    for case in cases:
        repeats.setdefault((case.identity, case.metric), []).append(math.log(case.measured))
    apart = [
        abs(value - float(np.median(values)))
        for values in repeats.values()
        if len(values) > 2
        for value in values
    ]
    return 100.0 * math.expm1(float(np.median(apart))) if apart else None


@final
@dataclass(frozen=True)
class TrialFolder:
    """A temporary folder for calibrations under trial: a scenario names a calibration's file."""

    folder: Path
    written: list[Path] = field(default_factory=list)

    def file(self, calibration: Calibration) -> Path:
        """Writes a calibration to a new file."""
        path = self.folder / f"{len(self.written)}.json"
        self.written.append(path)
        save_calibration(calibration, path)
        return path


@contextmanager
def trial_folder() -> Iterator[TrialFolder]:
    """A :class:`TrialFolder` that is deleted at the end."""
    with tempfile.TemporaryDirectory(prefix="silicast-") as folder:
        yield TrialFolder(Path(folder))


CROSS_VALIDATED, HELD_OUT = "cross-validated", "held out"
CHOSEN = "chosen and cross-validated on the same rows"
"""For whole models: the fit was chosen among a few by the reported errors themselves."""
FEWEST = 4
"""Least number of different cases in a group for cross-validation."""
MANY = 60
"""Cases from which on two folds are enough."""
SOME_FOLDS, MANY_FOLDS = 5, 2

Row = TypeVar("Row")


def held_out(identities: Sequence[str], share: float, seed: int) -> NDArray[np.bool_]:
    """Which rows are held out: ``share`` of the cases, all repeats of a case together."""
    held_out: NDArray[np.bool_] = _shuffled(identities, seed) < round(share * len(set(identities)))
    return held_out


def _shuffled(identities: Sequence[str], seed: int) -> NDArray[np.int64]:
    """Each row's rank in an order of all cases that depends on ``seed`` and their identities."""
    names = sorted(set(identities), key=lambda name: content_hash([name, seed]))
    position = {name: number for number, name in enumerate(names)}
    return np.array([position[name] for name in identities], dtype=np.int64)


def enough(cases: Sequence[Case]) -> bool:
    """Whether a group has enough different cases for cross-validation."""
    return len({case.identity for case in cases}) >= FEWEST


def cross_validated(
    rows: Sequence[Row],
    cases: Sequence[Case],
    predict: Callable[[Sequence[Row], Sequence[Case]], list[Scored]],
) -> list[Scored]:
    """Predictions of all rows by fits to other rows; none where there are too few.

    Args:
        cases: of the rows; predict: fits the first rows and predicts the cases of the others.
    """
    if not enough(cases):
        return []
    count = SOME_FOLDS if len(cases) < MANY else MANY_FOLDS
    fold = _shuffled([case.identity for case in cases], 0) % count
    table: dict[int, Scored] = {}
    for number in np.unique(fold).tolist():
        out = np.flatnonzero(fold == number).tolist()
        remaining = [row for index, row in enumerate(rows) if fold[index] != number]
        table |= dict(zip(out, predict(remaining, [cases[i] for i in out]), strict=True))
    return [table[index] for index in range(len(rows))]


def summarised(how: str, before: Sequence[Scored], after: Sequence[Scored]) -> list[HeldOutRows]:
    """Figures of each group, on the same rows before and after calibration.

    Args:
        how: one of the texts above.
    """
    groups: dict[tuple[str, str], list[int]] = {}
    for index, row in enumerate(after):
        groups.setdefault((row.case.kind, row.case.group), []).append(index)
    return [
        HeldOutRows(
            kind=kind,
            name=name,
            rows=len(group),
            how=how,
            before=figures([before[i] for i in group]),
            after=figures([after[i] for i in group]),
            noise=noise_percent([after[i].case for i in group]),
        )
        for (kind, name), group in groups.items()
    ]
