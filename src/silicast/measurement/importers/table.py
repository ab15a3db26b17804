"""Plain tables: CSV, JSON Lines or Parquet with the columns of a kernel and its time."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, final

import msgspec

from silicast.core.errors import SilicastError
from silicast.measurement.importers.importer import Importer, Reading, importer
from silicast.measurement.importers.launches import Launch, rows_of
from silicast.measurement.importers.options import Options
from silicast.measurement.importers.sessions import session_of
from silicast.measurement.importers.source import Source
from silicast.measurement.records import Protocol
from silicast.measurement.tables import TableRow, read_table

TIMES_US = {"latency_us": 1.0, "latency_ms": 1e3, "latency_s": 1e6, "seconds": 1e6}
"""Columns of the measured time -> microseconds."""
NOTED = (
    "device", "host", "driver", "date", "notes", "id", "run", "repeat", "repeats", "power_w",
    "clock_mhz", "name",
)  # fmt: skip
"""Columns that say something about a row and are no part of its kernel."""


@final
@importer
class Table(Importer):
    """One kernel a row. What all rows have in common may be left out and stated instead."""

    name: ClassVar[str] = "table"
    reads: ClassVar[str] = "CSV, JSON Lines or Parquet: op, sizes, dtype and latency_us"

    def recognises(self, source: Source) -> bool:
        """See :meth:`Importer.recognises`."""
        if source.is_parquet:
            return not TIMES_US.keys().isdisjoint(_parquet_columns(source))
        return _kind(source) in (".csv", ".jsonl") and not TIMES_US.keys().isdisjoint(
            _columns(source)
        )

    def read(self, source: Source, options: Options) -> Reading:
        """See :meth:`Importer.read`."""
        if source.is_packed:
            raise SilicastError(
                "is packed", file=str(source.path), field="file", hint="unpack it first"
            )
        rows = read_table(source.path, ".parquet" if source.is_parquet else _kind(source))
        devices = {str(row.values.get("device", "")) for row in rows}
        session = session_of(
            source, options, "table", reported=devices, protocol=Protocol(timer="not stated")
        )
        found = rows_of(_launches(rows, source, options), options, str(source.path))
        return Reading(session, found.records, found.total_us, found.understood_us)


def _launches(rows: list[TableRow], source: Source, options: Options) -> Iterator[Launch]:
    stated = options.own("kernel")
    for row in rows:
        took = _time(row, source)
        table = {
            name: value
            for name, value in row.values.items()
            if name not in NOTED and name not in TIMES_US
        }
        table = _cleaned({**table, **stated})
        name = str(row.values.get("name") or table.get("variant") or table.get("op") or "row")
        if not isinstance(table.get("op"), str):
            yield Launch(name, took, row.number, reason="says no op: state it with --set kernel.op")
        else:
            yield Launch(name, took, row.number, kernel=table)


def _cleaned(table: Mapping[str, Any]) -> dict[str, Any]:
    """Whole numbers that a table wrote with a point as whole numbers."""
    return {
        name: int(value) if isinstance(value, float) and value.is_integer() else value
        for name, value in table.items()
    }


def _time(row: TableRow, source: Source) -> float:
    stated = [name for name in TIMES_US if name in row.values]
    value = row.values[stated[0]] if stated else None
    if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
        raise SilicastError(
            f"has the time {value!r}, expected a number above 0" if stated else "has no time",
            file=str(source.path), field=f"row {row.number}",
            hint=f"one of {', '.join(TIMES_US)}",
        )  # fmt: skip
    return float(value) * TIMES_US[stated[0]]


def _kind(source: Source) -> str:
    """JSON Lines or CSV, as the first line looks."""
    return ".jsonl" if source.is_json else ".csv"


def _columns(source: Source) -> set[str]:
    """Columns of the first row of text."""
    line = next((line for line in source.first_lines if line.strip()), "")
    if not source.is_json:
        try:
            return {name.strip().casefold() for name in next(csv.reader([line]), [])}
        except csv.Error:
            return set()
    try:
        return set(msgspec.json.decode(line, type=dict[str, Any]))
    except (msgspec.MsgspecError, RecursionError):
        return set()


def _parquet_columns(source: Source) -> set[str]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        return set(TIMES_US)  # reading it says what to install
    try:
        return {name.casefold() for name in pq.read_schema(source.path).names}
    except (pa.ArrowException, OSError):
        return set()
