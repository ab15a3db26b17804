"""Kernel rows of a calibration: which can be right, and the offsets fitted to them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np

from silicast.composition.engines.engine import engine_index
from silicast.composition.errors.error_correlation import constants
from silicast.composition.step.machine import IN_LINE
from silicast.core.calibrated import HostConstant
from silicast.core.calibration import Offset
from silicast.core.errors import SilicastError
from silicast.core.hashing import content_hash
from silicast.core.prediction import Z90
from silicast.hardware.device import Device
from silicast.kernels.implementation import Implementation
from silicast.learning.calibration_fit import MeasuredKernels, fit_offset, op_hash
from silicast.learning.correction import learned_times
from silicast.learning.dispatch import implementation_of
from silicast.measurement.records.cases import KERNELS, NOTED, TIMES, US_PER_S, Case, host_case
from silicast.measurement.records.dataset import (
    Dataset,
    DatasetRow,
    RejectedRows,
    TableKernel,
    noise_of,
)
from silicast.measurement.records.records import HostRow
from silicast.scenario.kernels.kernel_case import kernel_case
from silicast.workload.graphs.op import Op, OpBatch, Variant

TOO_FAST = 0.98
"""Least credible time as a share of the bound."""
SCALE = 300.0
"""A measured time this many times off the prediction, either way, has another unit."""
CONTRADICTS = 2.0
"""Repeats this far apart were not timed under the same conditions."""
STRAY = 10.0
"""A ratio of measured over predicted time this far from the median ratio is an outlier."""
STRAY_AMONG = 8
"""Rows from which on a median ratio exists."""

WRONG_UNIT = f"are {SCALE:g} times off or more: another unit?"
OUTLIER = f"contradict the others: {STRAY:g} times off their median, or more"

Group = tuple[str, str]
"""Family and format."""


@final
@dataclass(frozen=True, slots=True)
class MeasuredKernel:
    """A row whose op and time are known.

    Attributes:
        stray: too far off to be fitted although its repeats agree: it is scored only.
    """

    op: Op
    seconds: float
    case: Case
    stray: bool = False


def checked_kernels(
    dataset: Dataset, device: Device, named: str, rejected: RejectedRows
) -> dict[Group, list[MeasuredKernel]]:
    """Credible rows by family and format; the others are added to ``rejected``.

    Rows rejected as outliers whose own repeats agree are returned too, as strays.

    Args:
        named: the device as scenarios name it.
    """
    understood = []
    for each in _without_copies(dataset.kernels, rejected):
        try:
            understood.append(_measured(each, device, named))
        except SilicastError as error:
            rejected.add(error.message, each.number, each.file)
    rows_by_group: dict[Group, list[MeasuredKernel]] = {}
    for rows in _batches(understood):
        op = rows[0].op
        good = _credible(implementation_of(op, device), rows, device, rejected)
        if good:
            rows_by_group.setdefault((op.family, op.variant.dtype), []).extend(good)
    return dict(sorted(rows_by_group.items()))


def fit_kernels(
    groups: Mapping[Group, Sequence[MeasuredKernel]], device: Device
) -> tuple[list[Offset], dict[Group, float]]:
    """Offsets fitted to all rows but strays, and the mean |log| error before, by group."""
    offsets: list[Offset] = []
    before: dict[Group, float] = {}
    for group, every in groups.items():
        rows = [row for row in every if not row.stray]
        if not rows:
            continue
        model = implementation_of(rows[0].op, device)
        parts = [
            MeasuredKernels(
                OpBatch.from_ops([row.op for row in part]),
                device.name,
                np.array([row.seconds for row in part]),
                np.zeros(len(part), dtype=np.bool_),
            )
            for part in _batches(rows)
        ]
        offset, before[group] = fit_offset(model, parts, device)
        offsets.append(offset)
    return offsets, before


def _without_copies(
    rows: Sequence[DatasetRow[TableKernel]], rejected: RejectedRows
) -> list[DatasetRow[TableKernel]]:
    """Rows without exact copies; repeats differ in their time or in a column that numbers them."""
    unique: dict[str, DatasetRow[TableKernel]] = {}
    for each in rows:
        key = content_hash(sorted((name, str(value)) for name, value in each.row.values.items()))
        if unique.setdefault(key, each) is not each:
            rejected.add(
                "are copies of other rows: number repeats in a column `run`", each.number, each.file
            )
    return list(unique.values())


def _measured(each: DatasetRow[TableKernel], device: Device, named: str) -> MeasuredKernel:
    """The op and time of a row.

    Raises:
        SilicastError: the reason, as :class:`RejectedRows` takes it.
    """
    values = each.row.values
    time_columns = [name for name in TIMES if name in values]
    if len(time_columns) != 1:
        raise SilicastError("have several times" if time_columns else "have no latency_us")
    time: Any = values[time_columns[0]]
    number = isinstance(time, (int, float)) and not isinstance(time, bool)
    if not number or not math.isfinite(time) or time <= 0:
        raise SilicastError(f"have no time above 0 in {time_columns[0]}")
    if not each.is_measured_on(device):
        raise SilicastError(f"are of another device ({each.device[0][:40]})")
    columns = {k: v for k, v in values.items() if k not in NOTED and k not in TIMES}
    try:
        op = kernel_case(columns).op
        implementation_of(op, device)
    except SilicastError as error:
        raise SilicastError(f"are not understood: {error}") from None
    seconds = float(time) * TIMES[time_columns[0]]
    case = Case(
        KERNELS, f"{op.family} {op.variant.dtype}",
        {"task": "kernel", "device": named, "kernel": columns}, Path(), "latency_us",
        seconds * US_PER_S, each.row.noise, op_hash(op), each.number, each.file,
    )  # fmt: skip
    return MeasuredKernel(op, seconds, case)


def _batches(rows: Sequence[MeasuredKernel]) -> list[list[MeasuredKernel]]:
    """Rows that one call of a kernel model predicts."""
    table: dict[tuple[str, Variant, tuple[str, ...]], list[MeasuredKernel]] = {}
    for row in rows:
        names = tuple(name for name, _ in row.op.dims)
        table.setdefault((row.op.family, row.op.variant, names), []).append(row)
    return list(table.values())


def _credible(
    model: Implementation, rows: Sequence[MeasuredKernel], device: Device, rejected: RejectedRows
) -> list[MeasuredKernel]:
    """Rows of one batch that can be right, and strays."""
    times = learned_times(model, OpBatch.from_ops([row.op for row in rows]), device)
    ratios = np.array([row.seconds for row in rows]) / times.estimate_s
    plausible = (ratios > 1.0 / SCALE) & (ratios < SCALE)
    count = int(plausible.sum())
    middle = float(np.median(ratios[plausible])) if count >= STRAY_AMONG else 0.0
    usual: dict[Op, list[float]] = {}
    every: dict[Op, list[float]] = {}
    for row, ok in zip(rows, plausible.tolist(), strict=True):
        every.setdefault(row.op, []).append(row.seconds)
        if ok:
            usual.setdefault(row.op, []).append(row.seconds)
    credible: list[MeasuredKernel] = []
    for row, bound, ratio, ok in zip(
        rows, times.bound_s.tolist(), ratios.tolist(), plausible.tolist(), strict=True
    ):
        repeats = usual.get(row.op, [row.seconds])
        outlier = False
        if not ok:
            reason, outlier = WRONG_UNIT, True
        elif row.seconds < TOO_FAST * bound:
            reason = (
                "are faster than the device can be at its largest clock: was the result awaited?"
            )
        elif max(repeats) > CONTRADICTS * min(repeats):
            reason = "repeat an op with times two or more times apart"
        elif middle and not 1.0 / STRAY < ratio / middle < STRAY:
            reason, outlier = OUTLIER, True
        else:
            credible.append(row)
            continue
        rejected.add(reason, row.case.number, row.case.file)
        if outlier and row.seconds >= TOO_FAST * bound and _repeatable(row, every[row.op]):
            credible.append(replace(row, stray=True))
    return credible


def _repeatable(row: MeasuredKernel, seconds: Sequence[float]) -> bool:
    """Whether a row's own repeats and all other rows of its op agree.

    Args:
        seconds: of all rows of the op.
    """
    if max(seconds) > CONTRADICTS * min(seconds):
        return False
    if row.case.noise is None:
        return len(seconds) > 1
    return math.exp(2.0 * Z90 * row.case.noise) <= CONTRADICTS


NAMES = {
    "dispatch": "dispatch_us",
    "launch": "launch_us",
    "graph_launch": "graph_launch_us",
    "round_trip": "round_trip_us",
    "sync": "sync_us",
    "step": "step_us",
    "request": "request_us",
    "between": "between_us",
}
"""Quantity of a row -> constant."""
OF_ANY_ENGINE = ("round_trip_us", "launch_us", "graph_launch_us", "sync_us")
"""Constants of the machine, independent of the framework that measured them."""
CALL = "call_us"
"""Time of an eager operation that runs in the thread that calls it: part of its kernel."""
KEPT = {
    CALL: "a call on this device is part of its kernel",
    "launch_us": "measured kernels include it",
    "sync_us": "no prediction waits for an idle device",
}
"""Constants that are stored although no prediction uses them directly -> why."""
SLOWEST_US = 1e6
"""Host times of a second or more are errors."""


def checked_hosts(
    rows: Sequence[DatasetRow[HostRow]], named: str, rejected: RejectedRows
) -> list[Case]:
    """Cases of the credible rows; the others are added to ``rejected``.

    Args:
        named: the device as scenarios name it.
    """
    cases = []
    for each in rows:
        if each.row.quantity not in NAMES:
            reason = f"are host times of no known quantity ({each.row.quantity[:40]})"
        elif each.row.value_us >= SLOWEST_US:
            reason = "are host times of a second or more: another unit?"
        else:
            cases.append(host_case(each, named))
            continue
        rejected.add(reason, each.number, each.file)
    return cases


def fit_hosts(cases: Sequence[Case], device: Device) -> list[HostConstant]:
    """One constant for each quantity and engine: the median of its rows.

    Its spread combines that between rows and that of their repeats, and is at least the spread that
    a measured host leaves in a step.
    """
    groups: dict[tuple[str, str], list[HostRow]] = {}
    for row in (case.host for case in cases if case.host is not None):
        name = constant_of(row, device)
        engine = "" if name in OF_ANY_ENGINE else _canonical(row.engine)
        groups.setdefault((name, engine), []).append(row)
    return [_constant(*key, item) for key, item in sorted(groups.items())]


def constant_of(row: HostRow, device: Device) -> str:
    """The constant that a row measured."""
    if row.quantity == "dispatch" and device.execution_model in IN_LINE:
        return CALL
    return NAMES[row.quantity]


def _canonical(engine: str) -> str:
    """An engine's name in the catalog; its own name if the catalog has none."""
    engines = engine_index()
    return engines.canonical(engine) if engine in engines else engine


def _constant(name: str, engine: str, rows: Sequence[HostRow]) -> HostConstant:
    logs = np.log([row.value_us for row in rows])
    repeats = [noise for row in rows if (noise := noise_of(row.spread)) is not None]
    within = float(np.median(repeats)) if repeats else 0.0
    between = float(logs.std(ddof=1)) if len(rows) > 1 else 0.0
    versions = {row.version for row in rows if row.version}
    return HostConstant(
        constant=name,
        value_us=math.exp(float(np.median(logs))),
        log_sd=min(5.0, max(constants()["measured.host_log_sd"], math.hypot(within, between))),
        rows=len(rows),
        engine=engine,
        version=versions.pop() if len(versions) == 1 else "",
        states=_state_ranges(rows),
    )


def _state_ranges(rows: Sequence[HostRow]) -> dict[str, tuple[float, float]]:
    """Smallest and largest value of each numeric state of the rows."""
    table: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.states.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                table.setdefault(name, []).append(float(value))
    return {name: (min(values), max(values)) for name, values in sorted(table.items())}
