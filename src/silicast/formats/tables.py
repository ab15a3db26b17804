"""Tables in files: CSV, JSON Lines and Parquet, read row by row."""

from __future__ import annotations

import csv
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import msgspec

from silicast.core.errors import SilicastError, over_limit
from silicast.core.files import opened_file, read_errors
from silicast.core.packages import missing_package
from silicast.core.plain_data import check_keys, value_of_word

MAX_ROWS = 2_000_000
"""Rows that are read as a whole; those that are read one by one are not limited here."""
MOST_LINE_BYTES = 4 << 20
MOST_BYTES = 16 << 30
"""Of a table that is read row by row."""
_PARQUET_ROWS = 16_384
TEXTS = ("version", "library_version")
"""Columns that hold text, even if it looks like a number (0.10 is no tenth)."""

Cells = tuple[Any, ...]


class FileTable(ABC):
    """A table in a file.

    Attributes:
        path: of the file.
        columns: their names as they stand there; of JSON Lines those of the first line.
    """

    path: Path
    columns: Sequence[str]

    @abstractmethod
    def rows(self, columns: Sequence[str]) -> Iterator[tuple[int, Cells | None]]:
        """Some columns row by row, with the number of the line or, in Parquet, of the row.

        A cell that is missing is None, as is a row that cannot be read.

        Raises:
            SilicastError: a line is too long, or the file is none of its kind from here on.
        """

    @abstractmethod
    def records(self) -> Iterator[dict[str, Any]]:
        """All cells that are not empty by the names of their columns, row by row.

        Raises:
            SilicastError: as :meth:`rows`, or a row cannot be read; names it.
        """

    @final
    def error(self, message: str, field: str = "", hint: str = "") -> SilicastError:
        """An error that names the file."""
        return SilicastError(message, field=field, hint=hint, file=str(self.path))

    @final
    def lines(self) -> Iterator[bytes]:
        """Lines of the file, none of which may be longer than memory should hold."""
        with opened_file(self.path, MOST_BYTES, "a table") as file, read_errors(self.path):
            number = 0
            while line := file.readline(MOST_LINE_BYTES + 1):
                number += 1
                if len(line) > MOST_LINE_BYTES:
                    raise over_limit(
                        f"is longer than {MOST_LINE_BYTES} bytes",
                        f"line {number}",
                        "one row a line",
                        file=str(self.path),
                    )
                yield line


def open_table(path: Path, kind: str = "") -> FileTable:
    """The table in a file.

    Args:
        kind: ".csv", ".jsonl" or ".parquet"; "" = by the file's extension.

    Raises:
        SilicastError: no regular file, of an unknown kind, or without a header of its kind; kind
            "unsupported" where pyarrow is missing.
    """
    kinds: Mapping[str, Callable[[Path], FileTable]] = {
        ".csv": _Csv,
        ".jsonl": _JsonLines,
        ".ndjson": _JsonLines,
        ".parquet": _Parquet,
    }
    opened = kinds.get(kind or path.suffix.casefold())
    if opened is None:
        raise SilicastError(
            f"a table of unknown kind {path.suffix!r}",
            file=str(path),
            field="rows",
            hint=f"expected one of {', '.join(kinds)}",
        )
    with opened_file(path, MOST_BYTES, "a table"):
        pass  # pyarrow opens it by its name
    return opened(path)


@final
@dataclass(frozen=True, slots=True)
class TableRow:
    """One row of a table that was read as a whole.

    Attributes:
        number: from 1, not counting the header of a CSV file.
        values: column -> value; empty cells are left out.
    """

    number: int
    values: Mapping[str, Any]


def read_table(path: Path, kind: str = "") -> list[TableRow]:
    """All rows of a table; names of columns in CSV are in lower case.

    Raises:
        SilicastError: as :func:`open_table` and :meth:`FileTable.records`, or empty or too long.
    """
    rows: list[TableRow] = []
    for number, values in enumerate(open_table(path, kind).records(), 1):
        if number > MAX_ROWS:
            raise over_limit(
                f"has more than {MAX_ROWS} rows",
                "rows",
                "a few thousand calibrate a device: give a sample",
                file=str(path),
            )
        rows.append(TableRow(number, values))
    if not rows:
        raise SilicastError("has no rows", file=str(path), field="rows")
    return rows


@final
class _Csv(FileTable):
    def __init__(self, path: Path) -> None:
        self.path = path
        header = next(self._cells("replace"), (0, [""]))[1]
        self.columns = [cell.removeprefix("\ufeff") for cell in header]
        refuse_repeated([cell.strip().casefold() for cell in self.columns], self.error)

    def _cells(self, errors: str) -> Iterator[tuple[int, list[str]]]:
        reader = csv.reader(str(line, "utf-8", errors) for line in self.lines())
        try:
            for cells in reader:
                if cells:
                    yield reader.line_num, cells
        except csv.Error as error:
            raise self.error(f"is no CSV: {error}", f"line {reader.line_num}") from None
        except UnicodeDecodeError as error:
            raise self.error(f"is no UTF-8 text: {error}", "rows") from None

    def rows(self, columns: Sequence[str]) -> Iterator[tuple[int, Cells | None]]:
        indices = [self.columns.index(name) if name in self.columns else -1 for name in columns]
        lines = self._cells("replace")
        next(lines, None)
        for number, cells in lines:
            width = len(cells)
            yield number, tuple(cells[at].strip() if 0 <= at < width else None for at in indices)

    def records(self) -> Iterator[dict[str, Any]]:
        names = self._names()
        lines = self._cells("strict")
        next(lines, None)
        for number, (_, cells) in enumerate(lines, 1):
            if len(cells) > len(names):
                raise self.error("has more cells than the header", f"row {number}")
            pairs = zip(names, cells, strict=False)
            yield {
                name: cell.strip() if name in TEXTS else _value(cell.strip())
                for name, cell in pairs
                if cell.strip()
            }

    def _names(self) -> list[str]:
        """Columns in lower case; each of them once, and separated by commas."""
        if len(self.columns) == 1 and any(mark in self.columns[0] for mark in ";\t|"):
            raise self.error(
                "has one column only: its cells are not separated by commas",
                "row 0",
                "write it with commas between cells and a point in numbers",
            )
        return [name.strip().casefold() for name in self.columns]


