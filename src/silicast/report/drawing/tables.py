"""The look of all tables: plain columns, no boxes, nothing that a narrow terminal breaks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, cast, final

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

Justify = Literal["left", "right", "center"]


TEXTS: Final = ((24, True), (24, False), (10, False))
"""Columns of the screen that a text keeps, and whether its words stay beside each other: tried one
after the other.
"""
BETWEEN: Final = (2, 1)
"""Spaces after a column, and where that is too wide; one more comes from the box."""


MOST_BANDS: Final = 3
"""Tables that one which is too wide becomes at most."""


@final
class Listing:
    """Many things, one a line; where the screen is too narrow for the numbers of a line, columns
    go on in a table below, or each thing is a few lines of its own. A number is never cut.

    Args:
        columns: heading -> "left", "right", or "tree" (to the left, never wrapped).
        rows: one text per column.
    """

    def __init__(self, columns: Mapping[str, str], rows: Iterable[Sequence[str]]) -> None:
        self._columns = dict(columns)
        self._rows = [list(row) for row in rows]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draws it at the width that there is."""
        for least in (self._least(most, whole=whole) for most, whole in TEXTS):
            for between in BETWEEN:
                spare = options.max_width - sum(least) - (between + 1) * (len(least) - 1)
                if spare >= 0:
                    yield self._table(self._widths(least, spare), between)
                    return
        if len(bands := self._bands(options.max_width)) > MOST_BANDS:
            yield self._stacked()
            return
        for number, positions in enumerate(bands):
            columns = [list(self._columns.items())[each] for each in positions]
            rows = [[row[each] for each in positions] for row in self._rows]
            yield from ([Text("")] if number else [])
            yield Listing(dict(columns), rows)

    def _bands(self, room: int) -> list[list[int]]:
        """Columns of tables below each other, the first of them in every one; one a column where
        not even two are beside each other.
        """
        first, *others = self._least(TEXTS[-1][0], whole=TEXTS[-1][1])
        bands, left = list[list[int]](), 0
        for number, width in enumerate(others, start=1):
            left -= width + BETWEEN[-1] + 1
            if left < 0 or not bands:
                bands.append([0])
                left = room - first - width - BETWEEN[-1] - 1
            bands[-1].append(number)
            if left < 0:
                return [[each] for each in range(max(len(self._columns), MOST_BANDS + 1))]
        return bands

    def _least(self, most: int, *, whole: bool) -> list[int]:
        """What each column takes at least.

        Args:
            most: that a text or word keeps before it is broken.
            whole: a text is not wrapped; else only its words are not.
        """
        least = []
        for number, (heading, justify) in enumerate(self._columns.items()):
            cells = [row[number] for row in self._rows]
            if justify == "left" and not whole:
                cells = [word for cell in cells for word in cell.split()]
            cells += heading.split() if justify == "left" else heading.split("\n")
            longest = max(map(len, cells), default=0)
            least.append(longest if justify != "left" else min(longest, most))
        return least

    def _widths(self, least: Sequence[int], spare: int) -> list[int]:
        """Of each column: what is to spare goes to the narrowest of those that hold more."""
        widths = list(least)
        longest = [
            max(map(len, (*heading.split("\n"), *(row[number] for row in self._rows))))
            for number, heading in enumerate(self._columns)
        ]
        for _ in range(spare):
            short = [n for n, width in enumerate(widths) if width < longest[n]]
            if not short:
                break
            widths[min(short, key=widths.__getitem__)] += 1
        return widths

    def _table(self, widths: Sequence[int], between: int) -> Table:
        table = Table(
            box=SIMPLE_HEAD,
            pad_edge=False,
            padding=(0, between, 0, 0),
            show_edge=False,
            header_style="bold",
        )
        for number, (heading, justify) in enumerate(self._columns.items()):
            table.add_column(
                heading,
                justify=cast("Justify", "left" if justify == "tree" else justify),
                no_wrap=justify != "left",
                overflow="fold",
                width=widths[number],
            )
        for row in self._rows:
            table.add_row(*(Text(cell) for cell in row))
        return table

    def _stacked(self) -> RenderableType:
        """A head and a line for each of its values."""
        lines: list[RenderableType] = []
        for row in self._rows:
            head, *cells = row
            lines.append(Text(head, "bold"))
            remaining = list(self._columns)[1:]
            table = Table(
                box=None, pad_edge=False, show_header=False, padding=(0, BETWEEN[0], 0, 0)
            )
            table.add_column(overflow="fold")
            table.add_column(justify="right", overflow="fold")
            for heading, cell in zip(remaining, cells, strict=True):
                if cell:
                    table.add_row(Text(f"  {heading}".replace("\n", " ")), Text(cell))
            if table.row_count:
                lines.append(table)
        return Group(*lines)


def listing(columns: Mapping[str, str], rows: Iterable[Sequence[str]]) -> Listing:
    """:class:`Listing` of things."""
    return Listing(columns, rows)


@final
class FactSheet:
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
