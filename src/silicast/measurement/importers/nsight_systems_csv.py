"""Nsight Systems: the CSV of ``nsys stats --report cuda_gpu_trace`` or ``cuda_gpu_kern_sum``.

Neither holds sizes, so that nothing of it becomes rows but a list of what ran, by family.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar, final

from silicast.measurement.importers.csv_table import (
    header_line,
    number_in,
    rows_below,
    time_column,
)
from silicast.measurement.importers.importer import Importer, Reading, importer
from silicast.measurement.importers.kernel_names import unread_reason
from silicast.measurement.importers.launches import Launch, rows_of
from silicast.measurement.importers.options import Options
from silicast.measurement.importers.sessions import session_of
from silicast.measurement.importers.source import Source
from silicast.measurement.records import Protocol

_TRACE = ("Start (*", "Duration (*", "CorrId", "Name")
_SUMMARY = ("Total Time (*", "Instances", "Name")
_NOTE = "the CSV of nsys has no sizes: import the SQLite export of a run with NVTX ranges for rows"
_DEVICE = re.compile(r"\s*\(\d+\)$")


@final
@importer
class NsightSystemsCsv(Importer):
    """One launch a row, or one kernel a row with the sum of its launches."""

    name: ClassVar[str] = "nsys-csv"
    reads: ClassVar[str] = "Nsight Systems: nsys stats --format csv, cuda_gpu_trace or kern_sum"

    def recognises(self, source: Source) -> bool:
        """See :meth:`Importer.recognises`."""
        return any(header_line(source.first_lines, *names) >= 0 for names in (_TRACE, _SUMMARY))

    def read(self, source: Source, options: Options) -> Reading:
        """See :meth:`Importer.read`."""
        devices: set[str] = set()
        if header_line(source.first_lines, *_TRACE) >= 0:
            launches = list(_launches(source, devices))
        else:
            launches = list(_sums(source))
        names = {_DEVICE.sub("", device) for device in devices}
        session = session_of(
            source, options, "Nsight Systems", reported=names, devices=len(devices),
            protocol=Protocol(timer="nsys", launch="stream", cache="as in the run"),
        )  # fmt: skip
        rows = rows_of(launches, options, str(source.path))
        return Reading(session, rows.records, rows.total_us, rows.understood_us, (_NOTE,))


def _launches(source: Source, devices: set[str]) -> Iterator[Launch]:
    for line, cells in rows_below(source, *_TRACE):
        column, unit = time_column(list(cells), "Duration", source)
        name = cells["Name"]
        if device := cells.get("Device", "").strip():
            devices.add(device)
        took = number_in(cells, column, source, line) * unit
        yield Launch(name, took, line, reason=unread_reason(name))


def _sums(source: Source) -> Iterator[Launch]:
    for line, cells in rows_below(source, *_SUMMARY):
        column, unit = time_column(list(cells), "Total Time", source)
        name = cells["Name"]
        count = max(round(number_in(cells, "Instances", source, line)), 1)
        mean = number_in(cells, column, source, line) * unit / count
        yield Launch(name, mean, line, reason=unread_reason(name), count=count)
