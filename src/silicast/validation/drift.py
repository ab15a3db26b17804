"""Whether measurements have left the predictions: a sequential test of log ratios.

Of a cell (an op or metric, a device, an engine or library, its version) each row gives
``y = log(measured / predicted)`` and the standard deviation ``s`` that the row's interval states.
Nothing has moved while the mean of ``y`` stays within ``d``: the tolerance where the prediction is
calibrated, else half the width of its interval, for a model may be off by that everywhere. Against
it stands a product of likelihood ratios of a shift upwards or downwards,

    E_n = mean over l of exp(sum_i [l (|y_i| - d_i) / s_i - l^2 v / 2]),    v >= 1,

with the variance ``v`` of neighbouring rows' differences where intervals are too narrow. It is a
test supermartingale: the chance that it ever reaches 1 / alpha while nothing moved is at most
alpha, however often one looks (Ville; Howard et al., Annals of Statistics 49, 2021).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, final

from silicast.core.errors import SilicastError
from silicast.core.hashing import content_hash
from silicast.core.prediction import Z90
from silicast.measurement.calibrating.scoring import Scored, scored
from silicast.measurement.records.cases import KERNELS, Case
from silicast.measurement.records.dataset import read_dataset
from silicast.validation.measured import cases_of

ALPHA = 0.01
"""Chance of a false alarm of a cell, however many rows come."""
TOLERANCE = 0.03
"""Shift of a calibrated prediction that is no drift: about what sessions of one version differ by
(one kernel's tables under several releases of its library: 1 to 8 %)."""
NARROWEST = 0.005
"""Log standard deviation of a row at least."""
FARTHEST = 4.0
"""Standard deviations of a row at most, so that one bad row raises no alarm."""
STEPS = (0.1, 0.2, 0.4, 0.8, 1.6)
"""Shifts, in standard deviations, that the test looks for."""
NORMAL_MAD = 1.4826
LISTED = 5
"""Ops to measure again that are listed."""
FEWEST = 5
"""Rows of a cell below which the report warns."""


@final
@dataclass(frozen=True)
class CellDrift:
    """What one cell's rows say.

    Attributes:
        op: family and format, or task, engine and metric; device, engine, version: "" = not stated.
        rows: that have a prediction; unanswered: that have none.
        fired_after: rows after which the alarm was raised; None = it was not.
        evidence: E_n after all rows; 100 is the alarm at 1 %.
        shift: median of measured over predicted less one; low, high: its 90 % interval.
        calibrated: share of the rows whose prediction is.
        measure_again: what lies farthest off, the first few.
    """

    op: str
    device: str
    engine: str
    version: str
    rows: int
    unanswered: int
    fired_after: int | None
    evidence: float
    shift: float
    low: float
    high: float
    calibrated: float
    measure_again: tuple[str, ...]

    @property
    def has_moved(self) -> bool:
        """Whether the alarm was raised."""
        return self.fired_after is not None


@final
@dataclass(frozen=True)
class DriftReport:
    """All cells, those that moved first; remarks on what the files leave open."""

    cells: tuple[CellDrift, ...]
    remarks: tuple[str, ...]

    @property
    def has_moved(self) -> bool:
        """Whether any cell's alarm was raised."""
        return any(cell.has_moved for cell in self.cells)


def drift_of(
    paths: Sequence[Path],
    calibrations: Sequence[Path] = (),
    device: str = "",
    *,
    tolerance: float = TOLERANCE,
    alpha: float = ALPHA,
) -> DriftReport:
    """Tests the rows of files of measurements against their predictions.

    Args:
        paths: as of ``silicast validate --measured``; calibrations: what predictions rest on.
        device: of rows that name none.
        tolerance: shift of a calibrated prediction, as a share, that is no drift.
        alpha: chance of a false alarm of a cell.

    Raises:
        SilicastError: unreadable; a row without a time or a device; or no row has a prediction.
    """
    if not paths:
        raise SilicastError("no file to test", field="MEASURED", hint="see silicast drift --help")
    cases, unread = cases_of(read_dataset(paths), device)
    rows = [row for row in (*scored(cases, calibrations), *unread) if row.case.host is None]
    cells: dict[tuple[str, str, str, str], list[Scored]] = {}
    for row in rows:
        cells.setdefault(cell_of(row.case), []).append(row)
    tested = [
        tested_cell(key, cell_rows, tolerance=tolerance, alpha=alpha)
        for key, cell_rows in cells.items()
    ]
    if not any(cell.rows for cell in tested):
        reasons = {row.reason for row in rows}
        raise SilicastError(
            f"no row has a prediction: {next(iter(reasons), 'the files hold no rows')}",
            field="measured",
            file=str(paths[0]),
        )
    order = sorted(tested, key=lambda cell: (not cell.has_moved, -abs(cell.shift)))
    return DriftReport(tuple(order), tuple(_remarks(order, bool(calibrations))))


def cell_of(case: Case) -> tuple[str, str, str, str]:
    """Op, device, engine and version of a measured case."""
    device = case.tree.get("device", "")
    name = device if isinstance(device, str) else str(device.get("name", "a table"))
    if case.kind == KERNELS:
        table = case.tree.get("kernel") or case.tree["workload"]
        engine, version = table.get("library", ""), table.get("library_version", "")
    else:
        table = case.tree.get("engine") or case.tree["workload"].get("implementation", "")
        engine = table.get("name", "") if isinstance(table, Mapping) else table
        version = case.version
    return case.group, name, str(engine), str(version or case.version)


def tested_cell(
    key: tuple[str, str, str, str], rows: Sequence[Scored], *, tolerance: float, alpha: float
) -> CellDrift:
    """One cell's test.

    Args:
        key: op, device, engine and version; rows: in any order, which is drawn anew, because rows
            of a sweep are as far off as their neighbours.
    """
    answered = sorted(
        (row for row in rows if row.answered),
        key=lambda row: content_hash([row.case.identity, row.case.number]),
    )
    ratios = [math.log(row.case.measured / row.estimate) for row in answered]
    sds = [max(math.log(row.p95 / row.p05) / (2.0 * Z90), NARROWEST) for row in answered]
    margins = [
        math.log1p(tolerance) if row.tier == "calibrated" else max(Z90 * sd, math.log1p(tolerance))
        for row, sd in zip(answered, sds, strict=True)
    ]
    fired, evidence = sequential_test(ratios, sds, margins, alpha)
    middle, spread = _middle(ratios)
    half = Z90 * 1.2533 * spread / math.sqrt(max(len(ratios), 1))
    farthest = sorted(zip(ratios, answered, strict=True), key=lambda pair: -abs(pair[0]))
    return CellDrift(
        *key,
        rows=len(answered),
        unanswered=len(rows) - len(answered),
        fired_after=fired,
        evidence=evidence,
        shift=math.expm1(middle),
        low=math.expm1(middle - half),
        high=math.expm1(middle + half),
        calibrated=sum(row.tier == "calibrated" for row in answered) / max(len(answered), 1),
        measure_again=tuple(row.case.label for _, row in farthest[:LISTED]) if fired else (),
    )


def sequential_test(
    ratios: Sequence[float], sds: Sequence[float], margins: Sequence[float], alpha: float = ALPHA
) -> tuple[int | None, float]:
    """Rows after which the mean of log ratios has left ``margins``, None = never; the evidence
    after all rows.

    Args:
        ratios: log of measured over predicted, in the order in which they count.
        sds: of each, as its interval states; margins: within which the mean may lie.

    >>> sequential_test([0.2] * 20, [0.05] * 20, [0.03] * 20)[0]
    2
    >>> sequential_test([0.01, -0.01] * 50, [0.05] * 100, [0.03] * 100)[0] is None
    True
    """
    variance = max(1.0, _neighbours_variance(ratios, sds))
    sums = {(step, sign): 0.0 for step in STEPS for sign in (1.0, -1.0)}
    alarm, fired, evidence = math.log(1.0 / alpha), None, 0.0
    for number, (ratio, sd, margin) in enumerate(zip(ratios, sds, margins, strict=True), 1):
        for step, sign in sums:
            far = max(-FARTHEST, min(FARTHEST, (sign * ratio - margin) / sd))
            sums[step, sign] += step * far - step * step * variance / 2.0
        most = max(sums.values())
        evidence = most + math.log(math.fsum(math.exp(s - most) for s in sums.values()) / len(sums))
        if fired is None and evidence >= alarm:
            fired = number
    return fired, math.exp(min(evidence, 700.0))


def _neighbours_variance(ratios: Sequence[float], sds: Sequence[float]) -> float:
    """Variance of rows, in that of their intervals, by differences of neighbours: no shift that
    they have in common counts.
    """
    apart = [
        abs(a - b) / math.hypot(s, t)
        for a, b, s, t in zip(ratios, ratios[1:], sds, sds[1:], strict=False)
    ]
    return (median(apart) * NORMAL_MAD) ** 2 if len(apart) >= FEWEST else 1.0


def _middle(values: Sequence[float]) -> tuple[float, float]:
    """Median, and a robust standard deviation around it."""
    if not values:
        return 0.0, 0.0
    middle = median(values)
    return middle, NORMAL_MAD * median([abs(value - middle) for value in values])


def _remarks(cells: Iterable[CellDrift], has_calibration: bool) -> Iterable[str]:
    unnamed = sum(cell.rows for cell in cells if not cell.version)
    if unnamed:
        yield (
            f"{unnamed} rows state no version: what moved cannot be told apart from a mixture; "
            "state library_version in the table, or the stack of the session"
        )
    few = sum(0 < cell.rows < FEWEST for cell in cells)
    if few:
        yield f"{few} cells have fewer than {FEWEST} rows: an alarm there needs more"
    lost = sum(cell.unanswered for cell in cells)
    if lost:
        yield f"{lost} rows have no prediction and are not tested"
    if not has_calibration:
        yield (
            "without --calibration only a shift beyond the intervals counts: calibrate on the "
            "version before to see smaller ones"
        )


def drift_tables(report: DriftReport) -> dict[str, Any]:
    """A report as plain tables."""
    cells = [
        {name: getattr(cell, name) for name in cell.__dataclass_fields__}
        | {"has_moved": cell.has_moved, "measure_again": list(cell.measure_again)}
        for cell in report.cells
    ]
    return {"has_moved": report.has_moved, "cells": cells, "remarks": list(report.remarks)}
