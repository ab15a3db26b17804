"""A table of measured kernels into a calibration; rows that cannot be right are named, not used."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np

from silicast import __version__
from silicast.core.calibration import FORMAT, Calibration, Offset, Scope
from silicast.core.errors import SilicastError
from silicast.core.hashing import content_hash
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.kernels.implementation import Implementation
from silicast.learning.calibration_fit import fit_offset
from silicast.learning.correction import learned_times
from silicast.learning.dispatch import implementation_of
from silicast.learning.training import MeasuredKernels
from silicast.measurement.tables import Row, read_table
from silicast.scenario.kernel_case import kernel_case
from silicast.scenario.resolve import find_any_device
from silicast.workload.op import Op, OpBatch, Variant

TIMES = {"latency_us": 1e-6, "latency_ms": 1e-3, "latency_s": 1.0, "seconds": 1.0}
"""Columns of the measured time -> seconds."""
NOTED = (
    "device", "host", "driver", "date", "notes", "id", "run", "repeat", "repeats", "power_w",
    "clock_mhz",
)  # fmt: skip
"""Columns that say something about a row and are no part of its op."""

TOO_FAST = 0.98
"""Below so much of its bound a kernel was timed wrongly, or something else was."""
SCALE = 300.0
"""A measured time so many times off the predicted one, either way, has another unit."""
CONTRADICTS = 2.0
"""Repeats of one op this far apart were not timed under the same conditions."""
STRAY = 10.0
"""A ratio of measured over predicted time so far from the usual one of its table is no kernel's."""
STRAY_AMONG = 8
"""Rows from which on there is a usual ratio."""
SINGULAR = {"are": "is", "have": "has", "repeat": "repeats", "contradict": "contradicts"}
SHOWN = 20
"""Runs of rows that a line names."""


@final
@dataclass(frozen=True)
class Refused:
    """Rows that were not used: reason -> row numbers."""

    rows: dict[str, list[int]] = field(default_factory=dict)

    def add(self, reason: str, number: int) -> None:
        """Notes one row."""
        self.rows.setdefault(reason, []).append(number)

    @property
    def count(self) -> int:
        """Rows in all."""
        return sum(len(numbers) for numbers in self.rows.values())

    def lines(self) -> list[str]:
        """One line a reason, with the count and the first rows."""
        found = []
        for reason, numbers in self.rows.items():
            runs = _runs(sorted(numbers))
            first = ", ".join(runs[:SHOWN]) + (", ..." if len(runs) > SHOWN else "")
            verb = reason.partition(" ")[0]
            if len(numbers) == 1:
                said = f"1 row {SINGULAR.get(verb, verb)}{reason.removeprefix(verb)}"
                found.append(f"{said} (row {first})")
            else:
                found.append(f"{len(numbers)} rows {reason} (rows {first})")
        return found


