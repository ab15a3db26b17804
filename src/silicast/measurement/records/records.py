"""Schema of a file of measurements (one record a line, JSON), and reading one file.

A file starts with a :class:`Session`; every later record names the session that it belongs to.
Kernels and runs are written as in a scenario, so that they can be predicted without translation.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, final

import msgspec
from msgspec import Meta

from silicast.core.decode import Strict, decode_json
from silicast.core.errors import SilicastError
from silicast.core.files import read_bounded

FORMAT = 1
"""Version of the schema."""
ONE_A_LINE = "one record a line, as `silicast measure` writes them"
MAX_BYTES = 1 << 30
WRITTEN_BY = "a file that `silicast measure -o FILE` or `silicast import` wrote"

Positive = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=0)]
Text = Annotated[str, Meta(max_length=2000)]
Columns = dict[str, Any]
"""A ``kernel`` table or a scenario."""


class _Record(Strict, frozen=True, tag_field="record"):
    """A line; unknown fields are errors."""


@final
class Protocol(Strict, frozen=True):
    """How times were taken.

    Attributes:
        timer: "perf_counter", "cuda_event", "cuda_graph", or the tool that measured ("nsys").
        warm_up: runs before the counted ones; repeats, seconds: least number and limit of these.
        launch: "stream" or "graph"; cache: state before each run, "warm" or "cold".
        statistic: of the repeats, reported as ``latency_us``.
    """

    timer: str
    warm_up: Count = 0
    repeats: Count = 0
    seconds: float = 0.0
    launch: str = "stream"
    cache: str = "warm"
    statistic: str = "median"


@final
class Session(_Record, frozen=True, tag="session"):
    """Machine, software and protocol of a part of the file.

    Attributes:
        id: unique in the file; started: ISO date and time, UTC; device: catalog name or path.
        device_reported: its name by the driver or operating system; devices: number of them.
        host: CPU that fed them; stack: software -> version; machine: other facts.
        source: program or tool that measured; notes: remarks on the validity of the times.
    """

    id: Text
    started: Text
    format: int = FORMAT
    device: Text = ""
    device_reported: Text = ""
    devices: Annotated[int, Meta(ge=1)] = 1
    host: Text = ""
    stack: dict[str, str] = {}
    machine: dict[str, Any] = {}
    protocol: Protocol | None = None
    source: Text = "silicast measure"
    notes: list[Text] = []


@final
class RepeatSpread(Strict, frozen=True):
    """Variation among repeats.

    Attributes:
        p05, p95: quantiles, in the unit of the value.
        drift: median of the last third over the median of the first, minus one.
    """

    p05: float
    p95: float
    repeats: Count
    drift: float = 0.0


@final
class MachineConditions(Strict, frozen=True):
    """State of the machine during a measurement; None = not readable.

    Attributes:
        load: cores of the host kept busy by other processes.
        reference: latest time of the session's reference kernel over its first time.
    """

    clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    load: float | None = None
    reference: float | None = None


@final
class KernelRow(_Record, frozen=True, tag="kernel"):
    """A measured kernel.

    Attributes:
        session: id of its session; at: ISO date and time, UTC.
        kernel: a ``kernel`` table of a scenario: op, sizes, dtype, library, launch, cache.
        latency_us: the statistic that the session's protocol names.
        flags: reasons for doubt: "drift", "throttled", "busy", "noisy", "unsteady".
        name: in the tool that measured it; row: of the imported file, 0 = measured here.
    """

    session: Text
    kernel: Columns
    latency_us: Positive
    at: Text = ""
    spread: RepeatSpread | None = None
    conditions: MachineConditions | None = None
    flags: list[Text] = []
    name: Text = ""
    row: Count = 0


@final
class HostRow(_Record, frozen=True, tag="host"):
    """A measured time of the host, in microseconds.

    Attributes:
        quantity: "dispatch" (one eager op), "between" (on a CPU, Python between two ops, per op),
            "graph_launch", "sync" (synchronisation with an idle device), "round_trip" (from the end
            of a kernel whose result is read to the start of the next), "launch" (an empty kernel,
            launched and awaited), "step" (an engine between two steps), "request" (an engine, per
            request).
        engine: whose time it is ("torch-eager", "vllm"); version: of the engine.
        states: conditions of the measurement ({"batch": 8}).
    """

    session: Text
    quantity: Text
    value_us: Positive
    engine: Text = ""
    version: Text = ""
    states: Columns = {}
    at: Text = ""
    spread: RepeatSpread | None = None
    flags: list[Text] = []
    row: Count = 0


@final
class CollectiveRow(_Record, frozen=True, tag="collective"):
    """A measured collective.

    Attributes:
        collective: the ``workload`` of a collective scenario; gpus_per_node: 0 = unknown.
    """

    session: Text
    collective: Columns
    latency_us: Positive
    gpus_per_node: Count = 0
    at: Text = ""
    spread: RepeatSpread | None = None
    flags: list[Text] = []
    row: Count = 0


@final
class RunRow(_Record, frozen=True, tag="run"):
    """A measured run of a whole model, engine or job.

    Attributes:
        scenario: as ``silicast run`` reads it; file names in it are relative to this file.
        metrics: measured values, under the names of the answer ("e2e_ms", "ttft_p50_ms").
        spread: of each metric that was repeated.
    """

    session: Text
    scenario: Columns
    metrics: dict[str, Positive]
    spread: dict[str, RepeatSpread] = {}
    at: Text = ""
    flags: list[Text] = []
    name: Text = ""
    row: Count = 0


@final
class FailedRow(_Record, frozen=True, tag="failed"):
    """A measurement that failed; it is not tried again in this file.

    Attributes:
        what: the ``kernel`` table, collective or scenario.
        reason: "out_of_memory", "unsupported", "error", "timeout"; message: text of the error.
    """

    session: Text
    what: Columns
    reason: Text
    message: Text = ""
    at: Text = ""


@final
class UnreadRow(_Record, frozen=True, tag="unread"):
    """An imported kernel that could not be identified; listed, not dropped.

    Attributes:
        name: in the tool that measured it; count: of its runs; total_us: of all of them.
    """

    session: Text
    name: Text
    count: Count
    total_us: float
    reason: Text = ""
    row: Count = 0


Measurement = KernelRow | HostRow | CollectiveRow | RunRow
Record = Session | Measurement | FailedRow | UnreadRow


def utc_now() -> str:
    """ISO date and time, UTC, to the microsecond: distinguishes the rows of a session."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


