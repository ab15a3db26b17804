"""How much an answer moves with single numbers, the largest first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from silicast.core.errors import SilicastError, unknown_name
from silicast.core.naming import near
from silicast.report.drawing.numbers import rounded
from silicast.report.drawing.tables import listing
from silicast.scenario.answer import Answer, Reply
from silicast.scenario.sensitivity import ChangedAnswer

BAR = 24
"""Characters of the longest bar."""


def chosen_metric(reply: Reply, name: str | None) -> str:
    """The metric that is looked at: the one named, else the answer's first.

    Raises:
        SilicastError: there is no answer, or it has no such metric.
    """
    if not isinstance(reply, Answer):
        raise reply.error.as_error()
    if name is None:
        return next(iter(reply.metrics))
    if name not in reply.metrics:
        raise unknown_name(f"no metric {name!r:.40}", "--metric", near(name, list(reply.metrics)))
    return name


def sensitivity_data(
    reply: Reply, rows: Sequence[ChangedAnswer], metric: str
) -> list[dict[str, Any]]:
    """A row a change, the largest effect first; ``elasticity``: by how many per cent the metric
    moves with one per cent of the number.
    """
    if not isinstance(reply, Answer):
        raise SilicastError("there is no answer")
    base = reply.metrics[metric].estimate
    table = []
    for row in rows:
        entry: dict[str, Any] = {"field": row.path, "before": row.before, "after": row.after}
        if isinstance(row.reply, Answer) and metric in row.reply.metrics:
            value = row.reply.metrics[metric].estimate
            entry |= {metric: value, "change": value / base - 1.0 if base else 0.0}
            if base > 0.0 and value > 0.0 and row.before > 0.0 and row.after > 0.0:
                entry["elasticity"] = math.log(value / base) / math.log(row.after / row.before)
            unfit = [line for line in row.reply.warnings if line.startswith("does not fit")]
            if unfit:
                entry["warning"] = unfit[0]
        elif not isinstance(row.reply, Answer):
            entry["refused"] = str(row.reply.error.as_error())
        table.append(entry)
    return sorted(table, key=lambda entry: -abs(entry.get("change", 0.0)))


def sensitivity_report(reply: Reply, rows: Sequence[dict[str, Any]], metric: str) -> RenderableType:
    """The same for people, with bars."""
    assert isinstance(reply, Answer)
    largest = max((abs(row.get("change", 0.0)) for row in rows), default=0.0)
    cells = []
    for row in rows:
        change = row.get("change")
        length = round(BAR * abs(change) / largest) if change and largest else 0
        cells.append(
            [
                row["field"],
                f"{rounded(row['before'])} to {rounded(row['after'])}",
                "" if change is None else f"{change:+.1%}",
                "" if "elasticity" not in row else f"{row['elasticity']:+.2f}",
                row.get("refused", ("-" if (change or 0.0) < 0.0 else "+") * length),
            ]
        )
    columns = {"number": "left", "changed": "left", "effect": "right", "elasticity": "right"}
    return Group(
        Text(f"{metric} {reply.metrics[metric]}", "bold"),
        Text(""),
        listing(columns | {"": "tree"}, cells),
        *(
            Text(
                f"warning: with {row['field']} {rounded(row['after'])} it {row['warning']}",
                "yellow",
            )
            for row in rows
            if "warning" in row
        ),
    )
