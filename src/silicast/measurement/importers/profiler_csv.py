"""Tables of CSV that Nsight Systems and Nsight Compute print, possibly among other lines.

``nsys stats`` prints no sizes, so that all of its rows are listed by family. ``ncu`` holds clocks
at their base and empties the caches before each kernel unless told otherwise: the session notes
it, and times are longer than in a run.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import final

from silicast.core.decode import Strict
from silicast.formats.source import CUT_OFF, Source
from silicast.measurement.importers.field_map import DECIMAL_POINT, is_decimal_comma, number
from silicast.measurement.importers.importer import (
    FileReading,
    Importer,
    Options,
    from_catalog,
    session_of,
)
from silicast.measurement.importers.kernel_names import kernel_in, rejection_reason
from silicast.measurement.importers.launches import Launch, reading_of
from silicast.measurement.records.records import Protocol
from silicast.scenario.kernels.kernel_case import CACHES

SEARCHED = 200
"""Lines in which a header is looked for."""
UNITS_US = {
    "ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3,
    "s": 1e6, "second": 1e6, "sec": 1e6,
}  # fmt: skip
"""Units of time -> microseconds."""
_DEVICE_NUMBER = re.compile(r"\s*\(\d+\)$")


@final
class ProfilerTable(Strict, frozen=True):
    """Columns of one table; a name that ends with "*" stands for all that start so.

    Attributes:
        header: columns that the table is recognised by.
        name, time: columns of the kernel and its time; the time's unit is in brackets in its own
            column, in the column ``unit``, or, without one, in the row below the header.
        count: launches that the time is the sum of; device: what ran the kernel.
        metric: column of the metric that a row is of, where ``time_metrics`` are the times and
            ``launch`` the columns that name a launch.
    """

    header: list[str]
    name: str
    time: str
    unit: str = ""
    count: str = ""
    device: str = ""
    metric: str = ""
    time_metrics: list[str] = []
    launch: list[str] = []


@final
class Profiler(Strict, frozen=True):
    """A tool that prints tables; one file of ``catalog/profiler_tables``.

    Attributes:
        tool: its name; reads: its files; protocol: how it times.
        note: what a reader of its tables must know; record: how to record times with it.
    """

    tool: str
    reads: str
    protocol: Protocol
    tables: list[ProfilerTable]
    note: str
    record: str


@final
class ProfilerCsv(Importer):
    """The tables of one profiler."""

    def __init__(self, name: str, profiler: Profiler) -> None:
        self.name, self.reads, self.profiler = name, profiler.reads, profiler

    @classmethod
    def instances(cls) -> list[Importer]:
        """One for each profiler."""
        return [cls(*each) for each in from_catalog("profiler_tables", Profiler).items()]

    def recognises(self, source: Source) -> bool:
        return _table(source, self.profiler.tables) is not None

    def read(self, source: Source, options: Options) -> FileReading:
        profiler = self.profiler
        launches, devices = _launches(source, profiler)
        if not launches:
            raise source.error("holds no time of any kernel", "header", profiler.record)
        session = session_of(
            source,
            options,
            profiler.tool,
            profiler.protocol,
            devices=len(devices),
            reported={_DEVICE_NUMBER.sub("", device) for device in devices},
            notes=(profiler.note,),
        )
        return reading_of(launches, session, options, source)


def _table(source: Source, tables: list[ProfilerTable]) -> tuple[ProfilerTable, int] | None:
    """The first layout whose header is among the first lines, and the header's line."""
    lines = list(enumerate(source.first_lines[:SEARCHED]))
    for table in tables:
        columns = {*table.header, table.name, table.time, table.unit, table.metric} - {""}
        for number_of_line, line in lines:
            if line.count(",") + 1 >= len(columns):
                cells = _cells(line)
                if all(_column(cells, name) for name in columns):
                    return table, number_of_line
    return None


def _cells(line: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line]), [])]
    except csv.Error:
        return []