def _runs(numbers: list[int]) -> list[str]:
    """Row numbers, those in a row as one.

    >>> _runs([3, 5, 6, 7])
    ['3', '5-7']
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]


@final
@dataclass(frozen=True)
class Calibrated:
    """A calibration and how it came about.

    Attributes:
        calibration: what was learned.
        refused: rows that were left out.
        before: (family, dtype) -> mean |log| error of the predictions before.
    """

    calibration: Calibration
    refused: Refused
    before: Mapping[tuple[str, str], float]


@final
@dataclass(frozen=True, slots=True)
class _Read:
    """A row understood."""

    number: int
    op: Op
    seconds: float


def calibrate(path: Path, device_name: str, *, skip_bad: bool = False) -> Calibrated:
    """The calibration of a device from a table of its measured kernels.

    Args:
        path: CSV, JSON Lines or Parquet; the columns of a ``kernel`` table of a scenario, and
            ``latency_us`` (or ``latency_ms``, ``latency_s``).
        device_name: catalog name or path of a device file.
        skip_bad: go on without rows that cannot be right; else they refuse the whole.

    Raises:
        SilicastError: unreadable, or rows that cannot be right, named with their counts.
    """
    device = find_any_device(device_name, Path())
    refused = Refused()
    once = _without_copies(read_table(path), refused)
    read = [one for row in once if (one := _understood(row, device, refused))]
    groups = _groups(read)
    kept: dict[tuple[str, str], list[MeasuredKernels]] = {}
    models: dict[str, Implementation] = {}
    for (family, variant, _), rows in groups.items():
        model = models.setdefault(family, implementation_of(rows[0].op, device))
        part = _checked(model, rows, device, refused)
        if part is not None:
            kept.setdefault((family, variant.dtype), []).append(part)
    if refused.count and not skip_bad:
        raise SilicastError(
            "; ".join(refused.lines()),
            file=str(path),
            field="rows",
            hint="mend them, or leave them out with --skip-bad",
        )
    if not kept:
        raise SilicastError("no row can be used", file=str(path), field="rows")
    offsets: list[Offset] = []
    before: dict[tuple[str, str], float] = {}
    for (family, dtype), parts in sorted(kept.items()):
        offset, error = fit_offset(models[family], parts, device)
        offsets.append(offset)
        before[family, dtype] = error
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    calibration = Calibration(
        format=FORMAT,
        scope=Scope(device.name),
        offsets=offsets,
        created=today,
        source=f"{path.name}: {sum(offset.rows for offset in offsets)} rows",
        version=__version__,
    )
    return Calibrated(calibration.signed, refused, before)


def _without_copies(rows: Sequence[Row], refused: Refused) -> list[Row]:
    """Rows without those that say what another says to the last column.

    A kernel that was timed twice differs in its time, or in a column that numbers the runs.
    """
    seen: set[str] = set()
    kept: list[Row] = []
    for row in rows:
        key = content_hash(sorted((name, str(value)) for name, value in row.values.items()))
        if key in seen:
            refused.add("are copies of other rows: number repeats in a column `run`", row.number)
        else:
            seen.add(key)
            kept.append(row)
    return kept


def _understood(row: Row, device: Device, refused: Refused) -> _Read | None:
    """The op and time of a row, None if it is refused."""
    values = {k: v for k, v in row.values.items() if k not in NOTED and k not in TIMES}
    stated = [name for name in TIMES if name in row.values]
    if len(stated) != 1:
        refused.add("have no latency_us" if not stated else "have several times", row.number)
        return None
    time: Any = row.values[stated[0]]
    number = isinstance(time, (int, float)) and not isinstance(time, bool)
    if not number or not math.isfinite(time) or time <= 0:
        refused.add(f"have no time above 0 in {stated[0]}", row.number)
        return None
    other = row.values.get("device")
    if other is not None and not _same(str(other), device):
        refused.add(f"are of another device ({str(other)[:40]})", row.number)
        return None
    try:
        op = kernel_case(values).op
        implementation_of(op, device)
    except SilicastError as error:
        refused.add(f"are not understood: {error}", row.number)
        return None
    return _Read(row.number, op, float(time) * TIMES[stated[0]])


def _same(name: str, device: Device) -> bool:
    try:
        return find_device(name).name == device.name
    except SilicastError:
        return False


def _groups(read: Sequence[_Read]) -> dict[tuple[str, Variant, tuple[str, ...]], list[_Read]]:
    """Rows that one call of a model answers."""
    found: dict[tuple[str, Variant, tuple[str, ...]], list[_Read]] = {}
    for row in read:
        names = tuple(name for name, _ in row.op.dims)
        found.setdefault((row.op.family, row.op.variant, names), []).append(row)
    return found


def _checked(
    model: Implementation, rows: Sequence[_Read], device: Device, refused: Refused
) -> MeasuredKernels | None:
    """The rows that can be right, as measured kernels."""
    times = learned_times(model, OpBatch.of([row.op for row in rows]), device)
    ratios = np.array([row.seconds for row in rows]) / times.estimate_s
    sane = ratios[(ratios > 1.0 / SCALE) & (ratios < SCALE)]
    middle = float(np.median(sane)) if len(sane) >= STRAY_AMONG else 0.0
    usual: dict[Op, list[float]] = {}
    for row, ratio in zip(rows, ratios.tolist(), strict=True):
        if 1.0 / SCALE < ratio < SCALE:
            usual.setdefault(row.op, []).append(row.seconds)
    kept: list[_Read] = []
    for row, bound, ratio in zip(rows, times.bound_s.tolist(), ratios.tolist(), strict=True):
        repeats = usual.get(row.op, [row.seconds])
        if not 1.0 / SCALE < ratio < SCALE:
            refused.add(f"are {SCALE:g} times off or more: another unit?", row.number)
        elif row.seconds < TOO_FAST * bound:
            refused.add(
                "are faster than the device can be at its largest clock: was the result awaited?",
                row.number,
            )
        elif max(repeats) > CONTRADICTS * min(repeats):
            refused.add("repeat an op with times two or more times apart", row.number)
        elif middle and not 1.0 / STRAY < ratio / middle < STRAY:
            refused.add(
                f"contradict the others: {STRAY:g} times off what those say, or more", row.number
            )
        else:
            kept.append(row)
    if not kept:
        return None
    seconds = np.array([row.seconds for row in kept])
    batch = OpBatch.of([row.op for row in kept])
    return MeasuredKernels(batch, device.name, seconds, np.zeros(len(kept), dtype=np.bool_))
