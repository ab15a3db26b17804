"""Kernels that a tool timed one by one, as rows: repeats together, what is unknown listed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from silicast.core.errors import SilicastError
from silicast.measurement.importers.options import Options
from silicast.measurement.records import (
    CollectiveRow,
    Columns,
    KernelRow,
    Record,
    Spread,
    UnreadRow,
)
from silicast.scenario.kernel_case import kernel_case

LONGEST_US = 3.6e9
"""An hour: no kernel runs longer."""


@final
@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel as a tool saw it run.

    Attributes:
        name: the tool's; duration_us: of it; row: its number in the file.
        kernel: a ``kernel`` table; collective: ``workload`` of a collective; neither if it could
            not be understood, and ``reason`` says why.
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
        """Of all its launches."""
        return self.duration_us * self.count


@final
@dataclass(frozen=True)
class Rows:
    """Launches as rows.

    Attributes:
        total_us: of all launches; understood_us: of those that became rows to predict.
    """

    records: tuple[Record, ...]
    total_us: float
    understood_us: float


def rows_of(
    launches: Iterable[Launch], options: Options, file: str, *, exclusive: bool = True
) -> Rows:
    """Launches of the same kernel with the same sizes as one row, medians with their spread.

    Args:
        options: fields below ``kernel`` and ``collective`` are put into every row.
        exclusive: collectives had the machine to themselves; else they are flagged: a rank that
            waits for another counts the wait.

    Raises:
        SilicastError: a time that cannot be true; names its row.
    """
    kernels, collectives = options.own("kernel"), options.own("collective")
    known: dict[str, str] = {}
    groups: dict[tuple[str, str, str], list[Launch]] = {}
    for each in launches:
        launch = each
        _check(launch, file)
        if launch.kernel is not None and kernels:
            launch = replace(launch, kernel={**launch.kernel, **kernels})
        if launch.collective is not None and collectives:
            launch = replace(launch, collective={**launch.collective, **collectives})
        checked = _checked(launch, known)
        sizes = repr(sorted((checked.kernel or checked.collective or {}).items()))
        groups.setdefault((checked.name, sizes, checked.reason), []).append(checked)
    records: list[Record] = []
    total = understood = 0.0
    for group in groups.values():
        spent = math.fsum(launch.total_us for launch in group)
        total += spent
        record = _row(group, options.session, spent, exclusive)
        if not isinstance(record, UnreadRow):
            understood += spent
        records.append(record)
    return Rows(tuple(records), total, understood)


def _row(group: list[Launch], session: str, spent: float, exclusive: bool) -> Record:
    first = group[0]
    count = sum(launch.count for launch in group)
    latency, spread = _statistics(group)
    if latency <= 0 or (first.kernel is None and first.collective is None):
        reason = first.reason or "took no time at the tool's resolution"
        return UnreadRow(session, first.name[:2000], count, spent, reason, first.row)
    if first.collective is not None:
        flags = [] if exclusive else ["waits"]
        return CollectiveRow(
            session, first.collective, latency, spread=spread, flags=flags, row=first.row
        )
    assert first.kernel is not None
    return KernelRow(
        session, first.kernel, latency, spread=spread, name=first.name[:2000], row=first.row
    )


def _statistics(group: list[Launch]) -> tuple[float, Spread | None]:
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
    return middle, Spread(low, high, len(times), drift)


def _check(launch: Launch, file: str) -> None:
    if not math.isfinite(launch.duration_us) or launch.duration_us < 0:
        raise SilicastError(
            f"{launch.name[:80]!r} took {launch.duration_us} us", file=file,
            field=f"row {launch.row}", hint="a time is a number of at least 0",
        )  # fmt: skip
    if launch.duration_us > LONGEST_US:
        raise SilicastError(
            f"{launch.name[:80]!r} took {launch.duration_us / 1e6:.3g} s", file=file,
            field=f"row {launch.row}", hint="no kernel runs for an hour: is the unit right?",
        )  # fmt: skip


def _checked(launch: Launch, known: dict[str, str]) -> Launch:
    """The launch, or one that says why its sizes are no kernel that could be predicted.

    Args:
        known: tables that were looked at before -> what is wrong with them.
    """
    if launch.kernel is None:
        return launch
    key = repr(launch.kernel)
    if key not in known:
        known[key] = _fault(launch.kernel)
    return replace(launch, kernel=None, reason=known[key]) if known[key] else launch


def _fault(kernel: Columns) -> str:
    try:
        kernel_case(kernel)
    except SilicastError as error:
        field = error.field.removeprefix("kernel.")
        return f"{kernel.get('op', 'row')}: {field} {error.message}"[:300]
    return ""
