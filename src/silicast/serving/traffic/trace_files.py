"""Trace files: CSV, JSON Lines and Parquet, a request a row, read row by row.

Columns are found by their names, in upper or lower case
(:mod:`~silicast.serving.traffic.trace_rows`); others are ignored.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from silicast.core.errors import SilicastError
from silicast.formats.tables import listed, open_table
from silicast.serving.traffic.trace_rows import TraceFields, TraceRule, read_rows
from silicast.serving.traffic.traffic import Traffic

TRACE = "trace"
"""Column that names the trace of a row, in a file of several."""


def read_trace(
    path: Path, rule: TraceRule | None = None, *, timed: bool = True, named: str = ""
) -> Traffic:
    """The requests of a trace file.

    Args:
        named: the trace to read, of a file with a column ``trace``; "" = all rows.
        rule: how many rows, and what becomes of bad ones; its ``file`` is set to ``path``.
        timed: times are read; without them all requests come at time 0.

    Raises:
        SilicastError: names file, line and column, what was expected and found, and how many rows
            are bad; of kind "io" where the file cannot be read, "unsupported" where pyarrow is
            missing.
    """
    kind = path.suffix.casefold()
    rule = replace(rule or TraceRule(), file=str(path))
    if kind == ".parquet":
        rule = replace(rule, place=lambda row, column: f"row {row}, {column}")
    try:
        table = open_table(path)
        columns = TraceFields.among(
            (name.strip().casefold() for name in table.columns), timed=timed
        )
        columns_by_name = {name.strip().casefold(): name for name in table.columns}
        names = columns.names
        if named and TRACE not in columns_by_name:
            raise SilicastError(f"no column {TRACE}: all rows are of one trace", field=TRACE)
        rows = table.rows([columns_by_name.get(name, name) for name in (*names, TRACE)])
        if named:
            rows = ((number, row) for number, row in rows if row and row[len(names)] == named)
        rows = ((number, row and row[: len(names)]) for number, row in rows)
        if kind == ".csv":  # the fourth column is a list of blocks, as JSON in a cell
            rows = ((number, row and (*row[:3], listed(row[3]), *row[4:])) for number, row in rows)
        return read_rows(rows, columns, rule)
    except SilicastError as error:
        raise error.located(file=error.file or str(path)) from None
