"""Claims about tools for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.console import Group, RenderableType
from rich.text import Text


def claims_report(rows: Iterable[Mapping[str, str]]) -> RenderableType:
    """A paragraph a claim: who says what, what the rows say, and what follows."""
    return Group(*(line for row in rows for line in _lines(row)))


def _lines(row: Mapping[str, str]) -> list[Text]:
    head = Text(f"{row['tool']}: {row['claim']}", "bold")
    recount = "not recounted" if row["how"] == "published" else f"recounted {row['recount']}"
    told = f"  claimed {row['claimed']}; {recount} ({row['how']}, rows {row['rows']})"
    lines = [head, Text(told), Text(f"  {row['verdict']}"), Text(f"  source: {row['source']}")]
    return [*lines, Text(f"  effort: {row['effort']}")] if row["effort"] else lines
