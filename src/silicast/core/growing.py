"""A file that grows line by line, with one writer, whose whole lines outlive whatever ends it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, final

from silicast.core.errors import SilicastError
from silicast.core.files import checked_target, is_plain, lock_file, write_errors

_TAIL = 1 << 16
"""Bytes of the end of a file that are looked at together."""


@final
class GrowingFile:
    """Whole lines that are added to a regular file or to a stream.

    Attributes:
        is_regular: it can be read, cut, and holds what was written if the process is killed.
    """

    def __init__(self, handle: int, *, is_regular: bool) -> None:
        self.handle, self.is_regular = handle, is_regular

    def add(self, lines: bytes) -> None:
        """Writes whole lines; where that fails, no part of one is left in a regular file.

        Raises:
            OSError: it cannot be written (the disk is full, nobody reads the pipe).
        """
        remaining = memoryview(lines)
        try:
            while remaining:
                remaining = remaining[os.write(self.handle, remaining) :]
        except BaseException:
            with suppress(OSError):
                self.cut_torn_line()
            raise

    def reader(self) -> BinaryIO:
        """The content of a regular file from its start."""
        os.lseek(self.handle, 0, os.SEEK_SET)
        return os.fdopen(os.dup(self.handle), "rb")

    def cut(self, size: int) -> None:
        """Leaves the first ``size`` bytes of a regular file."""
        os.ftruncate(self.handle, size)

    def cut_torn_line(self) -> None:
        """Takes off a last line without an end, as a process that was killed leaves one."""
        if not self.is_regular:
            return
        end = os.fstat(self.handle).st_size
        while end:
            start = max(0, end - _TAIL)
            rfind = os.pread(self.handle, end - start, start).rfind(b"\n")
            end = start if rfind < 0 else start + rfind + 1
            if rfind >= 0:
                break
        self.cut(end)


@contextmanager
def growing(
    path: Path, busy: str, *, source: os.stat_result | None = None, keep: bool = False
) -> Iterator[GrowingFile]:
    """A file at ``path`` that is locked until the block ends; what is no regular file is appended
    to as it is, without a lock.

    Args:
        busy: what another process does that holds the lock.
        source: what the content is made from; writing onto it is refused.
        keep: the lines that are there stay.

    Raises:
        SilicastError: kind "io": it cannot be written, is a folder, is ``source`` itself, or
            another process holds the lock; or ``keep`` of what is no regular file.
        BrokenPipeError: nobody reads the pipe any longer.
    """
    with write_errors(path):
        status = checked_target(path, source)
        is_regular = status is None or is_plain(path, status)
        flags = os.O_RDWR | os.O_CREAT if is_regular else os.O_WRONLY
        if keep and not is_regular:
            raise SilicastError(
                "is no regular file: nothing in it can be kept", kind="io", file=str(path)
            )
        handle = os.open(path, flags | os.O_APPEND | os.O_CLOEXEC, 0o666)
        try:
            file = GrowingFile(handle, is_regular=is_regular)
            if is_regular:
                lock_file(handle, path, busy)
                if not keep:
                    file.cut(0)
            yield file
        finally:
            os.close(handle)