def _column(columns: Sequence[str], name: str) -> str:
    """The first column of that name or pattern; "" for none."""
    start = name.removesuffix("*")
    fits = (c for c in columns if (c.startswith(start) if name.endswith("*") else c == name))
    return next(fits, "")


def _launches(source: Source, profiler: Profiler) -> tuple[list[Launch], set[str]]:
    """The kernels of a table, and the devices that ran them."""
    result = _table(source, profiler.tables)
    if result is None:
        header = ", ".join(profiler.tables[-1].header)
        raise source.error(f"has no header with {header}", "header")
    table, start = result
    launches: list[Launch] = []
    devices: set[str] = set()
    seen: set[tuple[str, ...]] = set()
    unit = 0.0
    rows = list(_rows(source, start))
    decimal = any("," in x and is_decimal_comma(x) for _, cells in rows for x in cells.values())
    for line, cells in rows:
        column = _column(list(cells), table.time)
        if table.metric:
            launch_key = tuple(cells.get(name, "") for name in table.launch)
            if cells[table.metric] not in table.time_metrics or launch_key in seen:
                continue
            seen.add(launch_key)
            unit = _unit(cells[table.unit], source, f"line {line}")
        elif not unit:
            bracketed = column.endswith(")")
            name = column.partition("(")[2][:-1] if bracketed else cells[column]
            unit = _unit(name, source, column)
            if not bracketed:
                continue  # the row below the header holds units
        if device := cells.get(table.device, "").strip():
            devices.add(device)
        if decimal and any("," in cells.get(name, "") for name in (table.count, column)):
            raise source.error("a comma is the decimal point", f"line {line}", DECIMAL_POINT)
        count = max(round(_number(cells, table.count, source, line)), 1) if table.count else 1
        took = _number(cells, column, source, line) * unit / count
        launch = Launch(cells[table.name], took, line, count=count)
        launches.append(_sized(launch, cells, profiler.protocol.cache))
    return launches, devices


def _rows(source: Source, start: int) -> Iterator[tuple[int, dict[str, str]]]:
    """Rows of the table below a header: number of each line, and its cells by column.

    Lines of a tool's own messages (``==PROF==``) are skipped; the table ends at an empty line.
    """
    lines = source.text().splitlines()
    body = "\n".join(line for line in lines[start:] if not line.startswith("=="))
    reader = csv.reader(io.StringIO(body))
    try:
        header = [name.strip() for name in next(reader)]
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                return
            line = start + reader.line_num
            if len(cells) != len(header):
                different = f"has {len(cells)} cells, expected {len(header)}"
                raise source.error(different, f"line {line}", CUT_OFF)
            yield line, dict(zip(header, cells, strict=True))
    except csv.Error as error:
        raise source.error(f"is no CSV: {error}", f"line {start + reader.line_num}") from None


def _number(cells: dict[str, str], column: str, source: Source, line: int) -> float:
    """A cell as a number; commas between thousands are taken out."""
    text = cells.get(column, "").strip()
    if (value := number(text)) is None:
        raise source.error(f"{column} is {text[:40]!r}, expected a number", f"line {line}")
    return value


def _unit(name: str, source: Source, field: str) -> float:
    if name.strip() not in UNITS_US:
        units = f"expected one of {', '.join(UNITS_US)}"
        raise source.error(f"has the unit {name!r}", field, units)
    return UNITS_US[name.strip()]


def _sized(launch: Launch, cells: dict[str, str], cache: str) -> Launch:
    """With the sizes of the NVTX range around it, where the tool recorded one."""
    reason = rejection_reason(launch.name)
    for column, text in reversed(cells.items()):
        if "Push/Pop" in column or "Range" in column:
            kernel, why = kernel_in(text, launch.name)
            reason = why or reason
            if kernel is not None:
                state = {"cache": cache} if cache in CACHES else {}
                return replace(launch, kernel={**kernel, **state})
    return replace(launch, reason=reason)
