"""The look of all tables: plain columns, no boxes, nothing that a narrow terminal breaks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, cast, final

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

Justify = Literal["left", "right", "center"]


def listing(columns: Mapping[str, str], rows: Iterable[Sequence[str]]) -> Table:
    """Many things, one a line; a narrow terminal wraps words but never cuts a number.

    Args:
        columns: heading -> "left", "right", or "tree" (to the left, never wrapped).
        rows: one text per column.
    """
    kept = [list(row) for row in rows]
    table = Table(
        box=SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0), show_edge=False, header_style="bold"
    )
    for number, (heading, justify) in enumerate(columns.items()):
        is_number = justify != "left"
        longest = max((len(row[number]) for row in kept), default=0)
        table.add_column(
            heading, justify=cast("Justify", "left" if justify == "tree" else justify),
            no_wrap=is_number, overflow="fold", min_width=longest if is_number else None,
        )  # fmt: skip
    for row in kept:
        table.add_row(*(Text(cell) for cell in row))
    return table


@final
class Facts:
    """Everything about one thing: a line per fact, its source as a numbered footnote."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._rows: list[tuple[str, str, str]] = []
        self._notes: dict[str, int] = {}

    def add(self, label: str, value: str, source: str = "") -> None:
        """One fact; facts with equal sources share a footnote."""
        mark = ""
        if source:
            mark = f" [{self._notes.setdefault(source, len(self._notes) + 1)}]"
        self._rows.append((label, value, mark))

    def rendered(self) -> RenderableType:
        """Title, facts and footnotes."""
        table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True, style="bold")
        table.add_column(overflow="fold")
        for label, value, mark in self._rows:
            table.add_row(Text(label), Text.assemble(value, (mark, "dim")))
        notes = [Text(f"[{number}] {source}", "dim") for source, number in self._notes.items()]
        return Group(
            Text(self._title, "bold"), table, *([Text("\nSources"), *notes] if notes else [])
        )


def figure(value: Any) -> str:
    """A figure of errors as text; "–" where there is none.

    >>> figure(None), figure(7.256), figure(0.0712), figure(1234.0), figure(22)
    ('–', '7.3', '0.071', '1,234', '22')
    """
    if not isinstance(value, int | float) or math.isnan(value):
        return "–"
    if isinstance(value, int) or (value == round(value) and abs(value) >= 100):
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:.2g}"