_ANY_RECORD: Any = Record
_DECODER: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)


@final
@dataclass(frozen=True)
class Measurements:
    """Records of one file by kind, each in the order of the file.

    Attributes:
        notes: what a reader should know, such as a last line that was truncated.
    """

    path: Path
    sessions: tuple[Session, ...] = ()
    kernels: tuple[KernelRow, ...] = ()
    hosts: tuple[HostRow, ...] = ()
    collectives: tuple[CollectiveRow, ...] = ()
    runs: tuple[RunRow, ...] = ()
    failed: tuple[FailedRow, ...] = ()
    unread: tuple[UnreadRow, ...] = ()
    notes: tuple[str, ...] = ()

    def session(self, name: str) -> Session:
        """The session with an id.

        Raises:
            KeyError: the file has none.
        """
        return {session.id: session for session in self.sessions}[name]

    def records_of(self, name: str) -> dict[type, list[Record]]:
        """Records of a session by their class, failures among them."""
        kinds: tuple[tuple[Any, ...], ...] = (
            self.kernels,
            self.hosts,
            self.collectives,
            self.runs,
            self.failed,
            self.unread,
        )
        table = {type(kind[0]): [r for r in kind if r.session == name] for kind in kinds if kind}
        return {kind: rows for kind, rows in table.items() if rows}

    def rows_of(self, name: str) -> int:
        """Number of records of a session, failures among them."""
        return sum(map(len, self.records_of(name).values()))


