"""Plain tables: CSV, JSON Lines or Parquet with the columns of a kernel and its time."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import Any, final

from silicast.core.decode import decode_json
from silicast.core.errors import SilicastError
from silicast.formats.source import Source
from silicast.formats.tables import TableRow, open_table, read_table
from silicast.measurement.importers.importer import FileReading, Importer, Options, session_of
from silicast.measurement.importers.launches import Launch, reading_of
from silicast.measurement.records.records import Protocol

TIMES_US = {"latency_us": 1.0, "latency_ms": 1e3, "latency_s": 1e6, "seconds": 1e6}
"""Columns of the measured time -> microseconds."""
NOTED = (
    "device", "host", "driver", "date", "notes", "id", "run", "repeat", "repeats", "power_w",
    "clock_mhz", "name", *TIMES_US,
)  # fmt: skip
"""Columns that are no part of a row's kernel."""


@final
class KernelTableImporter(Importer):
    """One kernel a row. What all rows have in common may be left out and stated instead."""

    name = "table"
    reads = "CSV, JSON Lines or Parquet: op, sizes, dtype and latency_us"

    def recognises(self, source: Source) -> bool:
        columns = _parquet_columns(source) if source.is_parquet else _columns(source)
        return not TIMES_US.keys().isdisjoint(columns)

    def read(self, source: Source, options: Options) -> FileReading:
        if source.is_packed:
            raise source.error("is packed", hint="unpack it first")
        kind = ".parquet" if source.is_parquet else ".jsonl" if source.is_json else ".csv"
        rows = read_table(source.path, kind)
        devices = {str(row.values.get("device", "")) for row in rows}
        protocol = Protocol(timer="not stated")
        session = session_of(source, options, "table", protocol, reported=devices)
        return reading_of(_launches(rows, source, options), session, options, source)


def _launches(rows: list[TableRow], source: Source, options: Options) -> Iterator[Launch]:
    stated = options.under("kernel")
    for row in rows:
        took = _time(row, source)
        table = {name: value for name, value in row.values.items() if name not in NOTED} | stated
        for name, value in table.items():  # whole numbers that a table wrote with a point
            if isinstance(value, float) and value.is_integer():
                table[name] = int(value)
        name = str(row.values.get("name") or table.get("variant") or table.get("op") or "row")
        if isinstance(table.get("op"), str):
            yield Launch(name, took, row.number, kernel=table)
        else:
            reason = "holds no op: state it with --set kernel.op"
            yield Launch(name, took, row.number, reason=reason)


def _time(row: TableRow, source: Source) -> float:
    column = next((name for name in TIMES_US if name in row.values), "")
    value = row.values.get(column)
    if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
        result = f"has the time {value!r}, expected a number above 0" if column else "has no time"
        raise source.error(result, f"row {row.number}", f"one of {', '.join(TIMES_US)}")
    return float(value) * TIMES_US[column]


def _columns(source: Source) -> set[str]:
    """Columns of the first row of text."""
    line = next((line for line in source.first_lines if line.strip()), "")
    try:
        if source.is_json:
            return set(decode_json(line, dict[str, Any]))
        return {name.strip().casefold() for name in next(csv.reader([line]), [])}
    except (csv.Error, SilicastError):
        return set()


def _parquet_columns(source: Source) -> set[str]:
    try:
        return {name.casefold() for name in open_table(source.path, ".parquet").columns}
    except SilicastError as error:  # without pyarrow, reading it names what to install
        return set(TIMES_US) if error.kind == "unsupported" else set()
