"""Nsight Systems: the SQLite database of ``nsys export --type sqlite`` (or ``nsys stats``).

Kernels get their sizes from the innermost NVTX range of PyTorch around the call that launched
them. Those that a graph replays have no call of their own, and are known by their names alone.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any, final
from urllib.parse import quote

from silicast.formats.source import Source
from silicast.measurement.importers.host_costs import RuntimeCall, host_costs
from silicast.measurement.importers.importer import FileReading, Importer, Options, session_of
from silicast.measurement.importers.kernel_names import call_in, rejection_reason, with_format
from silicast.measurement.importers.launches import Launch, reading_of
from silicast.measurement.importers.operator_spans import (
    NOWHERE,
    DeviceSpan,
    DeviceTimes,
    OperatorSpan,
    OperatorSpans,
    device_times,
)
from silicast.measurement.records.records import Protocol

KERNELS, RUNTIME, NVTX = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"
GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_TRANSFERS = {
    "CUPTI_ACTIVITY_KIND_MEMCPY": ("[CUDA memcpy {}]", "copyKind"),
    "CUPTI_ACTIVITY_KIND_MEMSET": ("[CUDA memset]", "value"),
}
_DIRECTIONS = {1: "Host-to-Device", 2: "Device-to-Host", 8: "Device-to-Device", 10: "Peer-to-Peer"}
_RANGES = (59, 60, 70, 71)
"""Kinds of NVTX events that have an end: pushed and started ranges, of NVTX and of NVTXT."""
_PROCESS = 1 << 24
"""Global numbers hold the process above the thread, 24 bits each."""
MAX_KERNELS = 20_000_000
_NO_RANGES = (
    "no kernel has sizes: profile inside torch.autograd.profiler.emit_nvtx(record_shapes=True)"
)
_WHOLE_GRAPH = "graphs were recorded as a whole (nsys profile --cuda-graph-trace=node)"
_EXPORT = "nsys export --type sqlite report.nsys-rep"


@final
class NsightSystems(Importer):
    """A database with the kernels that CUPTI recorded."""

    name = "nsys"
    reads = "Nsight Systems: report.sqlite"

    def recognises(self, source: Source) -> bool:
        if not source.is_database:
            return False
        try:
            with closing(_open(source)) as database:
                tables = _tables(database)
        except sqlite3.Error:  # cut off or damaged: its first page still names the tables
            return any(name in source.head for name in (b"CUPTI_ACTIVITY_KIND_", b"NVTX_EVENTS"))
        prefixes = ("CUPTI_ACTIVITY_KIND_", "NVTX_EVENTS", "TARGET_INFO_")
        return "StringIds" in tables and any(name.startswith(prefixes) for name in tables)

    def read(self, source: Source, options: Options) -> FileReading:
        if not source.is_database:
            raise source.error("is no SQLite database", hint=_EXPORT)
        try:
            with closing(_open(source)) as database:
                return _read(_NsightDatabase(database, source), options)
        except sqlite3.Error as error:
            damaged = f"is a damaged database: {error}"
            raise source.error(damaged, hint=f"export it anew: {_EXPORT}") from None


def _open(source: Source) -> sqlite3.Connection:
    """The database, for reading alone; text that is no UTF-8 is replaced."""
    address = f"file:{quote(str(source.path.absolute()))}?mode=ro&immutable=1"
    database = sqlite3.connect(address, uri=True)
    database.text_factory = lambda raw: raw.decode("utf-8", errors="replace")
    return database


def _tables(database: sqlite3.Connection) -> set[str]:
    """Real tables: a view may run for ever."""
    return {row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type='table'")}


@final
class _NsightDatabase:
    """An Nsight Systems database and its tables."""

    def __init__(self, database: sqlite3.Connection, source: Source) -> None:
        self.database, self.source = database, source
        self.tables = _tables(database)
        if not self.tables & {KERNELS, GRAPHS}:
            missing = f"has no table {KERNELS}: no CUDA kernel was recorded"
            raise source.error(missing, KERNELS, "nsys profile --trace=cuda,nvtx")
        self.strings = dict(self.rows("StringIds", "id", "value"))

    def rows(self, table: str, *columns: str) -> Iterator[tuple[Any, ...]]:
        """Columns of a table in the order of their start, None for one that it does not have.

        Raises:
            SilicastError: the first of them is missing.
        """
        if table not in self.tables:
            return iter(())
        present = {row[1] for row in self.database.execute(f"PRAGMA table_info({table})")}
        if columns[0] not in present:
            other = "a database of another version of Nsight Systems?"
            raise self.source.error(f"has no column {columns[0]!r}", table, other)
        wanted = ", ".join(name if name in present else "NULL" for name in columns)
        order = " ORDER BY start" if "start" in columns else ""
        return self.database.execute(f"SELECT {wanted} FROM {table}{order}")  # noqa: S608

    def timed(self, table: str, *columns: str) -> Iterator[tuple[int, float, tuple[Any, ...]]]:
        """Rows of a table with a start and an end: number, microseconds, other columns.

        Raises:
            SilicastError: times are no numbers, or an end is before its start.
        """
        for row, (start, end, *remaining) in enumerate(
            self.rows(table, "start", "end", *columns), 1
        ):
            if not isinstance(start, int) or not isinstance(end, int) or end < start:
                raise self.source.error(
                    f"row {row} runs from {start!r} to {end!r}",
                    f"{table}.end",
                    "expected whole nanoseconds, the end after the start",
                )
            yield row, (end - start) / 1e3, (start, *remaining)

    def text(self, number: Any) -> str:
        """A string by its number."""
        return str(self.strings.get(number, number))


def _read(report: _NsightDatabase, options: Options) -> FileReading:
    calls = {
        (_process(thread), correlation): (thread, start)
        for correlation, thread, start in report.rows(
            RUNTIME, "correlationId", "globalTid", "start"
        )
    }
    operators = _operators(report)
    kernels, others = [*_kernels(report, operators, calls)], [*_transfers(report)]
    launches = [*kernels, *others]
    if not (kernels or any(launch.reason == _WHOLE_GRAPH for launch in others)):
        missing = f"{KERNELS} is empty: no CUDA kernel was recorded"
        raise report.source.error(missing, KERNELS, "nsys profile --trace=cuda,nvtx")
    devices = {row[0] for row in report.rows(KERNELS, "deviceId")}
    names = dict(report.rows("TARGET_INFO_GPU", "id", "name"))
    exported = dict(report.rows("META_DATA_EXPORT", "name", "value"))
    version = exported.get("EXPORT_PRODUCT_VERSION")
    host_rows, noted = host_costs(
        _runtime_calls(report), options.session, "torch-eager" if operators.spans else ""
    )
    session = session_of(
        report.source,
        options,
        "Nsight Systems",
        Protocol(timer="nsys", launch="stream", cache="as in the run"),
        reported={str(names[device]) for device in devices if device in names},
        devices=len(devices),
        stack={"nsys": str(version)} if version is not None else {},
        machine=noted,
    )
    notes = () if operators.spans else (_NO_RANGES,)
    reading = reading_of(
        launches, session, options, report.source, exclusive=False, more=host_rows, notes=notes
    )
    return reading.at(_times(report) if len(devices) < 2 else None)


def _times(report: _NsightDatabase) -> DeviceTimes | None:
    """When the device worked."""
    spans = [
        DeviceSpan(start / 1e3, took, stream, row)
        for table in (KERNELS, *_TRANSFERS)
        for row, took, (start, stream) in report.timed(table, "streamId")
    ]
    return device_times(spans, report.source, f"{KERNELS}.start") if spans else None


def _operators(report: _NsightDatabase) -> OperatorSpans:
    """NVTX ranges that name an operator of PyTorch with its sizes."""
    spans = []
    columns = ("start", "end", "eventType", "text", "textId", "globalTid")
    for start, end, kind, text, number, thread in report.rows(NVTX, *columns):
        if kind in _RANGES and end is not None:
            call = call_in(str(text) if text is not None else report.text(number))
            if call is not None:
                spans.append(OperatorSpan(start, end, thread, call))
    return OperatorSpans(spans)


def _kernels(
    report: _NsightDatabase,
    operators: OperatorSpans,
    calls: Mapping[tuple[int, Any], tuple[Any, Any]],
) -> Iterator[Launch]:
    """Kernels of one operator as one launch, the others by themselves."""
    groups: dict[int, list[tuple[str, float, int]]] = {}
    columns = ("correlationId", "demangledName", "shortName", "graphNodeId", "globalPid")
    for row, took, (_, correlation, long, short, node, process) in report.timed(KERNELS, *columns):
        if row > MAX_KERNELS:
            more = f"holds more than {MAX_KERNELS} kernels"
            raise report.source.error(more, KERNELS, "record fewer steps", kind="limit")
        name = report.text(long if long is not None else short)
        call = calls.get((_process(process), correlation))
        owner = NOWHERE
        if node is None and call is not None:
            owner = operators.owner(operators.at(*call))
        if owner == NOWHERE:
            reason = rejection_reason(name)
            yield Launch(name, took, row, reason=f"in a graph; {reason}" if node else reason)
        else:
            groups.setdefault(owner, []).append((name, took, row))
    for owner, parts in groups.items():
        name, _, row = max(parts, key=lambda part: part[1])
        kernel, reason = with_format(operators.tables[owner] or {}, name)
        yield Launch(name, sum(part[1] for part in parts), row, kernel=kernel, reason=reason)


def _process(number: Any) -> int:
    """The process in a global number of a process or a thread: correlations are its own."""
    return number // _PROCESS % _PROCESS if isinstance(number, int) else 0


def _transfers(report: _NsightDatabase) -> Iterator[Launch]:
    for table, (name, column) in _TRANSFERS.items():
        for row, took, (_, kind) in report.timed(table, column):
            shown = name.format(_DIRECTIONS.get(kind, f"kind {kind}"))
            yield Launch(shown, took, row, reason=rejection_reason(shown))
    for row, took, (_, graph) in report.timed(GRAPHS, "graphId"):
        yield Launch(f"graph {graph}", took, row, reason=_WHOLE_GRAPH)


def _runtime_calls(report: _NsightDatabase) -> Iterator[RuntimeCall]:
    for _, took, (start, name, thread) in report.timed(RUNTIME, "nameId", "globalTid"):
        yield RuntimeCall(report.text(name), thread, start / 1e3, took)
