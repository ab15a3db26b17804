"""The kernels of a pass as plain rows: what each runs, what it waits for, how long it takes."""

from __future__ import annotations

from typing import Any

from silicast.core.errors import over_limit
from silicast.scenario.answers.graph.answerer import RequestedPass

MOST_DRAWN = 400


def drawn_kernels(requested: RequestedPass) -> list[dict[str, Any]]:
    """A row a kernel, in the order in which they run.

    Returns:
        ``name`` and ``op`` of a kernel, ``joined`` (names of operators that it runs besides),
        ``waits`` (positions of rows) and ``us``, the predicted time with that of what is joined.

    Raises:
        SilicastError: kind "limit": more than :data:`MOST_DRAWN` run.
    """
    line = requested.program.timeline
    runs = requested.program.model.graph.executions
    if len(runs.sequence) > MOST_DRAWN:
        raise over_limit(
            f"{len(runs.sequence):,} kernels run, and at most {MOST_DRAWN} are drawn",
            "--plot",
            "--trace writes a timeline of any length",
        )
    took = ((line.end_s - line.start_s) * 1e6).tolist()
    rows: list[dict[str, Any]] = []
    row_at: dict[int, int] = {}
    named: dict[str, int] = {}
    operators: dict[str, list[str]] = {}
    for operator, kernel in requested.joined.items():
        operators.setdefault(kernel, []).append(operator)
    for index, run in enumerate(runs.sequence):
        host = requested.joined.get(run.node.name)
        if host is not None:  # moves what the joined operator reads besides, in its kernel
            row_at[index] = named[host]
            rows[named[host]]["us"] += took[index]
            continue
        row_at[index] = named[run.node.name] = len(rows)
        waits = sorted({row_at[each] for each in runs.waits[index]})
        row = {"name": run.node.name, "op": run.node.op.family, "waits": waits, "us": took[index]}
        rows.append({**row, "joined": operators.get(run.node.name, [])})
    return rows
