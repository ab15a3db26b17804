"""What a file of measurements holds, read strictly."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import msgspec

from silicast.core.errors import SilicastError
from silicast.measurement.records import (
    FORMAT,
    CollectiveRow,
    FailedRow,
    HostRow,
    KernelRow,
    Measurement,
    Record,
    RunRow,
    Session,
    UnreadRow,
)

_DECODER: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)


@final
@dataclass(frozen=True)
class Measurements:
    """The records of one file, each kind in the order in which it was measured.

    Attributes:
        notes: what a reader should know, such as a last line that was cut off.
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
        """The session that a record names.

        Raises:
            KeyError: the file has none of that name.
        """
        for session in self.sessions:
            if session.id == name:
                return session
        raise KeyError(name)

    def rows_of(self, name: str) -> int:
        """How many records belong to a session, failures among them."""
        kinds = (
            self.kernels,
            self.hosts,
            self.collectives,
            self.runs,
            self.failed,
            self.unread,
        )
        return sum(record.session == name for kind in kinds for record in kind)


def read_measurements(path: Path) -> Measurements:
    """A file of measurements.

    A last line that was cut off, as of a run that was killed while it wrote, is left out and noted.

    Raises:
        SilicastError: kind "io" if it cannot be read; else the line is named: no JSON, no record,
            an unknown session, or the same kernel at the same moment twice.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SilicastError(
            f"cannot read: {error.strerror or error}",
            kind="io",
            file=str(path),
            hint="a file that `silicast measure -o FILE` or `silicast import` wrote",
        ) from None
    whole, tail = complete_lines(content)
    notes = []
    lines = whole.split(b"\n")
    if tail:
        try:
            _DECODER.decode(tail)
            lines.append(tail)
        except msgspec.MsgspecError:
            notes.append(
                f"line {len(lines)} is cut off ({len(tail)} bytes) and was left out: "
                "what wrote it was killed; measuring on repairs the file"
            )
    return measurements_of(path, _records(path, lines), notes)


def complete_lines(content: bytes) -> tuple[bytes, bytes]:
    r"""The part that ends with a newline, and what comes after it.

    >>> complete_lines(b"1\n2\n3")
    (b'1\n2\n', b'3')
    """
    end = content.rfind(b"\n") + 1
    return content[:end], content[end:]


def decode_record(line: bytes, path: Path, number: int) -> Record:
    """One line.

    Raises:
        SilicastError: it is no JSON or no record, with the number of the line.
    """
    try:
        return _DECODER.decode(line)
    except msgspec.ValidationError as error:
        text, _, where = str(error).partition(" - at ")
        raise SilicastError(
            f"line {number}: {text}", field=where.strip("`$.") or "", file=str(path)
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SilicastError(
            f"line {number} is no JSON: {error}",
            file=str(path),
            hint="one record a line, as `silicast measure` writes them",
        ) from None


def measurements_of(
    path: Path, records: Iterable[tuple[int, Record]], notes: Iterable[str] = ()
) -> Measurements:
    """Sorts records by kind and checks what no single line can say.

    Args:
        records: each with the number of its line.

    Raises:
        SilicastError: see :func:`read_measurements`.
    """
    kinds: dict[type, list[Any]] = {}
    sessions: set[str] = set()
    seen: dict[Hashable, int] = {}
    for number, record in records:
        _check_place(record, number, sessions, path)
        key = _identity(record)
        if key is not None and seen.setdefault(key, number) != number:
            raise SilicastError(
                f"line {number} repeats line {seen[key]}: the same thing at the same moment",
                file=str(path),
                hint="were two copies of one file put together? Remove one of the lines",
            )
        kinds.setdefault(type(record), []).append(record)
    if not sessions:
        raise SilicastError(
            "holds no session: it says of no machine what was measured on it",
            file=str(path),
            hint="a file that `silicast measure -o FILE` or `silicast import` wrote",
        )

    def of(kind: type) -> tuple[Any, ...]:
        return tuple(kinds.get(kind, ()))

    return Measurements(
        path,
        of(Session),
        of(KernelRow),
        of(HostRow),
        of(CollectiveRow),
        of(RunRow),
        of(FailedRow),
        of(UnreadRow),
        tuple(notes),
    )


def _records(path: Path, lines: list[bytes]) -> Iterable[tuple[int, Record]]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield number, decode_record(line, path, number)


def _check_place(record: Record, number: int, sessions: set[str], path: Path) -> None:
    """A session comes once and before its rows; ``sessions`` gets a new one."""
    if isinstance(record, Session):
        if record.format != FORMAT:
            raise SilicastError(
                f"line {number}: format {record.format} is not {FORMAT}, the one known here",
                field="format",
                file=str(path),
                hint="a newer Silicast wrote it",
            )
        if record.id in sessions:
            raise SilicastError(
                f"line {number}: session {record.id!r} comes twice", field="id", file=str(path)
            )
        sessions.add(record.id)
    elif record.session not in sessions:
        raise SilicastError(
            f"line {number}: no session {record.session!r} comes before it",
            field="session",
            file=str(path),
            hint="keep the lines that start with a session",
        )


def _identity(record: Record) -> Hashable:
    """What must not come twice; None where a record has neither a moment nor a number."""
    if isinstance(record, (Session, UnreadRow)):
        return None
    row = 0 if isinstance(record, FailedRow) else record.row
    if not record.at and not row:
        return None
    what = msgspec.json.encode(_subject(record), order="deterministic")
    return (type(record).__name__, record.session, what, record.at, row)


def _subject(record: Measurement | FailedRow) -> object:
    match record:
        case KernelRow():
            return record.kernel
        case HostRow():
            return (record.quantity, record.engine, record.version, record.states)
        case CollectiveRow():
            return record.collective
        case RunRow():
            return (record.scenario, record.name)
        case FailedRow():
            return record.what
