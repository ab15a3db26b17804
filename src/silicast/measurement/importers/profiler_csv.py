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
from dataclasses import dataclass
from typing import final

from silicast.measurement.importers.importer import Importer, Reading
from silicast.measurement.importers.kernel_names import rejection_reason
from silicast.measurement.importers.launches import Launch, reading_of
from silicast.measurement.importers.nvtx import kernel_in
from silicast.measurement.importers.options import Options
from silicast.measurement.importers.sessions import session_of
from silicast.measurement.importers.source import CUT_OFF, Source
from silicast.measurement.records import Protocol

SEARCHED = 200
"""Lines in which a header is looked for."""
UNITS_US = {
    "ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3,
    "s": 1e6, "second": 1e6, "sec": 1e6,
}  # fmt: skip
"""Units of time -> microseconds."""
_DEVICE_NUMBER = re.compile(r"\s*\(\d+\)$")


@final
@dataclass(frozen=True)
class Layout:
    """Columns of one table; a name that ends with "*" stands for all that start so.

    Attributes:
        header: columns that the table is recognised by.
        name, time: columns of the kernel and its time; the time's unit is in brackets in its own
            column, in the column ``unit``, or, without one, in the row below the header.
        count: launches that the time is the sum of; device: what ran the kernel.
        metrics: a row is of a metric, of which these are the time, the first one a kernel.
    """

    header: tuple[str, ...]
    name: str
    time: str
    unit: str = ""
    count: str = ""
    device: str = ""
    metrics: tuple[str, ...] = ()


NSYS = (
    Layout(("Start (*", "Duration (*", "CorrId", "Name"), "Name", "Duration (*", device="Device"),
    Layout(("Total Time (*", "Instances", "Name"), "Name", "Total Time (*", count="Instances"),
)
"""``nsys stats`` of cuda_gpu_trace and of cuda_gpu_kern_sum."""
NCU = (
    Layout(
        ("ID", "Kernel Name", "Metric Name", "Metric Unit", "Metric Value"), "Kernel Name",
        "Metric Value", "Metric Unit", metrics=("gpu__time_duration.sum", "Duration"),
    ),
    Layout(
        ("ID", "Kernel Name", "gpu__time_duration*"), "Kernel Name", "gpu__time_duration*",
        device="device__attribute_display_name",
    ),
)  # fmt: skip
"""``ncu --csv``: page details, a row a metric, and page raw, a column a metric."""


@final
class NsightSystemsCsv(Importer):
    """One launch a row, or one kernel a row with the sum of its launches."""

    name = "nsys-csv"
    reads = "Nsight Systems: nsys stats --format csv, cuda_gpu_trace or kern_sum"

    def recognises(self, source: Source) -> bool:
        """See :meth:`Importer.recognises`."""
        return _table(source, NSYS) is not None

    def read(self, source: Source, options: Options) -> Reading:
        """See :meth:`Importer.read`."""
        protocol = Protocol(timer="nsys", launch="stream", cache="as in the run")
        note = "the CSV of nsys has no sizes: import the SQLite export of a run with NVTX ranges "
        launches, devices = _launches(source, NSYS)
        session = session_of(
            source, options, "Nsight Systems", protocol, devices=len(devices),
            reported={_DEVICE_NUMBER.sub("", device) for device in devices},
        )  # fmt: skip
        return reading_of(launches, session, options, source, notes=(f"{note}for rows",))


@final
class NsightCompute(Importer):
    """One launch of a kernel at a time, replayed for its counters."""

    name = "ncu"
    reads = "Nsight Compute: ncu --csv --page raw or details"

    def recognises(self, source: Source) -> bool:
        """See :meth:`Importer.recognises`."""
        return _table(source, NCU) is not None

    def read(self, source: Source, options: Options) -> Reading:
        """See :meth:`Importer.read`."""
        protocol = Protocol(timer="ncu", launch="stream", cache="cold")
        note = "ncu holds clocks at their base and empties caches unless told otherwise "
        launches, devices = _launches(source, NCU)
        if not launches:
            raise source.error(
                "holds no duration of any kernel", "gpu__time_duration.sum",
                "ncu --metrics gpu__time_duration.sum, or --set basic",
            )  # fmt: skip
        session = session_of(
            source, options, "Nsight Compute", protocol, reported=devices,
            notes=(f"{note}(--clock-control none --cache-control none)",),
        )  # fmt: skip
        return reading_of(launches, session, options, source)


def _table(source: Source, layouts: Sequence[Layout]) -> tuple[Layout, int] | None:
    """The first layout whose header is among the first lines, and the header's line."""
    lines = list(enumerate(source.first_lines[:SEARCHED]))
    for layout in layouts:
        for number, line in lines:
            if line.count(",") + 1 >= len(layout.header):
                cells = _cells(line)
                if all(_column(cells, name) for name in layout.header):
                    return layout, number
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


def _launches(source: Source, layouts: Sequence[Layout]) -> tuple[list[Launch], set[str]]:
    """The kernels of a table, and the devices that ran them."""
    found = _table(source, layouts)
    if found is None:
        raise source.error(f"has no header with {', '.join(layouts[-1].header)}", "header")
    layout, start = found
    launches: list[Launch] = []
    devices: set[str] = set()
    seen: set[tuple[str, str]] = set()
    unit = 0.0
    for line, cells in _rows(source, start):
        column = _column(list(cells), layout.time)
        if layout.metrics:
            key = cells.get("Process ID", ""), cells["ID"]
            if cells["Metric Name"] not in layout.metrics or key in seen:
                continue
            seen.add(key)
            unit = _unit(cells[layout.unit], source, f"line {line}")
        elif not unit:
            bracketed = column.endswith(")")
            unit = _unit(column.partition("(")[2][:-1] if bracketed else cells[column], source,
                         column)  # fmt: skip
            if not bracketed:
                continue  # the row below the header holds units
        if device := cells.get(layout.device, "").strip():
            devices.add(device)
        count = max(round(_number(cells, layout.count, source, line)), 1) if layout.count else 1
        took = _number(cells, column, source, line) * unit / count
        launches.append(_launch(cells, cells[layout.name], took, line, count))
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
    text = cells.get(column, "").replace(",", "").strip()
    try:
        return float(text)
    except ValueError:
        found = f"{column} is {text[:40]!r}, expected a number"
        raise source.error(found, f"line {line}") from None


def _unit(name: str, source: Source, field: str) -> float:
    if name.strip() not in UNITS_US:
        known = f"expected one of {', '.join(UNITS_US)}"
        raise source.error(f"has the unit {name!r}", field, known)
    return UNITS_US[name.strip()]


def _launch(cells: dict[str, str], name: str, took: float, line: int, count: int) -> Launch:
    """A kernel with the sizes of the NVTX range around it, where ``ncu --nvtx`` recorded one."""
    reason = rejection_reason(name)
    for column, text in reversed(cells.items()):
        if "Push/Pop" in column or "Range" in column:
            kernel, why = kernel_in(text, name)
            reason = why or reason
            if kernel is not None:
                return Launch(name, took, line, {**kernel, "cache": "cold"})
    return Launch(name, took, line, reason=reason, count=count)
