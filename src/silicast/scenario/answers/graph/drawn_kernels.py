"""The kernels of a pass as plain rows: what each runs, what it waits for, how long it takes."""

from __future__ import annotations

from typing import Any

from silicast.core.errors import SilicastError
from silicast.scenario.answers.graph.answerer import RequestedPass

MOST_DRAWN = 400


def drawn_kernels(requested: RequestedPass) -> list[dict[str, Any]]:
    """A row a kernel, in the order in which they run.

    Returns:
        ``name`` and ``op`` of a kernel, ``joined`` (names of operators that it runs besides),
        ``waits`` (indices of rows) and ``us``, the predicted time with that of what is joined.

    Raises:
        SilicastError: kind "limit": more than :data:`MOST_DRAWN`, or layers that repeat.
    """
    line = requested.program.timeline
    runs = requested.program.model.graph.executions
    if len(runs.sequence) > MOST_DRAWN:
        raise SilicastError(
            f"{len(runs.sequence):,} kernels run, and at most {MOST_DRAWN} are drawn",
            kind="limit",
            field="--plot",
            hint="--trace writes a timeline of any length",
        )
    took = ((line.end_s - line.start_s) * 1e6).tolist()
    rows: list[dict[str, Any]] = []
    row_of: dict[int, int] = {}
    named: dict[str, int] = {}
    for index, run in enumerate(runs.sequence):
        host = requested.joined.get(run.node.name)
        if host is not None:  # moves what the joined operator reads besides, in its kernel
            row_of[index] = named[host]
            rows[named[host]]["us"] += took[index]
            continue
        row_of[index] = named[run.node.name] = len(rows)
        waits = sorted({row_of[each] for each in runs.waits[index]})
        row = {"name": run.node.name, "op": run.node.op.family, "joined": []}
        rows.append({**row, "waits": waits, "us": took[index]})
    for operator, host in requested.joined.items():
        rows[named[host]]["joined"].append(operator)
    return rows
