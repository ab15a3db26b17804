"""Tables of tuned configurations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from silicast.kernels.configuration import Configuration
from silicast.measurement.trials.diagnosed import DiagnosedRow
from silicast.report.drawing.tables import FactSheet, figure, listing
from silicast.tuning.diagnosis import Diagnosis, diagnosis_data
from silicast.tuning.gain import CAUSES
from silicast.tuning.layers import SparseLayer
from silicast.tuning.plan import TunedEntry, TunedFile, TuningPlan


def plan_report(plan: TuningPlan) -> RenderableType:
    """Every file of a plan with its entries."""
    title = Text(f"{plan.model} on {plan.device}, {plan.dtype}, for {plan.engine}", "bold")
    parts = [part for file in plan.files for part in _file_parts(file)]
    notes = [Text(f"! {text}", "yellow") for text in plan.warnings]
    told = Text(f"\nTell {plan.engine} of the folder: {plan.environment}=DIR", "dim")
    return Group(title, *_routing_lines(plan), *parts, *notes, told)


def _routing_lines(plan: TuningPlan) -> Iterator[Text]:
    """How tokens were taken to spread over experts, which the files cannot say themselves."""
    if plan.routing == "balanced":
        yield Text("tokens spread evenly over experts (--routing states another way)", "dim")
    elif plan.routing:
        yield Text(f"tokens spread over experts as {plan.routing}", "dim")


def _file_parts(file: TunedFile) -> Iterator[RenderableType]:
    yield Text(f"\n{file.name} ({file.parallel})")
    judged = any(each.existing is not None for each in file.entries)
    columns = {
        "tokens": "right",
        "tile": "tree",
        "group": "right",
        "warps": "right",
        "stages": "right",
        "us": "right",
        "90 %": "tree",
    }
    if judged:
        columns |= {"existing": "tree", "its us": "right", "left %": "right"}
    rows = [row for each in file.entries for row in (_row(each, judged), *_others(each, judged))]
    yield listing(columns, rows)


def _others(each: TunedEntry, judged: bool) -> Iterator[list[str]]:
    """What follows in the ranking, without an interval: that is of the first."""
    for configuration, us in each.first[1:]:
        yield ["", *_sides(configuration), figure(us), "", *([""] * 3 if judged else [])]


def _row(each: TunedEntry, judged: bool) -> list[str]:
    configuration = each.configuration
    row = [
        str(each.tokens),
        *_sides(configuration),
        figure(each.estimate_us),
        f"{figure(each.p05_us)}-{figure(each.p95_us)}",
    ]
    if judged:
        existing = each.existing
        row += ["" if existing is None else tile_text(existing), figure(each.existing_us)]
        row.append(figure(each.left_pct))
    return row


def _sides(configuration: Configuration) -> list[str]:
    numbers = (str(configuration.number(name)) for name in ("group_m", "warps", "stages"))
    return [tile_text(configuration), *numbers]


def tile_text(configuration: Configuration) -> str:
    """Rows, columns and depth of a tile."""
    return "x".join(str(configuration.number(name)) for name in ("tile_m", "tile_n", "tile_k"))


def sparse_report(title: str, rows: Sequence[SparseLayer]) -> RenderableType:
    """Products of a model, dense and sparse."""
    columns = {
        "product": "tree",
        "times": "right",
        "m x n x k": "tree",
        "dense us": "right",
        "sparse us": "right",
        "90 %": "tree",
        "saved %": "right",
        "pays": "tree",
        "compress us": "right",
    }
    lines = [
        [
            row.name,
            str(row.count),
            f"{row.m}x{row.n}x{row.k}",
            figure(row.dense_us),
            figure(row.sparse_us),
            f"{figure(row.p05_us)}-{figure(row.p95_us)}",
            f"{row.saved_pct:.0f}",
            "yes" if row.pays else "not surely",
            figure(row.compression_us),
        ]
        for row in rows
    ]
    return Group(Text(title, "bold"), listing(columns, lines))


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
    shown = [_line(row, row.diagnosis) for row in rows if row.diagnosis is not None]
    notes = [Text(f"! {_name(row)}: {row.refused}", "yellow") for row in rows if row.refused]
    notes += [
        Text(f"! {_name(row)}: {row.contradicts}", "yellow") for row in rows if row.contradicts
    ]
    every = dict.fromkeys(text for row in rows if row.diagnosis for text in row.diagnosis.warnings)
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
            "diagnosis": None if row.diagnosis is None else diagnosis_data(row.diagnosis),
        }
        for row in rows
    ]
