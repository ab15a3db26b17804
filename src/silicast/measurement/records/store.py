"""Appending to a file of measurements in a way that survives a crash.

Each record is one line, synced to disk before :meth:`MeasurementFile.append` returns, so that an
acknowledged row is never lost. A crash can truncate the line being written only; opening the file
again moves the partial line aside and continues.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self, final

import msgspec

from silicast.core.decode import decode_json
from silicast.core.errors import SilicastError
from silicast.core.files import lock_file, opened_file
from silicast.measurement.records.records import (
    MAX_BYTES,
    Measurements,
    Record,
    Session,
    complete_lines,
    decoded,
    measurements_of,
)

HEAD = b'{"record":"session"'
"""First bytes of every file of measurements."""

_ENCODER = msgspec.json.Encoder()


@final
class MeasurementFile:
    """A file of measurements, open for appending and locked against other writers.

    Attributes:
        path: of the file; session: that new rows belong to.
        before: content when it was opened.
        resumed: whether ``session`` was in it already.
        notes: what was repaired.
    """

    def __init__(
        self, path: Path, handle: int, session: Session, before: Measurements, resumed: bool
    ) -> None:
        self.path = path
        self.session = session
        self.before = before
        self.resumed = resumed
        self.notes = before.notes
        self._handle = handle

    @classmethod
    def open(cls, path: Path, session: Session, *, resume: bool = True) -> Self:
        """Opens or creates a file for the rows of a session.

        Args:
            session: of the coming measurements. With ``resume``, a session of the file that differs
                only in its id, start and notes is continued instead.

        Raises:
            SilicastError: kind "io": it cannot be written, another process writes it, or the disk
                is full. Other kinds: it holds something else, and is left unchanged.
        """
        with _locked(path) as (handle, before):
            resumed = _resumable(session, before.sessions) if resume else None
            file = cls(path, handle, resumed or session, before, resumed is not None)
            if resumed is None:
                if any(other.id == session.id for other in before.sessions):
                    raise _known_session(session, path)
                file.append(session)
        return file

    @classmethod
    def add(cls, path: Path, sessions: Sequence[tuple[Session, Sequence[Record]]]) -> None:
        """Appends whole sessions in one write.

        If an earlier call was interrupted, so that a session lacks its last rows, those are added.

        Raises:
            SilicastError: see :meth:`open`; or the file holds one of the sessions already.
        """
        with _locked(path) as (handle, before):
            file = cls(path, handle, sessions[-1][0], before, resumed=False)
            records: list[Record] = []
            for session, rows in sessions:
                as_read = [decoded(_encoded(row, path), path, 0) for row in rows]
                missing = missing_rows(before, session, as_read)
                if missing is None:
                    raise _known_session(session, path)
                records += missing
            file.append(*records)
        file.close()

    def append(self, *records: Record) -> None:
        """Adds records and syncs them to disk; all of them or, on an error, none.

        Raises:
            SilicastError: kind "io" if the disk is full or gone; "invalid_input" if a record could
                not be read again, such as a time of 0.
        """
        lines = b"".join(_encoded(record, self.path) for record in records)
        with _io_errors(self.path):
            end = os.fstat(self._handle).st_size
            try:
                if os.write(self._handle, lines) != len(lines):
                    raise OSError(0, "the disk is full")
                os.fsync(self._handle)
            except OSError:
                with suppress(OSError):
                    os.ftruncate(self._handle, end)
                raise

    def close(self) -> None:
        """Closes the file and releases its lock; may be called again."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def missing_rows(
    before: Measurements, session: Session, rows: Sequence[Record]
) -> list[Record] | None:
    """Rows lost when an import was interrupted: what to append to complete a session.

    Args:
        before: content of the file; rows: all of the session, as they are read back.

    Returns:
        None if the file holds the session with all of its rows, or with different ones.
    """
    same_id = [other for other in before.sessions if other.id == session.id]
    if not same_id:
        return [session, *rows]
    if same_id != [session] or before.rows_of(session.id) >= len(rows):
        return None
    stored = before.records_of(session.id)
    counts: Counter[type] = Counter()
    missing: list[Record] = []
    for row in rows:
        kind, position = type(row), counts[type(row)]
        counts[kind] += 1
        if position >= len(stored.get(kind, ())):
            missing.append(row)
        elif missing or stored[kind][position] != row:
            return None
    return missing


