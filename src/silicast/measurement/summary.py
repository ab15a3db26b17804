"""What a file of measurements holds, by family: noise, doubts, and how far predictions were off."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, final

from silicast.core.errors import SilicastError
from silicast.measurement.records import Columns, FailedRow, HostRow, KernelRow, RunRow
from silicast.measurement.session import REFERENCE
from silicast.measurement.store import Measurements
from silicast.scenario.answer import Answer
from silicast.scenario.answerer import answerer_for
from silicast.scenario.decode import Scenario, decode

HELD_ROWS, HELD_STILL, HELD_BELOW = 10, 0.005, 0.03
"""A clock is held if it hardly moved in so many rows (a share), so far below its largest."""
HELD_DOWN = ("throttled", "power_capped")


@final
@dataclass(frozen=True)
class FamilySummary:
    """Rows of one op and format.

    Attributes:
        noise: median half width between the 5th and 95th percentile of the repeats, over their
            median.
        error: median of |predicted over measured - 1|, without a calibration; None = no prediction.
        faster: rows that took less than what the device's file says is possible.
        flags: what is doubtful -> rows.
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
    """All families of a session, and what else was measured.

    Attributes:
        noise: of the reference kernel from one time to the next: median deviation from its median.
        reasons: why kernels failed -> how many.
        held_mhz: clock of the GPU if it stood still below its largest, as a locked one does.
    """

    families: tuple[FamilySummary, ...]
    reference_rows: int
    noise: float | None
    hosts: tuple[HostRow, ...]
    collectives: int
    runs: tuple[RunRow, ...]
    reasons: Mapping[str, int]
    held_mhz: float | None = None

    @property
    def faster(self) -> int:
        """Rows that took less than their bound."""
        return sum(family.faster for family in self.families)


def summary_of(found: Measurements, session: str, device: str) -> Summary:
    """The rows of one session.

    Args:
        device: what a scenario calls the device; a path starts in the file's folder.
    """
    rows = [row for row in found.kernels if row.session == session]
    failed = [row for row in found.failed if row.session == session and "op" in row.what]
    own = [row for row in rows if row.name != REFERENCE]
    reference = [row.latency_us for row in rows if row.name == REFERENCE]
    predicted = predictions_of([row.kernel for row in own], device, found.path.parent)
    groups: dict[str, list[int]] = {}
    for place, row in enumerate(own):
        groups.setdefault(family_of(row.kernel), []).append(place)
    lost = Counter(family_of(row.what) for row in failed)
    families = tuple(
        _family(name, [(own[i], predicted[i]) for i in groups.get(name, ())], lost[name])
        for name in sorted({*groups, *lost})
    )
    return Summary(
        families,
        len(reference),
        _deviation(reference),
        tuple(row for row in found.hosts if row.session == session),
        sum(row.session == session for row in found.collectives),
        tuple(row for row in found.runs if row.session == session),
        Counter(row.reason for row in _failures(found, session)),
        _held_mhz(rows, found.session(session).machine.get("max_clock_mhz")),
    )


def _failures(found: Measurements, session: str) -> Iterable[FailedRow]:
    return (row for row in found.failed if row.session == session)


def family_of(kernel: Columns) -> str:
    """Op and format."""
    return f"{kernel.get('op', '')} {kernel.get('dtype', '')}".strip()


def _family(
    name: str, rows: Sequence[tuple[KernelRow, Answer | None]], failed: int
) -> FamilySummary:
    spreads = [
        (row.spread.p95 - row.spread.p05) / 2.0 / row.latency_us
        for row, _ in rows
        if row.spread is not None
    ]
    answered = [(row.latency_us, answer) for row, answer in rows if answer is not None]
    errors = [abs(a.metrics["latency_us"].estimate / us - 1.0) for us, a in answered]
    return FamilySummary(
        name,
        len(rows),
        failed,
        median(spreads) if spreads else None,
        median(errors) if errors else None,
        sum(us < answer.bound.get("latency_us", 0.0) for us, answer in answered),
        Counter(flag for row, _ in rows for flag in row.flags),
    )


def _held_mhz(rows: Sequence[KernelRow], largest: object) -> float | None:
    """The clock, if it never moved under work of all kinds and nothing else held it down."""
    clocks = [row.conditions.clock_mhz for row in rows if row.conditions is not None]
    read = [clock for clock in clocks if clock]
    if len(read) < HELD_ROWS or not isinstance(largest, int | float):
        return None
    slowed = any(flag in HELD_DOWN for row in rows for flag in row.flags)
    middle = median(read)
    still = max(read) - min(read) <= HELD_STILL * middle
    return middle if still and not slowed and middle < (1.0 - HELD_BELOW) * largest else None


def _deviation(values: Sequence[float]) -> float | None:
    if len(values) < 2:
        return None
    middle = median(values)
    return median(abs(value / middle - 1.0) for value in values)


def predictions_of(
    kernels: Sequence[Columns], device: str | Mapping[str, Any], folder: Path = Path()
) -> list[Answer | None]:
    """A prediction of each kernel without a calibration; None where there is none.

    Args:
        device: as a scenario has it; a path starts in ``folder``.
    """
    found: list[Answer | None] = [None] * len(kernels)
    if not device:
        return found
    cases: list[tuple[int, Scenario]] = []
    for place, kernel in enumerate(kernels):
        tree: dict[str, Any] = {"task": "kernel", "device": device, "kernel": kernel}
        try:
            cases.append((place, decode(tree, folder=folder)))
        except SilicastError:
            continue
    answers = answerer_for("kernel").answer_many([case for _, case in cases])
    for (place, _), answer in zip(cases, answers, strict=True):
        if isinstance(answer, Answer) and math.isfinite(answer.metrics["latency_us"].estimate):
            found[place] = answer
    return found
