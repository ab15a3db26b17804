"""`silicast results`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from silicast.app import status
from silicast.app.arguments import described
from silicast.app.console import show, warn, write_json
from silicast.app.flags import Count, Json
from silicast.core.errors import SilicastError

if TYPE_CHECKING:
    from silicast.runner.results import Condition, StoredRows
    from silicast.runner.stored_best import RowChance


@described()
def results(
    store: Path,
    /,
    *,
    where: Annotated[list[str] | None, Parameter(negative="")] = None,
    sort: str | None = None,
    metrics: str | None = None,
    front: str | None = None,
    best: str | None = None,
    keep: Annotated[list[str] | None, Parameter(negative="")] = None,
    heat: str | None = None,
    plot: Path | None = None,
    top: Count = 20,
    versions: Literal["current", "all"] = "current",
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    cases: Path | None = None,
    json: Json = False,
) -> int:
    """Show, choose and export the answers of a store that `silicast sweep` made.

    Args:
        store: its folder.
        where: what rows keep, such as device=h100 or ttft_p99_ms<=200; give it once for each.
        sort: a field or metric; with a hyphen before it, the largest first.
        metrics: columns to show, with commas between them; key is what `silicast reproduce` takes.
        front: metrics, with commas between them: only rows that no other beats in all of them, and
            how probable that is.
        best: a metric: rows by what they are worth in it under --keep, with the confidence that
            they keep the limits, and why each is not the best.
        keep: a limit for --best, such as tpot_p99_ms<=40; give it once for each.
        heat: two fields, with a comma between them: --plot draws the best of the first of --metrics
            for every pair of their values.
        plot: a file for the drawing of --front (two metrics, with intervals) or --heat: .svg, .png,
            .pdf or .html.
        top: rows to show.
        versions: current: rows of this version and its numbers; all: of others too.
        output: a file for the rows: .jsonl (answers, byte for byte those of `silicast batch`), .csv
            or .parquet.
        cases: a JSON Lines file for their scenarios, in the same order.
    """
    from silicast.report.tasks.sweep import chosen_metrics, rows_data, rows_report
    from silicast.runner.results import Condition, export, stored_rows, write_cases
    from silicast.runner.store import AnswerStore

    _check_drawing(front, heat, plot)
    limits = _limits(best, keep, None if front is None and sort is None else "--front or --sort")
    opened = AnswerStore(store).checked()
    every = stored_rows(opened, versions).where([Condition.parse(text) for text in where or ()])
    rows, probability, chances = _chosen(every, front, best, limits)
    if sort is not None:
        rows = rows.by(sort)
    names = dict.fromkeys([best, *(each.column for each in limits)] if best is not None else ())
    chosen = chosen_metrics(rows, metrics or front or ",".join(map(str, names)) or None)
    if plot is not None:
        from silicast.report.drawing.sweep_plots import draw_heat_map, draw_stored_front

        if heat is not None:
            draw_heat_map(rows, heat, chosen[0], plot)
        else:
            draw_stored_front(every, rows, probability or {}, plot, front or "")
        warn(f"{plot}: {f'a map of {chosen[0]}' if heat is not None else 'the front'}")
    if output is not None:
        export(opened, rows, output)
        warn(f"{output}: {len(rows.rows)} rows")
    if cases is not None:
        write_cases(opened, rows, cases)
        warn(f"{cases}: {len(rows.rows)} scenarios")
    if json:
        write_json(rows_data(rows, probability, chances))
    elif output is None and cases is None:
        show(rows_report(rows, chosen, top, probability, chances))
    return status.ANSWERED


def _check_drawing(front: str | None, heat: str | None, plot: Path | None) -> None:
    if plot is None:
        if heat is not None:
            raise SilicastError("is drawn: name a file", field="--heat", hint="--plot FILE.svg")
        return
    from silicast.report.drawing.plot_file import check_plot

    if (front is None) == (heat is None):
        raise SilicastError("draws --front or --heat", field="--plot", hint="give one of them")
    check_plot(plot)


def _limits(best: str | None, keep: list[str] | None, order: str | None) -> list[Condition]:
    from silicast.runner.results import Condition

    if keep and best is None:
        raise SilicastError("limits what --best chooses", field="--keep", hint="give both")
    if best is not None and order is not None:
        raise SilicastError(f"does not go with {order}: it orders rows", field="--best")
    try:
        return [Condition.parse(text) for text in keep or ()]
    except SilicastError as error:
        hint = "for example ttft_p99_ms<=200"
        raise SilicastError(error.message, field="--keep", hint=hint) from None


def _chosen(
    rows: StoredRows, front: str | None, best: str | None, limits: list[Condition]
) -> tuple[StoredRows, dict[str, float] | None, dict[str, RowChance] | None]:
    """Rows of a front with their probabilities, or the best with their chances, or all."""
    if best is not None:
        from silicast.runner.stored_best import best_of

        ordered, chances = best_of(rows, best, limits)
        return ordered, None, chances
    if front is None:
        return rows, None, None
    from silicast.runner.stored_front import front_of

    if rows.over_memory:
        many = rows.over_memory
        warn(f"{many} rows are on no front: they need more memory than their device has")
    return *front_of(rows, front), None
