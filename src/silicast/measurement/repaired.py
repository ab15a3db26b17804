"""An open file of measurements, put in order after a kill."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from silicast.core.errors import SilicastError
from silicast.measurement.stored import (
    Measurements,
    complete_lines,
    decode_record,
    measurements_of,
)

HEAD = b'{"record":"session"'
"""How every file of measurements starts."""


def repaired(handle: int, path: Path) -> Measurements:
    """What the file holds, once a last line that a kill cut off is moved aside."""
    with io_errors(path):
        content = _content(handle)
    if not content:
        return Measurements(path)
    check_head(content, path)
    whole, tail = complete_lines(content)
    lines = [line for line in whole.split(b"\n") if line.strip()]
    notes = []
    if tail:
        try:
            decode_record(tail, path, 0)
        except SilicastError:
            notes.append(_set_aside(handle, path, len(whole), tail))
        else:  # complete but for its newline
            with io_errors(path):
                os.write(handle, b"\n")
                os.fsync(handle)
            lines.append(tail)
    elif _torn(lines[-1]):
        tail = lines.pop() + b"\n"
        notes.append(_set_aside(handle, path, len(whole) - len(tail), tail))
    records = [(number, decode_record(line, path, number)) for number, line in enumerate(lines, 1)]
    return measurements_of(path, records, notes) if records else Measurements(path, notes=(*notes,))


def check_head(content: bytes, path: Path) -> None:
    """Refuses a file that starts like no file of measurements.

    Raises:
        SilicastError: it holds something else.
    """
    head = content[: len(HEAD)]
    if head != HEAD[: len(head)]:
        raise SilicastError(
            "holds something else than measurements, and was left as it is",
            file=str(path),
            hint="name a new file, or one that `silicast measure` wrote",
        )


def _torn(line: bytes) -> bool:
    """Whether a last line is no JSON at all: a crash of the machine can leave zeros there."""
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return True
    return False


def _set_aside(handle: int, path: Path, end: int, tail: bytes) -> str:
    """Keeps ``tail`` in a file beside and cuts the file at ``end``; returns a note."""
    beside = path.with_name(path.name + ".torn")
    with io_errors(beside):
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        aside = os.open(beside, flags, 0o666)
        try:
            os.write(aside, tail.removesuffix(b"\n") + b"\n")
            os.fsync(aside)
        finally:
            os.close(aside)
    with io_errors(path):
        os.ftruncate(handle, end)
        os.fsync(handle)
    return f"its last line was cut off; the {len(tail)} bytes of it are in {beside.name}"


def _content(handle: int) -> bytes:
    size = os.fstat(handle).st_size
    parts = []
    at = 0
    while at < size and (part := os.pread(handle, size - at, at)):
        parts.append(part)
        at += len(part)
    return b"".join(parts)


@contextmanager
def io_errors(path: Path) -> Iterator[None]:
    """Errors of the system inside become kind "io", with the file's name."""
    try:
        yield
    except OSError as error:
        raise SilicastError(
            f"cannot write: {error.strerror or error}",
            kind="io",
            file=str(path),
            hint="is its folder there and writable, and the disk not full?",
        ) from None
