"""Predictions beside a user's own measurements: every row counts, but those that were fitted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from silicast.core.calibrated import Figures
from silicast.core.calibration import load_calibration
from silicast.core.errors import SilicastError
from silicast.core.hashing import content_hash
from silicast.learning.calibration_fit import op_hash
from silicast.measurement.calibrating.scoring import (
    Scored,
    figures,
    noise_percent,
    scored,
    why_not_scored,
)
from silicast.measurement.records.cases import (
    COLLECTIVES,
    KERNELS,
    KINDS,
    MODELS,
    NOTED,
    TIMES,
    US_PER_S,
    Case,
    collective_case,
    fitted_on,
    host_case,
    run_cases,
)
from silicast.measurement.records.dataset import Dataset, DatasetRow, TableKernel, read_dataset
from silicast.measurement.records.records import CollectiveRow
from silicast.scenario.kernels.kernel_case import kernel_case

WORST = 10
"""Rows that are listed."""
OWN = ("latency_us", "device")
"""Fields that a row itself must have, whatever ran."""


@final
@dataclass(frozen=True)
class GroupScore:
    """Rows of a family and format, a collective, a host time, or a metric of an engine's runs.

    Attributes:
        unanswered: rows without a prediction; they count as 100 % off.
        tiers: of the predictions -> rows.
        before: without the calibration, where one was given.
        noise: how far a repeat lies from the middle of its row, percent; None = not known.
    """

    kind: str
    name: str
    rows: int
    unanswered: int
    tiers: Mapping[str, int]
    after: Figures
    before: Figures | None
    noise: float | None


@final
@dataclass(frozen=True)
class MeasuredScore:
    """All rows of some files.

    Attributes:
        fitted: rows that are not scored, because the calibration was fitted on what ran there.
        unscored: why rows of quantities without a prediction are not scored -> how many.
        worst: those farthest off; reasons: why rows have no prediction -> how many.
        said: what was left out of the files.
    """

    groups: list[GroupScore]
    fitted: int
    unscored: Mapping[str, int]
    worst: list[Scored]
    reasons: Mapping[str, int]
    said: list[str]


def score_measured(
    paths: Sequence[Path],
    calibrations: Sequence[Path] = (),
    device: str = "",
    *,
    keep_flagged: bool = False,
) -> MeasuredScore:
    """Scores predictions against the rows of files.

    Args:
        paths: as for a calibration.
        calibrations: what predictions rest on; rows that one was fitted on are not scored.
        device: of rows that name none.
        keep_flagged: rows too that were timed while the machine was busy or throttled.

    Raises:
        SilicastError: unreadable; a row without a time or a device; or nothing is left to score.
    """
    dataset = read_dataset(paths, keep_flagged=keep_flagged)
    cases, unread = cases_of(dataset, device)
    fitted_cases = fitted_on(load_calibration(path) for path in calibrations)
    fresh = [case for case in cases if case.identity not in fitted_cases[case.kind]]
    fitted = len(cases) - len(fresh)
    silent = [why_not_scored(case) for case in fresh]
    fresh = [case for case, why in zip(fresh, silent, strict=True) if not why]
    unscored = Counter(why for why in silent if why)
    if not fresh and not unread:
        reason = f"all {fitted} rows were fitted" if fitted else "it holds no row that is scored"
        reason = "; ".join([reason, *unscored, *dataset.lines()])
        raise SilicastError(
            f"nothing to score: {reason}",
            file=str(paths[0]),
            field="measured",
            hint="measure others, or calibrate with --holdout 0.5",
        )
    after = [*scored(fresh, calibrations), *unread]
    before = [*scored(fresh), *unread] if calibrations else []
    return MeasuredScore(
        groups=_groups(after, before),
        fitted=fitted,
        unscored=unscored,
        worst=sorted((row for row in after if row.answered), key=lambda row: -abs(row.error))[
            :WORST
        ],
        reasons=Counter(row.reason for row in after if not row.answered),
        said=[*dataset.lines(), *_overruled(dataset, device)],
    )


def _overruled(dataset: Dataset, device: str) -> list[str]:
    """That sessions name another device than the user: theirs counts."""
    devices = sorted({session.device for session in dataset.sessions if session.device})
    if not device or not devices or devices == [device]:
        return []
    return [f"scored as measured on {', '.join(devices)}, as the file says, not as on {device}"]


def _groups(after: Sequence[Scored], before: Sequence[Scored]) -> list[GroupScore]:
    positions: dict[tuple[str, str], list[int]] = {}
    for index, row in enumerate(after):
        positions.setdefault((row.case.kind, row.case.group), []).append(index)
    group_scores = []
    for (kind, name), rows in sorted(
        positions.items(), key=lambda item: (KINDS.index(item[0][0]), item[0])
    ):
        group = [after[i] for i in rows]
        group_scores.append(
            GroupScore(
                kind=kind,
                name=name,
                rows=len(group),
                unanswered=sum(not row.answered for row in group),
                tiers=dict(sorted(Counter(row.tier for row in group if row.answered).items())),
                after=figures(group),
                before=figures([before[i] for i in rows]) if before else None,
                noise=noise_percent([row.case for row in group]),
            )
        )
    return group_scores


def cases_of(dataset: Dataset, device: str) -> tuple[list[Case], list[Scored]]:
    """Rows that a scenario can say, and those that none can: they have no prediction."""
    cases: list[Case] = []
    unread: list[Scored] = []
    for dataset_row, made in _makers(dataset, device):
        try:
            cases += made()
        except SilicastError as error:
            if error.field in OWN:
                raise
            unread.append(Scored(_unsaid(dataset_row), reason=str(error)))
    return cases, unread


def _makers(dataset: Dataset, device: str) -> Iterator[tuple[DatasetRow[Any], Any]]:
    """Each row, and what makes its cases."""
    for kernel in dataset.kernels:
        yield (
            kernel,
            lambda dataset_row=kernel: [_kernel(dataset_row, _device(dataset_row, device))],
        )
    for collective in dataset.collectives:
        yield (
            collective,
            lambda dataset_row=collective: [
                collective_case(dataset_row, _device(dataset_row, device))
            ],
        )
    for host in dataset.hosts:
        yield host, lambda dataset_row=host: [host_case(dataset_row, _device(dataset_row, device))]
    for run in dataset.runs:
        yield (
            run,
            lambda dataset_row=run: run_cases(
                dataset_row, _device(dataset_row, device, needed=False)
            ),
        )


def _device(dataset_row: DatasetRow[Any], given: str, *, needed: bool = True) -> str:
    called, folder = dataset_row.device
    if called.endswith(".toml"):
        return str(folder / called)
    if not (called or given) and needed:
        raise SilicastError(
            f"row {dataset_row.number} names no device",
            field="device",
            file=str(dataset_row.file),
            hint="--device with a catalog name or the path of a device file",
        )
    return called or given


def _kernel(dataset_row: DatasetRow[TableKernel], device: str) -> Case:
    values = dataset_row.row.values
    columns = {k: v for k, v in values.items() if k not in NOTED and k not in TIMES}
    op = kernel_case(columns).op
    return Case(
        KERNELS, f"{op.family} {op.variant.dtype}",
        {"task": "kernel", "device": device, "kernel": columns}, Path(), "latency_us",
        _microseconds(dataset_row), dataset_row.row.noise, op_hash(op), dataset_row.number,
        dataset_row.file,
    )  # fmt: skip


def _microseconds(dataset_row: DatasetRow[TableKernel]) -> float:
    time_columns = [name for name in TIMES if name in dataset_row.row.values]
    time: Any = dataset_row.row.values[time_columns[0]] if len(time_columns) == 1 else None
    number = isinstance(time, (int, float)) and not isinstance(time, bool)
    if not number or not 0.0 < time < float("inf"):
        raise SilicastError(
            f"row {dataset_row.number} has no time above 0",
            file=str(dataset_row.file),
            field="latency_us",
        )
    return float(time) * TIMES[time_columns[0]] * US_PER_S


def _unsaid(dataset_row: DatasetRow[Any]) -> Case:
    """A case of a row that no scenario says; its time does not matter."""
    row = dataset_row.row
    if isinstance(row, TableKernel):
        kind, table, name = KERNELS, row.values, row.values.get("op", "kernel")
    elif isinstance(row, CollectiveRow):
        kind, table, name = COLLECTIVES, row.collective, row.collective.get("op", "collective")
    else:
        kind, table, name = MODELS, row.scenario, row.scenario.get("task", "run")
    identity = content_hash([str(dataset_row.file), kind, dataset_row.number])
    return Case(
        kind, f"{str(name)[:40]} (not understood)", {"workload": table}, Path(), "", 1.0, None,
        identity, dataset_row.number, dataset_row.file,
    )  # fmt: skip
