"""The lines of a batch as they come, from a file, a pipe or memory."""

from __future__ import annotations

import codecs
import io
import os
import select
import stat
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol, final

from silicast.core.errors import SilicastError, over_limit
from silicast.core.plain_data import MAX_JSON_BYTES
from silicast.scenario.reading.limits import MAX_BATCH_BYTES

Line = tuple[int, bytes | None]
"""A line's number, from 1, and its content; None of one that is too long to be read."""

_READ = 1 << 18
_HEAD = 4096
"""Bytes of a file by which it is text."""
_BOM = b"\xef\xbb\xbf"


class CaseSource(Protocol):
    """Cases as they come, in order."""

    @property
    def waiting(self) -> deque[Line]:
        """Lines that are there."""
        ...

    @property
    def ended(self) -> bool:
        """Whether no more will come."""
        ...

    @property
    def handle(self) -> int | None:
        """What to wait on for more; None = reading does not wait for long."""
        ...

    def has_more(self) -> bool:
        """Whether a further line can be read without waiting."""
        ...

    def read(self) -> None:
        """Reads once."""
        ...


@final
class CaseLines:
    """Cases of a stream in order; blank lines are none.

    Args:
        stream: where lines come from; a raw file (``buffering=0``) is asked whether something is
            there, other streams always have something.

    Attributes:
        waiting: lines that were read; ``ended``: no more will come.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._take = getattr(stream, "read1", stream.read)
        self._number, self._rest, self._skips = 0, b"", False
        self._bytes = 0
        self.waiting: deque[Line] = deque()
        self.ended = False

    @property
    def handle(self) -> int | None:
        """What to wait on for more; None = reading waits by itself, and not for long."""
        return self._stream.fileno() if isinstance(self._stream, io.FileIO) else None

    def has_more(self) -> bool:
        """Whether a further line can be read without waiting."""
        if self.ended or self.handle is None:
            return not self.ended
        return bool(select.select([self.handle], [], [], 0.0)[0])

    def read(self) -> None:
        """Reads once; waits where nothing is there.

        Raises:
            SilicastError: more came than a batch may hold, in however many lines.
        """
        block = self._take(_READ)
        self._bytes += len(block)
        if self._bytes > MAX_BATCH_BYTES:
            raise _too_large(f"more than {MAX_BATCH_BYTES} bytes came", "")
        if not block:
            self.ended = True
            if self._rest or self._skips:
                self._add(self._rest)
            return
        first, *others = block.split(b"\n")
        self._rest += first
        for other in others:
            self._add(self._rest)
            self._rest = other
        if len(self._rest) > MAX_JSON_BYTES:
            self._rest, self._skips = b"", True

    def __iter__(self) -> Iterator[Line]:
        """All lines to the end."""
        while not (self.ended and not self.waiting):
            while self.waiting:
                yield self.waiting.popleft()
            if not self.ended:
                self.read()

    def _add(self, line: bytes) -> None:
        self._number += 1
        if self._skips or len(line) > MAX_JSON_BYTES:
            self._skips = False
            self.waiting.append((self._number, None))
            return
        if self._number == 1:
            line = line.removeprefix(_BOM)
        if line.strip():
            self.waiting.append((self._number, line.rstrip(b"\r")))


def too_long() -> SilicastError:
    """What stands in place of a line that was not read."""
    return over_limit(
        f"a line of more than {MAX_JSON_BYTES} bytes", hint="long lists go into a trace file"
    )


STDIN = Path("-")
"""Stands for standard input where a file of cases is named."""


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The raw stream of a batch file, or of standard input.

    Raises:
        SilicastError: missing, a folder, too large, or binary.
    """
    shown = "standard input" if path == STDIN else str(path)
    with _read_errors(path):
        handle = 0 if path == STDIN else os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        stream = io.FileIO(handle, closefd=path != STDIN)
    with stream:
        with _read_errors(path):
            _check(stream, shown)
        yield stream


def _check(stream: io.FileIO, shown: str) -> None:
    status = os.fstat(stream.fileno())
    if stat.S_ISDIR(status.st_mode):
        raise SilicastError("is a folder, not a file", kind="io", file=shown)
    if stat.S_ISCHR(status.st_mode) and not os.isatty(stream.fileno()):
        raise SilicastError(
            "is a device, not a file", kind="io", file=shown, hint="name a file, or - for a pipe"
        )
    if not stat.S_ISREG(status.st_mode):
        return
    if status.st_size > MAX_BATCH_BYTES:
        raise _too_large(f"holds {status.st_size} bytes", shown)
    head = os.pread(stream.fileno(), _HEAD, stream.tell())
    if b"\0" in head or not _is_text(head, cut=len(head) == _HEAD):
        raise SilicastError(
            "is not text", kind="io", file=shown, hint="expected JSON Lines in UTF-8"
        )


def _too_large(what: str, shown: str) -> SilicastError:
    return over_limit(
        f"{what}; a batch has at most {MAX_BATCH_BYTES}",
        hint="split it into several files",
        file=shown,
    )


def count_lines(path: Path) -> int | None:
    """Lines of a regular file; None of anything else, which can be read once only."""
    with _read_errors(path):
        if not path.is_file():
            return None
        with path.open("rb") as stream:
            return sum(block.count(b"\n") for block in iter(lambda: stream.read(_READ), b""))


@contextmanager
def _read_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SilicastError(
            f"cannot read: {error.strerror or error}", kind="io", file=str(path)
        ) from None
    except ValueError as error:
        raise SilicastError(f"not a file name: {error}", kind="io", file=repr(path)) from None


def _is_text(head: bytes, *, cut: bool) -> bool:
    """Whether the start of a file is UTF-8; ``cut``: its last character may be cut off."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head, final=not cut)
    except UnicodeDecodeError:
        return False
    return True
