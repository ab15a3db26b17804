"""A diagnosed kernel for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from silicast.measurement.trials.diagnosed import DiagnosedRow
from silicast.report.drawing.tables import FactSheet, figure, listing
from silicast.tuning.causes import CAUSES
from silicast.tuning.diagnosis import Diagnosis, diagnosis_data

SMALLEST_SHARE = 0.0005
"""Causes of less are not shown."""


def diagnosis_report(title: str, diagnosis: Diagnosis) -> RenderableType:
    """Achieved, ceiling and bound; causes; the faster configuration."""
    facts = FactSheet(title)
    facts.add("measured", f"{figure(diagnosis.measured_us)} us")
    facts.add(
        "bound",
        f"{figure(diagnosis.bound_us)} us ({diagnosis.bound_by}, {diagnosis.bound_state}): "
        f"{100.0 * diagnosis.achieved:.0f} % of its speed achieved",
    )
    if diagnosis.ceiling_us is not None:
        facts.add("ceiling", f"{figure(diagnosis.ceiling_us)} us: quick kernels of such sizes")
    facts.add("usual", f"{figure(diagnosis.predicted_us)} us: as `silicast kernel` predicts")
    ran = "likeliest" if diagnosis.assumed else "stated"
    facts.add("ran", f"{diagnosis.configuration.label} ({ran})")
    rows = [
        [CAUSES[name], figure(value), f"{100.0 * value / diagnosis.measured_us:.1f}"]
        for name, value in diagnosis.causes_us.items()
        if abs(value) > SMALLEST_SHARE * diagnosis.measured_us
    ]
    table = listing({"where the time goes": "left", "us": "right", "%": "right"}, rows)
    return Group(facts.rendered(), Text(), table, Text(), *_advice(diagnosis))


def _advice(diagnosis: Diagnosis) -> Iterator[Text]:
    best = diagnosis.faster
    if best is None:
        yield Text("no configuration is expected to be faster")
    else:
        yield Text(f"faster: {best.configuration.label}", "bold")
        yield Text(
            f"{figure(best.estimate_us)} us ({figure(best.p05_us)}-{figure(best.p95_us)}), saves "
            f"{best.gain_pct:.1f} % ({best.gain_p05_pct:.1f}-{best.gain_p95_pct:.1f}); more than "
            f"5 % with a chance of {100.0 * best.chance:.0f} %"
        )
    for text in diagnosis.warnings:
        yield Text(f"! {text}", "yellow")


def model_line(gain: dict[str, float]) -> Text:
    """What a model gains by it."""
    return Text(
        f"in the model: {figure(gain['saved_us'])} us a step saved of {figure(gain['step_us'])} "
        f"({gain['saved_pct']:.1f} %), TPOT {gain['tpot_ms']:.3f} -> {gain['tpot_then_ms']:.3f} ms"
    )


def rows_report(rows: Sequence[DiagnosedRow], remarks: Sequence[str]) -> RenderableType:
    """Kernels of files, those that can gain most first."""
    columns = {
        "kernel": "left",
        "us": "right",
        "of bound %": "right",
        "faster": "tree",
        "saves %": "right",
        "90 %": "tree",
        "over 5 %": "right",
    }
    shown = [_line(row, row.found) for row in rows if row.found is not None]
    notes = [Text(f"! {_name(row)}: {row.refused}", "yellow") for row in rows if row.refused]
    notes += [
        Text(f"! {_name(row)}: {row.contradicts}", "yellow") for row in rows if row.contradicts
    ]
    every = dict.fromkeys(text for row in rows if row.found for text in row.found.warnings)
    notes += [Text(f"! {text}", "yellow") for text in every]
    return Group(
        listing(columns, shown), *notes, *(Text(f"! {text}", "yellow") for text in remarks)
    )


def _line(row: DiagnosedRow, diagnosis: Diagnosis) -> list[str]:
    best = diagnosis.faster
    start = [_name(row), figure(diagnosis.measured_us), f"{100.0 * diagnosis.achieved:.0f}"]
    if best is None:
        return [*start, "none", "", "", ""]
    return [
        *start,
        best.configuration.label.partition(" split")[0],
        f"{best.gain_pct:.1f}",
        f"{best.gain_p05_pct:.0f}-{best.gain_p95_pct:.0f}",
        f"{100.0 * best.chance:.0f} %",
    ]


def _name(row: DiagnosedRow) -> str:
    return " ".join(
        f"{name}={value}" if name != "op" else str(value) for name, value in row.kernel.items()
    )


def rows_data(rows: Sequence[DiagnosedRow]) -> list[dict[str, Any]]:
    """The same as plain tables, for JSON."""
    return [
        {
            "kernel": row.kernel,
            "places": list(row.places),
            "refused": row.refused,
            "contradicts": row.contradicts,
            "diagnosis": None if row.found is None else diagnosis_data(row.found),
        }
        for row in rows
    ]
