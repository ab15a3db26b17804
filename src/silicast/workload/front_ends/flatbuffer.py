"""Reading FlatBuffers (https://flatbuffers.dev/internals) without a schema compiler.

A table knows where its fields are by a list of offsets; each access checks that it stays inside the
file, so that a damaged file ends in an error and never in a wrong number of bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import final

from silicast.core.errors import SilicastError

MOST_ENTRIES = 1 << 20
"""Of one vector."""


@final
class FlatTable:
    """A table of a buffer; a field that is not stored has its default.

    Args:
        data: the whole file.
        position: of the table in it.
    """

    def __init__(self, data: bytes, position: int) -> None:
        self._data, self._position = data, position
        self._fields = position - self._number("<i", position)
        self._length = self._number("<H", self._fields)

    @staticmethod
    def root(data: bytes) -> FlatTable:
        """The table that a file starts with."""
        return FlatTable(data, _number(data, "<I", 0))

    def number(self, field: int, form: str = "<i", default: int = 0) -> int:
        """A whole number; ``form`` as in :mod:`struct`."""
        at = self._place_of(field)
        return default if at is None else self._number(form, at)

    def table(self, field: int) -> FlatTable | None:
        """A table inside; None = not stored."""
        at = self._place_of(field)
        return None if at is None else FlatTable(self._data, at + self._number("<I", at))

    def tables(self, field: int) -> list[FlatTable]:
        """A vector of tables."""
        return [
            FlatTable(self._data, at + self._number("<I", at)) for at in self._entries(field, 4)
        ]

    def numbers(self, field: int) -> tuple[int, ...]:
        """A vector of 32-bit numbers."""
        return tuple(self._number("<i", at) for at in self._entries(field, 4))

    def is_filled(self, field: int) -> bool:
        """Whether a vector is stored and has an entry."""
        at = self._place_of(field)
        return at is not None and self._number("<I", at + self._number("<I", at)) > 0

    def text(self, field: int) -> str:
        """A text; "" = not stored."""
        raw = bytes(self._data[at] for at in self._entries(field, 1))
        return raw.decode("utf-8", "replace")

    def _place_of(self, field: int) -> int | None:
        entry = 4 + 2 * field
        if entry + 2 > self._length:
            return None
        offset = self._number("<H", self._fields + entry)
        return self._position + offset if offset else None

    def _entries(self, field: int, size: int) -> Iterator[int]:
        at = self._place_of(field)
        if at is None:
            return
        start = at + self._number("<I", at)
        count = self._number("<I", start)
        if count > MOST_ENTRIES or start + 4 + count * size > len(self._data):
            raise _damaged(start)
        yield from range(start + 4, start + 4 + count * size, size)

    def _number(self, form: str, at: int) -> int:
        return _number(self._data, form, at)


def _number(data: bytes, form: str, at: int) -> int:
    if at < 0 or at + struct.calcsize(form) > len(data):
        raise _damaged(at)
    value: int = struct.unpack_from(form, data, at)[0]
    return value


def _damaged(at: int) -> SilicastError:
    return SilicastError(
        f"refers to byte {at:,}, which it does not have",
        field="graph",
        hint="was it cut off while it was written or copied?",
    )
