"""Measured kernels into what a calibration says of them; rows that cannot be right are named."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np

from silicast.core.calibration import Offset
from silicast.core.errors import SilicastError
from silicast.core.hashing import content_hash
from silicast.core.prediction import Z90
from silicast.hardware.device import Device
from silicast.kernels.implementation import Implementation
from silicast.learning.calibration_fit import fit_offset
from silicast.learning.correction import learned_times
from silicast.learning.dispatch import implementation_of
from silicast.learning.training import MeasuredKernels
from silicast.measurement.given import KernelGiven, Numbered
from silicast.measurement.refused import Refused
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

Group = tuple[str, str]
"""Family and format."""


@final
@dataclass(frozen=True, slots=True)
class MeasuredKernel:
    """A row understood.

    Attributes:
        columns: of its ``kernel`` table; noise: log sd of its repeats, None = not known.
        stray: it is too far off to be fitted, yet its own repeats agree: it is scored.
    """

    number: int
    file: Path
    op: Op
    seconds: float
    columns: Mapping[str, Any]
    noise: float | None = None
    stray: bool = False


def understood_kernels(
    rows: Sequence[Numbered[KernelGiven]], device: Device, refused: Refused
) -> list[MeasuredKernel]:
    """Rows that say what ran and how long, without copies; the others are ``refused``."""
    once = _without_copies(rows, refused)
    return [one for row in once if (one := _understood(row, device, refused))]


def checked_kernels(
    read: Sequence[MeasuredKernel], device: Device, refused: Refused
) -> dict[Group, list[MeasuredKernel]]:
    """By family and format the rows that can be right; the others are ``refused``.

    Those that are refused for being far off, but whose own repeats agree, are there as strays.
    """
    kept: dict[Group, list[MeasuredKernel]] = {}
    for rows in _alike(read):
        op = rows[0].op
        good = _checked(implementation_of(op, device), rows, device, refused)
        if good:
            kept.setdefault((op.family, op.variant.dtype), []).extend(good)
    return dict(sorted(kept.items()))


def fit_kernels(
    groups: Mapping[Group, Sequence[MeasuredKernel]], device: Device
) -> tuple[list[Offset], dict[Group, float]]:
    """What rows but strays change, and the mean |log| error before, by family and format."""
    offsets: list[Offset] = []
    before: dict[Group, float] = {}
    for group, every in groups.items():
        rows = [row for row in every if not row.stray]
        if not rows:
            continue
        model = implementation_of(rows[0].op, device)
        parts = [
            MeasuredKernels(
                OpBatch.of([row.op for row in part]),
                device.name,
                np.array([row.seconds for row in part]),
                np.zeros(len(part), dtype=np.bool_),
            )
            for part in _alike(rows)
        ]
        offset, before[group] = fit_offset(model, parts, device)
        offsets.append(offset)
    return offsets, before


def _without_copies(
    rows: Sequence[Numbered[KernelGiven]], refused: Refused
) -> list[Numbered[KernelGiven]]:
    """Rows without those that say what another says to the last column.

    A kernel that was timed twice differs in its time, or in a column that numbers the runs.
    """
    seen: set[str] = set()
    kept: list[Numbered[KernelGiven]] = []
    for each in rows:
        values = each.row.values
        key = content_hash(sorted((name, str(value)) for name, value in values.items()))
        if key in seen:
            refused.add(
                "are copies of other rows: number repeats in a column `run`", each.number, each.file
            )
        else:
            seen.add(key)
            kept.append(each)
    return kept


def _understood(
    each: Numbered[KernelGiven], device: Device, refused: Refused
) -> MeasuredKernel | None:
    """The op and time of a row, None if it is refused."""
    given = each.row.values
    values = {k: v for k, v in given.items() if k not in NOTED and k not in TIMES}

    def refuse(reason: str) -> None:
        refused.add(reason, each.number, each.file)

    stated = [name for name in TIMES if name in given]
    if len(stated) != 1:
        refuse("have no latency_us" if not stated else "have several times")
        return None
    time: Any = given[stated[0]]
    number = isinstance(time, (int, float)) and not isinstance(time, bool)
    if not number or not math.isfinite(time) or time <= 0:
        refuse(f"have no time above 0 in {stated[0]}")
        return None
    other = given.get("device")
    if other is not None and not _same(str(other), device, each.file.parent):
        refuse(f"are of another device ({str(other)[:40]})")
        return None
    try:
        op = kernel_case(values).op
        implementation_of(op, device)
    except SilicastError as error:
        refuse(f"are not understood: {error}")
        return None
    seconds = float(time) * TIMES[stated[0]]
    return MeasuredKernel(each.number, each.file, op, seconds, values, each.row.noise)


def _same(name: str, device: Device, folder: Path) -> bool:
    if name == device.name:
        return True
    beside = name.endswith(".toml") and (folder / name).is_file()
    try:
        return find_any_device(name, folder if beside else Path()).name == device.name
    except SilicastError:
        return False


def _alike(read: Sequence[MeasuredKernel]) -> list[list[MeasuredKernel]]:
    """Rows that one call of a model answers."""
    found: dict[tuple[str, Variant, tuple[str, ...]], list[MeasuredKernel]] = {}
    for row in read:
        names = tuple(name for name, _ in row.op.dims)
        found.setdefault((row.op.family, row.op.variant, names), []).append(row)
    return list(found.values())


def _checked(
    model: Implementation, rows: Sequence[MeasuredKernel], device: Device, refused: Refused
) -> list[MeasuredKernel]:
    """The rows that can be right."""
    times = learned_times(model, OpBatch.of([row.op for row in rows]), device)
    ratios = np.array([row.seconds for row in rows]) / times.estimate_s
    sane = ratios[(ratios > 1.0 / SCALE) & (ratios < SCALE)]
    middle = float(np.median(sane)) if len(sane) >= STRAY_AMONG else 0.0
    usual: dict[Op, list[float]] = {}
    every: dict[Op, list[float]] = {}
    for row, ratio in zip(rows, ratios.tolist(), strict=True):
        every.setdefault(row.op, []).append(row.seconds)
        if 1.0 / SCALE < ratio < SCALE:
            usual.setdefault(row.op, []).append(row.seconds)
    kept: list[MeasuredKernel] = []
    for row, bound, ratio in zip(rows, times.bound_s.tolist(), ratios.tolist(), strict=True):
        repeats = usual.get(row.op, [row.seconds])
        far = True
        if not 1.0 / SCALE < ratio < SCALE:
            reason = f"are {SCALE:g} times off or more: another unit?"
        elif row.seconds < TOO_FAST * bound:
            far = False
            reason = (
                "are faster than the device can be at its largest clock: was the result awaited?"
            )
        elif max(repeats) > CONTRADICTS * min(repeats):
            far = False
            reason = "repeat an op with times two or more times apart"
        elif middle and not 1.0 / STRAY < ratio / middle < STRAY:
            reason = f"contradict the others: {STRAY:g} times off what those say, or more"
        else:
            kept.append(row)
            continue
        refused.add(reason, row.number, row.file)
        if far and row.seconds >= TOO_FAST * bound and _agree(row, every[row.op]):
            kept.append(replace(row, stray=True))
    return kept


def _agree(row: MeasuredKernel, seconds: Sequence[float]) -> bool:
    """Whether all that is known of a row's repeats, its own and other rows of its op, agrees."""
    if max(seconds) > CONTRADICTS * min(seconds):
        return False
    if row.noise is None:
        return len(seconds) > 1
    return math.exp(2.0 * Z90 * row.noise) <= CONTRADICTS