def refuse_repeated(names: Sequence[str], error: Callable[[str, str, str], SilicastError]) -> None:
    """Refuses a table in which two columns have one name: which of them counts is not said.

    Raises:
        SilicastError: the one that ``error`` makes.
    """
    seen: set[str] = set()
    for number, name in enumerate(names, 1):
        if name and name in seen:
            shown = f" {name!r}" if NAME.fullmatch(name) else ""
            raise error(f"has column {number}{shown} twice", "row 0", "keep one of them")
        seen.add(name)


NAME = re.compile(r"[A-Za-z][\w .()/%-]{0,40}")
"""Names of columns that errors may quote; whatever else stands there is none of their business."""


def column_names(names: Sequence[str]) -> str:
    """Columns as an error lists them: those that look like names.

    >>> column_names(["tokens", "root:x:0:0"])
    'tokens and 1 that is no name'
    """
    known = [name for name in names if NAME.fullmatch(name)][:12]
    others = sum(not NAME.fullmatch(name) for name in names)
    listed = ", ".join(known) or ("none" if not names else "no names")
    return f"{listed} and {others} that is no name" if others and known else listed


def _value(text: str) -> Any:
    """A cell as number, truth value, list or text."""
    lowered = text.casefold()
    if lowered in ("true", "false"):
        return lowered == "true"
    return listed(text) if text.startswith("[") else value_of_word(text)


def listed(text: str | None) -> Any:
    """The value that a cell of a CSV file holds as JSON; the cell itself where it is none."""
    if not text:
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


@final
class _JsonLines(FileTable):
    def __init__(self, path: Path) -> None:
        self.path = path
        number, first = next(self._objects(), (0, {}))
        if not isinstance(first, dict):
            raise self.error(
                "is no JSON object", f"line {number}", 'one row a line, as {"tokens": 128}'
            )
        self.columns = list(first)

    def _objects(self) -> Iterator[tuple[int, Any]]:
        """What stands in each line, or the error of one that is no JSON."""
        decoder = msgspec.json.Decoder()
        for number, line in enumerate(self.lines(), 1):
            if not line.strip():
                continue
            try:
                yield number, decoder.decode(line)
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
                yield number, error

    def rows(self, columns: Sequence[str]) -> Iterator[tuple[int, Cells | None]]:
        for number, item in self._objects():
            yield number, tuple(map(item.get, columns)) if isinstance(item, dict) else None

    def records(self) -> Iterator[dict[str, Any]]:
        for number, line in enumerate(filter(bytes.strip, self.lines()), 1):
            check_keys(line, f"{self.path}: row {number}")
        for number, item in self._objects():
            if isinstance(item, Exception):
                raise self.error(f"is no JSON: {item}", f"row {number}")
            if not isinstance(item, dict):
                raise self.error("expected an object", f"row {number}")
            yield {name: value for name, value in item.items() if value is not None}


@final
class _Parquet(FileTable):
    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError:
            otherwise = "give a CSV or JSON Lines file"
            raise missing_package(
                "pyarrow", "reading Parquet", "rows", otherwise, file=str(path)
            ) from None
        self._arrow: Any = pyarrow
        try:
            with read_errors(path):
                self.columns = pyarrow.parquet.read_schema(path).names
        except pyarrow.ArrowException as error:
            raise self.error(f"is no Parquet file: {error}", "rows") from None

    def rows(self, columns: Sequence[str]) -> Iterator[tuple[int, Cells | None]]:
        number = 0
        present = [name for name in columns if name in self.columns]
        try:
            with self._arrow.parquet.ParquetFile(self.path) as table:
                for batch in table.iter_batches(_PARQUET_ROWS, columns=present):
                    for row in zip(*(self._column(batch, name) for name in columns), strict=True):
                        number += 1
                        yield number, row
        except self._arrow.ArrowException as error:
            raise self.error(f"is no Parquet file: {error}") from None

    def _column(self, batch: Any, name: str) -> list[Any]:
        if name not in batch.schema.names:
            return [None] * batch.num_rows
        arrow, column = self._arrow, batch.column(name)
        if arrow.types.is_timestamp(column.type):  # nanoseconds have no Python type
            column = column.cast(arrow.timestamp("us", tz=column.type.tz), safe=False)
        elif arrow.types.is_duration(column.type):
            column = column.cast(arrow.duration("us"), safe=False)
        return list(column.to_pylist())

    def records(self) -> Iterator[dict[str, Any]]:
        for _, row in self.rows(self.columns):
            yield {
                name: value
                for name, value in zip(self.columns, row or (), strict=True)
                if value is not None and value != "" and value == value  # noqa: PLR0124 - not NaN
            }
