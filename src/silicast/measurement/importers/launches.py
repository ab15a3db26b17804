"""Kernels that a tool timed one by one, as rows: repeats together, rejected ones listed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from silicast.core.errors import SilicastError
from silicast.formats.source import Source
from silicast.measurement.importers.importer import FileReading, Options
from silicast.measurement.records.records import (
    CollectiveRow,
    Columns,
    KernelRow,
    Record,
    RepeatSpread,
    Session,
    UnreadRow,
)
from silicast.scenario.kernels.kernel_case import kernel_case

LONGEST_US = 3.6e9
"""An hour: no kernel runs longer."""


@final
@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel as a tool timed it.

    Attributes:
        name: the tool's; duration_us: of it; row: its number in the file.
        kernel: a ``kernel`` table; collective: ``workload`` of a collective; neither if it could
            not be understood, with the ``reason``.
        count: launches that ``duration_us`` is the mean of.
    """

    name: str
    duration_us: float
    row: int
    kernel: Columns | None = None
    collective: Columns | None = None
    reason: str = ""
    count: int = 1

    @property
    def total_us(self) -> float:
        return self.duration_us * self.count


def reading_of(
    launches: Iterable[Launch],
    session: Session,
    options: Options,
    source: Source,
    *,
    exclusive: bool = True,
    more: tuple[Record, ...] = (),
    notes: tuple[str, ...] = (),
) -> FileReading:
    """Launches of the same kernel with the same sizes as one row, medians with their spread.

    Args:
        options: fields below ``kernel`` and ``collective`` are put into every row.
        exclusive: collectives had the machine to themselves; else they are flagged: a rank that
            waits for another counts the wait.
        more: other records of the file.

    Raises:
        SilicastError: a time that cannot be true; names its row.
    """
    kernel, collective = options.under("kernel"), options.under("collective")
    faults: dict[str, str] = {}
    groups: dict[tuple[str, str, str], list[Launch]] = {}
    for each in launches:
        _check_time(each, source)
        launch = each
        if each.kernel is not None:
            launch = _checked(replace(each, kernel={**each.kernel, **kernel}), faults)
        elif each.collective is not None:
            launch = replace(each, collective={**each.collective, **collective})
        sizes = repr(sorted((launch.kernel or launch.collective or {}).items()))
        groups.setdefault((launch.name, sizes, launch.reason), []).append(launch)
    rows = [_row(group, session.id, exclusive=exclusive) for group in groups.values()]
    spent = [math.fsum(launch.total_us for launch in group) for group in groups.values()]
    understood = sum(
        us for us, row in zip(spent, rows, strict=True) if not isinstance(row, UnreadRow)
    )
    return FileReading(session, (*rows, *more), sum(spent), understood, notes)


def _row(group: list[Launch], session: str, *, exclusive: bool) -> Record:
    first = group[0]
    latency, spread = _statistics(group)
    name, row = first.name[:2000], first.row
    if latency > 0 and first.collective is not None:
        flags = [] if exclusive else ["waits"]
        return CollectiveRow(
            session, first.collective, latency, spread=spread, flags=flags, row=row
        )
    if latency > 0 and first.kernel is not None:
        return KernelRow(session, first.kernel, latency, spread=spread, name=name, row=row)
    reason = first.reason or "took no time at the tool's resolution"
    spent = math.fsum(launch.total_us for launch in group)
    return UnreadRow(session, name, sum(each.count for each in group), spent, reason, row)


def _statistics(group: list[Launch]) -> tuple[float, RepeatSpread | None]:
    """The median, and how far launches lie apart; of means their weighted mean, without."""
    if any(launch.count > 1 for launch in group):
        count = sum(launch.count for launch in group)
        return math.fsum(launch.total_us for launch in group) / count, None
    times = np.array([launch.duration_us for launch in group])
    low, middle, high = (float(x) for x in np.quantile(times, (0.05, 0.5, 0.95)))
    if len(times) == 1:
        return middle, None
    third = max(len(times) // 3, 1)
    first = float(np.median(times[:third]))
    drift = float(np.median(times[-third:])) / first - 1 if first > 0 else 0.0
    return middle, RepeatSpread(low, high, len(times), drift)


def _check_time(launch: Launch, source: Source) -> None:
    row, name, took = f"row {launch.row}", launch.name[:80], launch.duration_us
    if not math.isfinite(took) or took < 0:
        raise source.error(f"{name!r} took {took} us", row, "a time is a number of at least 0")
    if took > LONGEST_US:
        unit = "no kernel runs for an hour: is the unit right?"
        raise source.error(f"{name!r} took {took / 1e6:.3g} s", row, unit)


def _checked(launch: Launch, faults: dict[str, str]) -> Launch:
    """The launch, or one with the reason why its sizes are no kernel that can be predicted.

    Args:
        faults: tables that were looked at before -> what is wrong with them.
    """
    key = repr(launch.kernel)
    if key not in faults:
        faults[key] = _fault(launch.kernel or {})
    return replace(launch, kernel=None, reason=faults[key]) if faults[key] else launch


def _fault(kernel: Columns) -> str:
    try:
        kernel_case(kernel)
    except SilicastError as error:
        field = error.field.removeprefix("kernel.")
        return f"{kernel.get('op', 'row')}: {field} {error.message}"[:300]
    return ""
