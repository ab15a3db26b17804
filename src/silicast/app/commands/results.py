"""`silicast results`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from silicast.app import status
from silicast.app.arguments import described
from silicast.app.console import show, warn, write_json
from silicast.app.flags import Count, Json
from silicast.core.errors import SilicastError


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
        top: rows to show.
        versions: current: rows of this version and its numbers; all: of others too.
        output: a file for the rows: .jsonl (answers, byte for byte those of `silicast batch`), .csv
            or .parquet.
        cases: a JSON Lines file for their scenarios, in the same order.
    """
    from silicast.report.tasks.sweep import chosen_metrics, rows_data, rows_report
    from silicast.runner.results import Condition, export, stored_rows, write_cases
    from silicast.runner.store import AnswerStore

    opened = AnswerStore(store).checked()
    rows = stored_rows(opened, versions).where([Condition.parse(text) for text in where or ()])
    probability, chances = None, None
    if keep and best is None:
        raise SilicastError("limits what --best chooses", field="--keep", hint="give both")
    if best is not None:
        from silicast.runner.stored_best import best_of

        if front is not None or sort is not None:
            raise SilicastError("has an order of its own", field="--best", hint="give it alone")
        rows, chances = best_of(rows, best, [Condition.parse(text) for text in keep or ()])
    if front is not None:
        from silicast.runner.stored_front import front_of

        if rows.over_memory:
            many = rows.over_memory
            warn(f"{many} rows are on no front: they need more memory than their device has")
        rows, probability = front_of(rows, front)
    if sort is not None:
        rows = rows.by(sort)
    chosen = chosen_metrics(rows, metrics or front or _of_best(best, keep))
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


def _of_best(best: str | None, keep: list[str] | None) -> str | None:
    """The metrics that a choice is about."""
    from silicast.runner.results import Condition

    if best is None:
        return None
    return ",".join(dict.fromkeys([best, *(Condition.parse(text).column for text in keep or ())]))