def read_measurements(path: Path) -> Measurements:
    """Reads a file of measurements. A truncated last line is skipped and noted.

    Raises:
        SilicastError: no regular file of at most 1 GiB; or the line of invalid JSON, an unknown
            session or a repeated row.
    """
    content = read_bounded(path, MAX_BYTES, "a file of measurements", WRITTEN_BY)
    whole, tail = complete_lines(content)
    lines, notes = whole.split(b"\n"), []
    if tail:
        try:
            decoded(tail, path, len(lines))
            lines.append(tail)
        except SilicastError:
            notes.append(
                f"line {len(lines)} is truncated ({len(tail)} bytes) and was skipped: writing was "
                "interrupted; `silicast measure -o` on this file repairs it"
            )
    return measurements_of(path, lines, notes)


def complete_lines(content: bytes) -> tuple[bytes, bytes]:
    r"""The part that ends with a newline, and the rest.

    >>> complete_lines(b"1\n2\n3")
    (b'1\n2\n', b'3')
    """
    end = content.rfind(b"\n") + 1
    return content[:end], content[end:]


def decoded(line: bytes, path: Path, number: int) -> Record:
    """One line; errors name its number."""
    record: Record = decode_json(
        line,
        _ANY_RECORD,
        file=str(path),
        page="docs/how-to/measure-a-machine.md",
        hint=ONE_A_LINE,
        line=number,
        decoder=_DECODER.decode,
    )
    return record


def measurements_of(path: Path, lines: Sequence[bytes], notes: Sequence[str]) -> Measurements:
    """Decodes lines, checks the order of sessions and rows, and sorts records by kind."""
    kinds: dict[type, list[Any]] = {}
    sessions: set[str] = set()
    seen: dict[Hashable, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        record = decoded(line, path, number)
        _check_session(record, number, sessions, path)
        key = _identity(record)
        if key is not None and seen.setdefault(key, number) != number:
            raise SilicastError(
                f"line {number} repeats line {seen[key]}: the same thing at the same time",
                file=str(path),
                hint="were two copies of one file concatenated? Remove one of the lines",
            )
        kinds.setdefault(type(record), []).append(record)
    if not sessions:
        raise SilicastError(
            "holds no session, which states the machine", file=str(path), hint=WRITTEN_BY
        )

    def rows_of(kind: type) -> tuple[Any, ...]:
        return tuple(kinds.get(kind, ()))

    return Measurements(
        path,
        rows_of(Session),
        rows_of(KernelRow),
        rows_of(HostRow),
        rows_of(CollectiveRow),
        rows_of(RunRow),
        rows_of(FailedRow),
        rows_of(UnreadRow),
        tuple(notes),
    )


def _check_session(record: Record, number: int, sessions: set[str], path: Path) -> None:
    """A session comes once and before its rows; ``sessions`` gets a new one."""
    problem, field, hint = "", "session", ""
    if not isinstance(record, Session):
        if record.session not in sessions:
            problem = f"no session {record.session!r} comes before it"
            hint = "keep the line that starts with its session"
    elif record.format != FORMAT:
        problem, field = f"format {record.format} is not supported, expected {FORMAT}", "format"
        hint = "a newer Silicast wrote it"
    elif record.id in sessions:
        problem, field = f"session {record.id!r} comes twice", "id"
    else:
        sessions.add(record.id)
    if problem:
        raise SilicastError(f"line {number}: {problem}", field=field, file=str(path), hint=hint)


_SUBJECTS: dict[type, tuple[str, ...]] = {
    KernelRow: ("kernel",),
    HostRow: ("quantity", "engine", "version", "states"),
    CollectiveRow: ("collective",),
    RunRow: ("scenario", "name"),
    FailedRow: ("what",),
}
"""Fields that state what a row measured."""


def _identity(record: Any) -> Hashable:
    """What must not be repeated; None where a record has neither a time stamp nor a number."""
    fields, row = _SUBJECTS.get(type(record)), getattr(record, "row", 0)
    if fields is None or not (record.at or row):
        return None
    subject = [getattr(record, name) for name in fields]
    subject_bytes = msgspec.json.encode(subject, order="deterministic")
    return (type(record).__name__, record.session, subject_bytes, record.at, row)
