"""Drift and regressions as tables for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from silicast.report.drawing.tables import listing
from silicast.validation.drift import CellDrift, DriftReport
from silicast.validation.regression import CaseCheck

COLUMNS = {
    "op": "left",
    "device": "left",
    "engine": "left",
    "version": "left",
    "rows": "right",
    "off by": "right",
    "90 %": "right",
    "alarm after": "right",
}
MOST_FAILURES = 40


def drift_table(report: DriftReport) -> RenderableType:
    """Cells, those that moved first, and what to measure again."""
    rows = [_row(cell) for cell in report.cells]
    again = [
        Text(f"measure again, {cell.op} on {cell.device}: {label}")
        for cell in report.cells
        for label in cell.measure_again
    ]
    head = sum(cell.has_moved for cell in report.cells)
    line = (
        f"{head} of {len(report.cells)} cells have moved"
        if head
        else "no cell is certain to have moved"
    )
    remarks = [Text(f"! {text}", "yellow") for text in report.remarks]
    return Group(Text(line), listing(COLUMNS, rows), *again, *remarks)


def _row(cell: CellDrift) -> list[str]:
    fired = "-" if cell.fired_after is None else f"{cell.fired_after} rows"
    return [
        cell.op,
        cell.device,
        cell.engine or "-",
        cell.version or "not stated",
        str(cell.rows),
        f"{100.0 * cell.shift:+.1f} %",
        f"{100.0 * cell.low:+.1f} to {100.0 * cell.high:+.1f} %",
        fired,
    ]


def check_table(checks: Sequence[CaseCheck], max_regress: float) -> RenderableType:
    """What failed, a line each."""
    failed = [check for check in checks if check.failure]
    head = (
        f"{len(checks)} cases, {len(failed)} of them more than {100.0 * max_regress:g} % worse or "
        "not answered any longer"
    )
    lines = [Text(f"{check.id}: {check.failure}") for check in failed[:MOST_FAILURES]]
    if more := failed[MOST_FAILURES:]:
        lines.append(Text(f"... and {len(more)} more"))
    return Group(Text(head), *lines)
