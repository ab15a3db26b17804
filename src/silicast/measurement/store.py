"""A file of measurements that is appended to and survives being killed at any instant.

A record is one line, written by one call and brought to the disk before :meth:`append` returns: a
row that was acknowledged stays. What a kill cuts off is the line that was being written; opening
the file again moves that part aside and goes on.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self, final

import msgspec

from silicast.core.errors import SilicastError
from silicast.measurement.file_lock import lock
from silicast.measurement.records import Record, Session
from silicast.measurement.repaired import HEAD, check_head, io_errors, repaired
from silicast.measurement.stored import (
    Measurements,
    decode_record,
    read_measurements,
)
from silicast.measurement.unfinished import missing

__all__ = ["MeasurementFile", "Measurements", "check_place", "read_measurements"]

_ENCODER = msgspec.json.Encoder()


@final
class MeasurementFile:
    """A file of measurements, open for appending and locked against other writers.

    Attributes:
        path: where it is; session: what rows belong to from here on.
        before: what it held when it was opened.
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
        """Opens or creates a file and makes sure that it has a session to add rows to.

        Args:
            session: of what is about to be measured. With ``resume``, one in the file that differs
                in nothing but its name, start and notes is continued instead.

        Raises:
            SilicastError: kind "io": it cannot be written, another process writes it, or the disk
                is full. Other kinds: it holds something else than measurements, and is left as it
                was.
        """
        handle, is_new = _opened(path)
        try:
            lock(handle, path)
            before = repaired(handle, path)
            known = _same(session, before.sessions) if resume else None
            file = cls(path, handle, known or session, before, known is not None)
            if known is None:
                if any(other.id == session.id for other in before.sessions):
                    raise _held(session, path)
                file._write([session])
            if is_new:
                _sync_folder(path)
        except BaseException:
            os.close(handle)
            raise
        return file

    @classmethod
    def add(cls, path: Path, sessions: Sequence[tuple[Session, Sequence[Record]]]) -> None:
        """Appends sessions with all of their rows in one write.

        A session that is there without its last rows, as a kill of this very call leaves it, gets
        those that are missing.

        Raises:
            SilicastError: see :meth:`open`; or the file holds one of the sessions already.
        """
        handle, is_new = _opened(path)
        try:
            lock(handle, path)
            before = repaired(handle, path)
            records: list[Record] = []
            for session, rows in sessions:
                rest = missing(before, session, [_as_read(row, path) for row in rows])
                if rest is None:
                    raise _held(session, path)
                records += rest
            file = cls(path, handle, sessions[-1][0], before, resumed=False)
            file._write(records)
            if is_new:
                _sync_folder(path)
        finally:
            os.close(handle)

    def append(self, *records: Record) -> None:
        """Adds records and returns once they are on the disk; all of them or, on an error, none.

        Raises:
            SilicastError: kind "io" if the disk is full or gone; "invalid_input" if a record could
                not be read again, such as a time of 0.
        """
        self._write(records)

    def close(self) -> None:
        """Gives the file and its lock back; more than once does no harm."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, records: Iterable[Record]) -> None:
        lines = b"".join(_line(record, self.path) for record in records)
        with io_errors(self.path):
            end = os.fstat(self._handle).st_size
            try:
                if os.write(self._handle, lines) != len(lines):
                    raise OSError(0, "the disk is full")
                os.fsync(self._handle)
            except OSError:
                with suppress(OSError):
                    os.ftruncate(self._handle, end)
                raise


def _line(record: Record, path: Path) -> bytes:
    """A record as its line, read back once: what is written can be read."""
    try:
        line = _ENCODER.encode(record)
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise SilicastError(f"a record cannot be written: {error}", file=str(path)) from None
    decode_record(line, path, 0)
    return line + b"\n"


def _as_read(record: Record, path: Path) -> Record:
    return decode_record(_line(record, path), path, 0)


def _held(session: Session, path: Path) -> SilicastError:
    return SilicastError(
        f"already holds a session {session.id!r}",
        field="id",
        file=str(path),
        hint="was this imported before? Write to another file",
    )


def _opened(path: Path) -> tuple[int, bool]:
    """The file, created if there was none; and whether it was."""
    with io_errors(path):
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            handle, is_new = os.open(path, flags), False
        except FileNotFoundError:
            handle, is_new = os.open(path, flags | os.O_CREAT, 0o666), True
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise _no_file(path)
    return handle, is_new


def check_place(path: Path) -> None:
    """Refuses what no measurements can be written to, before anything is measured.

    Raises:
        SilicastError: its folder is not there, or it holds something else.
    """
    if not path.parent.is_dir():
        raise SilicastError(
            f"the folder {path.parent} is not there",
            kind="io",
            file=str(path),
            hint="make it first",
        )
    if not path.exists():
        return
    if not path.is_file():
        raise _no_file(path)
    with io_errors(path), path.open("rb") as file:
        check_head(file.read(len(HEAD)), path)


def _no_file(path: Path) -> SilicastError:
    return SilicastError(
        "is no regular file", kind="io", file=str(path), hint="name a file to append to"
    )


def _same(session: Session, sessions: tuple[Session, ...]) -> Session | None:
    """The newest session of the file of the same machine, software and protocol.

    Notes may differ: they say what else ran just then.
    """
    for other in reversed(sessions):
        alike = msgspec.structs.replace(
            other, id=session.id, started=session.started, notes=session.notes
        )
        if alike == session:
            return other
    return None


def _sync_folder(path: Path) -> None:
    """Brings the name of a new file to the disk, where folders can be synchronised."""
    with suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
