"""Tables of CSV that tools print among other lines."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

from silicast.core.errors import SilicastError
from silicast.measurement.importers.source import Source

SEARCHED = 200
"""Lines in which a header is looked for."""
UNITS_US = {
    "ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3,
    "s": 1e6, "second": 1e6, "sec": 1e6,
}  # fmt: skip
"""Units of time -> microseconds."""


def header_line(lines: Sequence[str], *columns: str) -> int:
    """Number of the first line that has all of the columns, -1 for none.

    Args:
        columns: names; one that ends with "*" stands for all that start so.
    """
    for number, line in enumerate(lines[:SEARCHED]):
        if line.count(",") + 1 >= len(columns) and _has(_cells(line), columns):
            return number
    return -1


def _cells(line: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line]), [])]
    except csv.Error:
        return []


def _has(cells: Sequence[str], columns: Sequence[str]) -> bool:
    return all(
        any(
            cell.startswith(column[:-1]) if column.endswith("*") else cell == column
            for cell in cells
        )
        for column in columns
    )


def rows_below(source: Source, *columns: str) -> Iterator[tuple[int, dict[str, str]]]:
    """The table whose header has the columns: number of each line, and its cells by column.

    Lines of a tool's own talk (``==PROF==``) are skipped; the table ends at an empty line.

    Raises:
        SilicastError: no such header, or a row of other length.
    """
    text = source.text()
    lines = text.splitlines()
    start = header_line(lines, *columns)
    if start < 0:
        raise SilicastError(
            f"has no header with {', '.join(columns)}", file=str(source.path), field="header"
        )
    body = "\n".join(line for line in lines[start:] if not line.startswith("=="))
    reader = csv.reader(io.StringIO(body))
    try:
        header = [name.strip() for name in next(reader)]
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                return
            if len(cells) != len(header):
                raise SilicastError(
                    f"has {len(cells)} cells, expected {len(header)}",
                    file=str(source.path), field=f"line {start + reader.line_num}",
                    hint="was it cut off while it was written or copied?",
                )  # fmt: skip
            yield start + reader.line_num, dict(zip(header, cells, strict=True))
    except csv.Error as error:
        raise SilicastError(
            f"is no CSV: {error}", file=str(source.path), field=f"line {start + reader.line_num}"
        ) from None


def number_in(cells: dict[str, str], column: str, source: Source, line: int) -> float:
    """A cell as a number; commas between thousands are taken out.

    Raises:
        SilicastError: it is none, with file, line and column.
    """
    text = cells.get(column, "").replace(",", "").strip()
    try:
        return float(text)
    except ValueError:
        raise SilicastError(
            f"{column} is {text[:40]!r}, expected a number", file=str(source.path),
            field=f"line {line}",
        ) from None  # fmt: skip


def time_column(columns: Sequence[str], name: str, source: Source) -> tuple[str, float]:
    """The column of a time and what one of its unit is in microseconds: "Duration (ns)".

    Raises:
        SilicastError: there is none, or in an unknown unit.
    """
    for column in columns:
        if column.startswith(f"{name} (") and column.endswith(")"):
            unit = column.removeprefix(f"{name} (").removesuffix(")")
            if unit in UNITS_US:
                return column, UNITS_US[unit]
    raise SilicastError(
        f"has no column {name!r} with a unit of time", file=str(source.path), field="header"
    )
