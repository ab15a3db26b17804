"""Summary of a session by family: noise, flags, and errors of uncalibrated predictions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, final

from silicast.measurement.calibrating.scoring import Scored, scored
from silicast.measurement.records.cases import KERNELS, Case
from silicast.measurement.records.dataset import REFERENCE
from silicast.measurement.records.records import Columns, HostRow, KernelRow, Measurements, RunRow

LOCKED_ROWS, LOCKED_STILL, LOCKED_BELOW = 10, 0.005, 0.03
"""A clock is locked if it varies by less than a share over this many rows, a share below its
largest."""
SLOWED = ("throttled", "power_capped")


@final
@dataclass(frozen=True)
class FamilySummary:
    """Rows of one op and format.

    Attributes:
        noise: median of half the range from the 5 % to the 95 % quantile of the repeats, relative.
        error: median of |predicted over measured - 1| without calibration; None = no prediction.
        faster: rows faster than the device's file allows.
        flags: flag -> rows.
    """

    name: str
    rows: int
    failed: int = 0
    noise: float | None = None
    error: float | None = None
    faster: int = 0
    flags: Mapping[str, int] = field(default_factory=dict)


@final
@dataclass(frozen=True)
class Summary:
    """All rows of a session.

    Attributes:
        noise: of the reference kernel over the session: median deviation from its median.
        reasons: why measurements failed -> number.
        locked_mhz: clock of the GPU if it was constant below its largest.
    """

    families: tuple[FamilySummary, ...]
    reference_rows: int
    noise: float | None
    hosts: tuple[HostRow, ...]
    collectives: int
    runs: tuple[RunRow, ...]
    reasons: Mapping[str, int]
    locked_mhz: float | None = None

    @property
    def faster(self) -> int:
        """Rows faster than their bound."""
        return sum(family.faster for family in self.families)


def summary_of(measurements: Measurements, session: str, device: str) -> Summary:
    """Sums up one session.

    Args:
        device: as scenarios name it; a path starts in the file's folder.
    """
    rows = [row for row in measurements.kernels if row.session == session]
    failed = [row for row in measurements.failed if row.session == session]
    kernels = [row for row in rows if row.name != REFERENCE]
    reference = [row.latency_us for row in rows if row.name == REFERENCE]
    predicted = predictions_of([row.kernel for row in kernels], device, measurements.path.parent)
    groups: dict[str, list[tuple[KernelRow, Scored]]] = {}
    for row, prediction in zip(kernels, predicted, strict=True):
        groups.setdefault(family_of(row.kernel), []).append((row, prediction))
    failures = Counter(family_of(row.what) for row in failed if "op" in row.what)
    return Summary(
        tuple(
            _family(name, groups.get(name, ()), failures[name])
            for name in sorted({*groups, *failures})
        ),
        len(reference),
        _deviation(reference),
        tuple(row for row in measurements.hosts if row.session == session),
        sum(row.session == session for row in measurements.collectives),
        tuple(row for row in measurements.runs if row.session == session),
        Counter(row.reason for row in failed),
        _locked_mhz(rows, measurements.session(session).machine.get("max_clock_mhz")),
    )


def family_of(kernel: Columns) -> str:
    """Op and format."""
    return f"{kernel.get('op', '')} {kernel.get('dtype', '')}".strip()


def _family(name: str, rows: Sequence[tuple[KernelRow, Scored]], failed: int) -> FamilySummary:
    spreads = [
        (row.spread.p95 - row.spread.p05) / 2.0 / row.latency_us
        for row, _ in rows
        if row.spread is not None
    ]
    answered = [(row.latency_us, item) for row, item in rows if item.answered]
    errors = [abs(item.estimate / us - 1.0) for us, item in answered]
    return FamilySummary(
        name,
        len(rows),
        failed,
        median(spreads) if spreads else None,
        median(errors) if errors else None,
        sum(us < item.bound for us, item in answered),
        Counter(flag for row, _ in rows for flag in row.flags),
    )


def _locked_mhz(rows: Sequence[KernelRow], largest: object) -> float | None:
    """The clock, if it was constant under all kinds of work and nothing else limited it."""
    clocks = [row.conditions.clock_mhz for row in rows if row.conditions is not None]
    read = [clock for clock in clocks if clock]
    if len(read) < LOCKED_ROWS or not isinstance(largest, int | float):
        return None
    slowed = any(flag in SLOWED for row in rows for flag in row.flags)
    middle = median(read)
    still = max(read) - min(read) <= LOCKED_STILL * middle
    return middle if still and not slowed and middle < (1.0 - LOCKED_BELOW) * largest else None


def _deviation(values: Sequence[float]) -> float | None:
    if len(values) < 2:
        return None
    middle = median(values)
    return median(abs(value / middle - 1.0) for value in values)


def predictions_of(
    kernels: Sequence[Columns], device: str | Mapping[str, Any], folder: Path = Path()
) -> list[Scored]:
    """An uncalibrated prediction of each kernel, in microseconds.

    Args:
        device: as scenarios state it, "" = none; a path starts in ``folder``.
    """
    trees = [{"task": "kernel", "device": device, "kernel": kernel} for kernel in kernels]
    cases = [
        Case(KERNELS, "", tree, folder, "latency_us", 1.0, None, "", number, folder)
        for number, tree in enumerate(trees, 1)
    ]
    return scored(cases) if device else [Scored(case) for case in cases]
