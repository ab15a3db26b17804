"""Nsight Compute: ``ncu --csv``, page ``raw`` (a column a metric) or ``details`` (a row a metric).

By itself ncu locks clocks to their base and empties the caches before each kernel: the session
says so, and times are longer than in a run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, final

from silicast.core.errors import SilicastError
from silicast.measurement.importers.recorded_calls import NotAKernelError, kernel_of
from silicast.measurement.importers.csv_table import UNITS_US, header_line, number_in, rows_below
from silicast.measurement.importers.importer import Importer, Reading, importer
from silicast.measurement.importers.kernel_names import unread_reason
from silicast.measurement.importers.launches import Launch, rows_of
from silicast.measurement.importers.nvtx import call_in, with_format
from silicast.measurement.importers.options import Options
from silicast.measurement.importers.sessions import session_of
from silicast.measurement.importers.source import Source
from silicast.measurement.records import Protocol

_METRIC, _LABEL = "gpu__time_duration.sum", "Duration"
_RAW = ("ID", "Kernel Name", "gpu__time_duration*")
_DETAILS = ("ID", "Kernel Name", "Metric Name", "Metric Unit", "Metric Value")
_DEVICE = "device__attribute_display_name"
_NOTE = (
    "ncu holds clocks at their base and empties caches unless told otherwise "
    "(--clock-control none --cache-control none)"
)


@final
@importer
class NsightCompute(Importer):
    """One kernel's launch at a time, replayed for its counters."""

    name: ClassVar[str] = "ncu"
    reads: ClassVar[str] = "Nsight Compute: ncu --csv --page raw or details"

    def recognises(self, source: Source) -> bool:
        """See :meth:`Importer.recognises`."""
        return any(header_line(source.first_lines, *names) >= 0 for names in (_RAW, _DETAILS))

    def read(self, source: Source, options: Options) -> Reading:
        """See :meth:`Importer.read`."""
        devices: set[str] = set()
        details = header_line(source.first_lines, *_DETAILS) >= 0
        launches = list(_of_details(source) if details else _of_raw(source, devices))
        if not launches:
            raise SilicastError(
                "holds no duration of any kernel", file=str(source.path), field=_METRIC,
                hint="ncu --metrics gpu__time_duration.sum, or --set basic",
            )  # fmt: skip
        session = session_of(
            source, options, "Nsight Compute", reported=devices, notes=(_NOTE,),
            protocol=Protocol(timer="ncu", launch="stream", cache="cold"),
        )  # fmt: skip
        rows = rows_of(launches, options, str(source.path))
        return Reading(session, rows.records, rows.total_us, rows.understood_us)


def _of_raw(source: Source, devices: set[str]) -> Iterator[Launch]:
    """The row below the header holds units."""
    units: dict[str, str] | None = None
    column = ""
    for line, cells in rows_below(source, *_RAW):
        if units is None:
            units = cells
            column = next(name for name in cells if name.startswith("gpu__time_duration"))
            continue
        if cells.get(_DEVICE, "").strip():
            devices.add(cells[_DEVICE].strip())
        took = number_in(cells, column, source, line) * _unit(units[column], source, column)
        yield _launch(cells, took, line)


def _of_details(source: Source) -> Iterator[Launch]:
    """One row a metric: those of the duration, one a kernel."""
    seen: set[tuple[str, str]] = set()
    for line, cells in rows_below(source, *_DETAILS):
        key = cells.get("Process ID", ""), cells["ID"]
        if cells["Metric Name"] not in (_METRIC, _LABEL) or key in seen:
            continue
        seen.add(key)
        unit = _unit(cells["Metric Unit"], source, f"line {line}")
        yield _launch(cells, number_in(cells, "Metric Value", source, line) * unit, line)


def _unit(name: str, source: Source, field: str) -> float:
    if name.strip() not in UNITS_US:
        raise SilicastError(
            f"has the unit {name!r}", file=str(source.path), field=field,
            hint=f"expected one of {', '.join(UNITS_US)} in the row below the header",
        )  # fmt: skip
    return UNITS_US[name.strip()]


def _launch(cells: dict[str, str], took: float, line: int) -> Launch:
    """A kernel with the sizes of the NVTX range around it, where ``--nvtx`` recorded one."""
    name = cells["Kernel Name"]
    reason = unread_reason(name)
    for column, text in reversed(cells.items()):
        call = call_in(text) if "Push/Pop" in column or "Range" in column else None
        if call is None:
            continue
        try:
            kernel, reason = with_format(kernel_of(call), name)
        except NotAKernelError as error:
            reason = f"{call.name}: {error}"
            continue
        if kernel is not None:
            kernel["cache"] = "cold"
        return Launch(name, took, line, kernel=kernel, reason=reason)
    return Launch(name, took, line, reason=reason)
