"""Tables of measured kernels: CSV, JSON Lines or Parquet, one measurement a row."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import msgspec

from silicast.core.errors import SilicastError, over_limit

MAX_ROWS = 2_000_000


@final
@dataclass(frozen=True, slots=True)
class TableRow:
    """One row of a table.

    Attributes:
        number: from 1, not counting the header of a CSV file.
        values: column -> value; empty cells are left out.
    """

    number: int
    values: Mapping[str, Any]


def read_table(path: Path, kind: str = "") -> list[TableRow]:
    """All rows of a table.

    Args:
        kind: ".csv", ".jsonl" or ".parquet"; "" = by the file's extension.

    Raises:
        SilicastError: unreadable, of an unknown kind, empty or too long; names the file.
    """
    readers = {".csv": _csv, ".jsonl": _json_lines, ".ndjson": _json_lines, ".parquet": _parquet}
    reader = readers.get(kind or path.suffix.casefold())
    if reader is None:
        raise SilicastError(
            f"unknown kind of table {path.suffix!r}",
            file=str(path),
            field="rows",
            hint=f"one of {', '.join(readers)}",
        )
    try:
        rows = [TableRow(i, values) for i, values in enumerate(reader(path), 1)]
    except OSError as error:
        raise SilicastError(
            f"cannot read: {error.strerror or error}", kind="io", file=str(path)
        ) from None
    except UnicodeDecodeError as error:
        raise SilicastError(f"is no UTF-8 text: {error}", file=str(path), field="rows") from None
    if not rows:
        raise SilicastError("has no rows", file=str(path), field="rows")
    return rows


def _csv(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        _check_header(reader.fieldnames or [], path)
        for number, row in enumerate(reader, 1):
            _not_too_many(number, path)
            if None in row:
                raise SilicastError(
                    "has more cells than the header", file=str(path), field=f"row {number}"
                )
            yield {
                name.strip().casefold(): _value(text.strip())
                for name, text in row.items()
                if text is not None and text.strip()
            }


def _check_header(names: Sequence[str], path: Path) -> None:
    """Rejects a header whose columns are not separated or not unique."""
    if len(names) == 1 and any(mark in names[0] for mark in ";\t|"):
        raise SilicastError(
            "has one column only: its cells are not separated by commas",
            file=str(path),
            field="row 0",
            hint="write it with commas between cells and a point in numbers",
        )
    known: set[str] = set()
    for name in (name.strip().casefold() for name in names):
        if name in known and name:
            raise SilicastError(
                f"has column {name[:60]!r} twice",
                file=str(path),
                field="row 0",
                hint="keep one of them",
            )
        known.add(name)


def _value(text: str) -> Any:
    """A cell as number, truth value, list or text."""
    lowered = text.casefold()
    if lowered in ("true", "false"):
        return lowered == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    if text.startswith("["):
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError:
            return text
    return text


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            _not_too_many(number, path)
            if not line.strip():
                continue
            try:
                row = msgspec.json.decode(line)
            except (msgspec.DecodeError, RecursionError) as error:
                raise SilicastError(
                    f"is no JSON: {error}", file=str(path), field=f"row {number}"
                ) from None
            if not isinstance(row, dict):
                raise SilicastError("expected an object", file=str(path), field=f"row {number}")
            yield {name: value for name, value in row.items() if value is not None}


def _parquet(path: Path) -> Iterator[dict[str, Any]]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise SilicastError(
            "reading Parquet needs pyarrow",
            file=str(path),
            field="rows",
            hint="pip install silicast[data], or give a CSV file",
        ) from None
    if not path.is_file():
        raise SilicastError("cannot read: No such file", kind="io", file=str(path))
    try:
        table = pq.read_table(path)
    except pa.ArrowException as error:
        raise SilicastError(f"is no Parquet file: {error}", file=str(path), field="rows") from None
    _not_too_many(table.num_rows, path)
    for row in table.to_pylist():
        yield {
            name: value
            for name, value in row.items()
            if value is not None and value != "" and value == value  # noqa: PLR0124 - not NaN
        }


def _not_too_many(number: int, path: Path) -> None:
    if number > MAX_ROWS:
        raise over_limit(
            f"has more than {MAX_ROWS} rows",
            "rows",
            "a few thousand calibrate a device: give a sample",
            file=str(path),
        )