def check_output(path: Path) -> None:
    """Checks, before anything is measured, that measurements can be written to a path.

    Raises:
        SilicastError: its folder does not exist, or it holds something else.
    """
    if not path.parent.is_dir():
        raise SilicastError(
            f"the folder {path.parent} does not exist",
            kind="io",
            file=str(path),
            hint="create it first",
        )
    if path.exists():
        if not path.is_file():
            raise _not_a_file(path)
        with opened_file(path, MAX_BYTES, "a file of measurements") as file, _io_errors(path):
            _check_head(file.read(len(HEAD)), path)


def _check_head(content: bytes, path: Path) -> None:
    head = content[: len(HEAD)]
    if head != HEAD[: len(head)]:
        raise SilicastError(
            "holds something else than measurements, and was left unchanged",
            file=str(path),
            hint="name a new file, or one that `silicast measure` wrote",
        )


def _not_a_file(path: Path) -> SilicastError:
    return SilicastError(
        "is no regular file", kind="io", file=str(path), hint="name a file to append to"
    )


def _known_session(session: Session, path: Path) -> SilicastError:
    return SilicastError(
        f"already holds a session {session.id!r}",
        field="id",
        file=str(path),
        hint="was this imported before? Write to another file",
    )


def _encoded(record: Record, path: Path) -> bytes:
    """A record as its line, decoded once so that what is written can be read."""
    try:
        line = _ENCODER.encode(record)
    except (TypeError, ValueError, msgspec.EncodeError) as error:
        raise SilicastError(f"a record cannot be written: {error}", file=str(path)) from None
    decoded(line, path, 0)
    return line + b"\n"


def _resumable(session: Session, sessions: Sequence[Session]) -> Session | None:
    """The newest session of the same machine, software and protocol; notes may differ."""
    for other in reversed(sessions):
        if session == msgspec.structs.replace(
            other, id=session.id, started=session.started, notes=session.notes
        ):
            return other
    return None


@contextmanager
def _locked(path: Path) -> Iterator[tuple[int, Measurements]]:
    """Opens and locks a file and repairs its end; closes it only on an error."""
    handle, is_new = _opened(path)
    try:
        lock_file(handle, path, "another process is measuring into it")
        yield handle, _repaired(handle, path)
        if is_new:
            _sync_folder(path)
    except BaseException:
        os.close(handle)
        raise


def _opened(path: Path) -> tuple[int, bool]:
    """A handle for appending, and whether the file was created."""
    with _io_errors(path):
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            handle, is_new = os.open(path, flags), False
        except FileNotFoundError:
            handle, is_new = os.open(path, flags | os.O_CREAT, 0o666), True
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise _not_a_file(path)
    return handle, is_new


def _repaired(handle: int, path: Path) -> Measurements:
    """Content of an open file, after a truncated last line was moved aside."""
    with _io_errors(path), open(handle, "rb", closefd=False) as file:
        file.seek(0)
        content = file.read()
    if not content:
        return Measurements(path)
    _check_head(content, path)
    whole, tail = complete_lines(content)
    lines = [line for line in (*whole.split(b"\n"), tail) if line.strip()]
    notes = []
    if not _is_json(lines[-1]):  # truncated; a crash of the machine can also leave zeros
        last = tail or lines[-1] + b"\n"
        notes.append(_moved_aside(handle, path, len(content) - len(last), last))
        lines.pop()
    elif tail:  # complete but for its newline
        with _io_errors(path):
            os.write(handle, b"\n")
            os.fsync(handle)
    return measurements_of(path, lines, notes) if lines else Measurements(path, notes=(*notes,))


def _is_json(line: bytes) -> bool:
    try:
        decode_json(line, Any)
    except SilicastError:
        return False
    return True


def _moved_aside(handle: int, path: Path, end: int, tail: bytes) -> str:
    """Appends ``tail`` to a file beside and truncates the file at ``end``; returns a note."""
    beside = path.with_name(path.name + ".torn")
    with _io_errors(beside), beside.open("ab") as aside:
        aside.write(tail.removesuffix(b"\n") + b"\n")
        aside.flush()
        os.fsync(aside.fileno())
    with _io_errors(path):
        os.ftruncate(handle, end)
        os.fsync(handle)
    return f"its last line was truncated; its {len(tail)} bytes were moved to {beside.name}"


@contextmanager
def _io_errors(path: Path) -> Iterator[None]:
    """Turns errors of the operating system into kind "io" with the file's name."""
    try:
        yield
    except OSError as error:
        raise SilicastError(
            f"cannot write: {error.strerror or error}",
            kind="io",
            file=str(path),
            hint="does its folder exist, is it writable, and is the disk not full?",
        ) from None


def _sync_folder(path: Path) -> None:
    """Syncs the name of a new file to disk, where folders can be synced."""
    with suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
