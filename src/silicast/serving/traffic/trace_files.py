"""Trace files: CSV, JSON Lines and Parquet, a request a row, read row by row.

Columns are found by their names, in upper or lower case
(:mod:`~silicast.serving.traffic.trace_rows`); others are ignored.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from silicast.core.errors import SilicastError, over_limit, unsupported
from silicast.serving.traffic.trace_rows import Columns, Row, Rule, read_rows
from silicast.serving.traffic.traffic import Traffic

MOST_LINE_BYTES = 4 << 20
_PARQUET_ROWS = 16_384

Rows = Iterator[tuple[int, Row]]
Table = tuple[Sequence[str], Callable[[Sequence[str]], Rows]]
"""The columns of a file, and a function that reads some of them, row by row."""


def read_trace(path: Path, rule: Rule | None = None, *, timed: bool = True) -> Traffic:
    """The requests of a trace file.

    Args:
        rule: how many rows, and what becomes of bad ones; its ``file`` is set to ``path``.
        timed: times are read; without them all requests come at time 0.

    Raises:
        SilicastError: names file, line and column, what was expected and found, and how many rows
            are bad; of kind "io" where the file cannot be read, "unsupported" where pyarrow is
            missing.
    """
    name = str(path)
    openers = {".csv": _csv, ".jsonl": _json_lines, ".ndjson": _json_lines, ".parquet": _parquet}
    opener = openers.get(path.suffix.casefold())
    if opener is None:
        raise SilicastError(
            f"a trace of unknown kind {path.suffix!r}",
            file=name,
            hint=f"expected one of {', '.join(openers)}",
        )
    rule = replace(rule or Rule(), file=name)
    if opener is _parquet:
        rule = replace(rule, place=lambda row, column: f"row {row}, {column}")
    try:
        if not path.is_file():
            what = "is a folder, not a file" if path.is_dir() else "is no regular file"
            raise SilicastError(what, kind="io", file=name)
        names, rows = opener(path)
        columns = Columns.among((each.strip().casefold() for each in names), timed=timed)
        table = {each.strip().casefold(): each for each in names}
        wanted = [table.get(each, each) for each in columns.names]
        return read_rows(rows(wanted), columns, rule)
    except OSError as error:
        raise SilicastError(
            f"cannot read: {error.strerror or error}", kind="io", file=name
        ) from None
    except SilicastError as error:
        raise error.located(file=error.file or name) from None


def _lines(file: BinaryIO, path: Path) -> Iterator[bytes]:
    """Lines of a file, none of which may be longer than memory should hold."""
    number = 0
    while line := file.readline(MOST_LINE_BYTES + 1):
        number += 1
        if len(line) > MOST_LINE_BYTES:
            raise over_limit(
                f"is longer than {MOST_LINE_BYTES} bytes",
                f"line {number}",
                "one request a line",
                file=str(path),
            )
        yield line


def _csv(path: Path) -> Table:
    def read() -> Iterator[tuple[int, list[str]]]:
        with path.open("rb") as file:
            decoded = (str(line, "utf-8", "replace") for line in _lines(file, path))
            reader = csv.reader(decoded)
            try:
                for cells in reader:
                    if cells:
                        yield reader.line_num, cells
            except csv.Error as error:
                raise SilicastError(
                    f"is no CSV: {error}", field=f"line {reader.line_num}", file=str(path)
                ) from None

    header = [cell.removeprefix("\ufeff") for cell in next(read(), (0, [""]))[1]]

    def rows(columns: Sequence[str]) -> Rows:
        indices = [header.index(each) if each in header else -1 for each in columns]
        lines = read()
        next(lines, None)
        for number, cells in lines:
            width = len(cells)
            row = tuple(cells[at].strip() if 0 <= at < width else None for at in indices)
            yield number, (*row[:3], _listed(row[3]), *row[4:])

    return header, rows


def _listed(text: str | None) -> Any:
    """The list that a cell of a CSV file holds as JSON; anything else as it is."""
    if not text:
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


def _json_lines(path: Path) -> Table:
    decoder = msgspec.json.Decoder()

    def read() -> Iterator[tuple[int, dict[str, Any] | None]]:
        with path.open("rb") as file:
            for number, line in enumerate(_lines(file, path), 1):
                if not line.strip():
                    continue
                try:
                    result = decoder.decode(line)
                except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                    result = None
                yield number, result if isinstance(result, dict) else None

    number, first = next(read(), (0, {}))
    if first is None:
        raise SilicastError(
            "is no JSON object",
            field=f"line {number}",
            file=str(path),
            hint='one request a line, as {"arrival_s": 0.5, "input_len": 100, "output_len": 9}',
        )

    def rows(columns: Sequence[str]) -> Rows:
        for number, values in read():
            yield number, None if values is None else tuple(map(values.get, columns))

    return list(first), rows


def _parquet(path: Path) -> Table:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise unsupported(
            "reading Parquet needs pyarrow, which is not installed",
            hint="pip install 'silicast[data]', or give a CSV or JSON Lines file",
            file=str(path),
        ) from None

    def column(batch: Any, name: str) -> list[Any]:
        if name not in batch.schema.names:
            return [None] * batch.num_rows
        result = batch.column(name)
        if pa.types.is_timestamp(result.type):  # nanoseconds have no Python type
            result = result.cast(pa.timestamp("us", tz=result.type.tz), safe=False)
        elif pa.types.is_duration(result.type):
            result = result.cast(pa.duration("us"), safe=False)
        return list(result.to_pylist())

    def rows(columns: Sequence[str]) -> Rows:
        number = 0
        try:
            with pq.ParquetFile(path) as table:
                current = [name for name in columns if name in table.schema_arrow.names]
                for batch in table.iter_batches(_PARQUET_ROWS, columns=current):
                    for row in zip(*(column(batch, name) for name in columns), strict=True):
                        number += 1
                        yield number, row
        except pa.ArrowException as error:
            raise SilicastError(f"is no Parquet file: {error}", file=str(path)) from None

    try:
        return pq.read_schema(path).names, rows
    except pa.ArrowException as error:
        raise SilicastError(f"is no Parquet file: {error}", file=str(path)) from None
