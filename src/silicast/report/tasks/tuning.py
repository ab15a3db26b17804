"""Tables of tuned configurations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from silicast.kernels.configuration import Configuration
from silicast.report.drawing.tables import figure, listing
from silicast.tuning.plan import TunedEntry, TunedFile, TuningPlan
from silicast.tuning.sparse_layers import SparseLayer


def plan_report(plan: TuningPlan) -> RenderableType:
    """Every file of a plan with its entries."""
    title = Text(f"{plan.model} on {plan.device}, {plan.dtype}, for {plan.engine}", "bold")
    parts = [part for one in plan.files for part in _file_parts(one)]
    notes = [Text(f"! {text}", "yellow") for text in plan.warnings]
    told = Text(f"\nTell {plan.engine} of the folder: {plan.environment}=DIR", "dim")
    return Group(title, *_routing_lines(plan), *parts, *notes, told)


def _routing_lines(plan: TuningPlan) -> Iterator[Text]:
    """How tokens were taken to spread over experts, which the files cannot say themselves."""
    if plan.routing == "balanced":
        yield Text("tokens spread evenly over experts (--routing states another way)", "dim")
    elif plan.routing:
        yield Text(f"tokens spread over experts as {plan.routing}", "dim")


def _file_parts(one: TunedFile) -> Iterator[RenderableType]:
    yield Text(f"\n{one.name} ({one.parallel})")
    judged = any(each.existing is not None for each in one.entries)
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
    rows = [row for each in one.entries for row in (_row(each, judged), *_others(each, judged))]
    yield listing(columns, rows)


def _others(each: TunedEntry, judged: bool) -> Iterator[list[str]]:
    """What follows in the ranking, without an interval: that is of the first."""
    for one, us in each.first[1:]:
        yield ["", *_sides(one), figure(us), "", *([""] * 3 if judged else [])]


def _row(each: TunedEntry, judged: bool) -> list[str]:
    one = each.configuration
    row = [
        str(each.tokens),
        *_sides(one),
        figure(each.estimate_us),
        f"{figure(each.p05_us)}-{figure(each.p95_us)}",
    ]
    if judged:
        known = each.existing
        row += ["" if known is None else tile_text(known), figure(each.existing_us)]
        row.append(figure(each.left_pct))
    return row


def _sides(one: Configuration) -> list[str]:
    numbers = (str(one.number(name)) for name in ("group_m", "warps", "stages"))
    return [tile_text(one), *numbers]


def tile_text(one: Configuration) -> str:
    """Rows, columns and depth of a tile."""
    return "x".join(str(one.number(name)) for name in ("tile_m", "tile_n", "tile_k"))


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
