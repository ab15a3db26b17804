"""FlatBuffers written without a schema compiler, as TFLite files need them."""

from __future__ import annotations

import struct
from typing import Any, final

IDENTIFIER = b"TFL3"
SLOT = 8
"""Bytes of a field: scalars are little-endian, so that wide ones read as narrow ones too."""


def flat(root: dict[int, Any]) -> bytes:
    """A FlatBuffer: tables are dictionaries by number of field, vectors lists (of tables), tuples
    (of whole numbers), texts or bytes; scalars whole numbers or floats. Whatever is referred to
    stands behind what refers to it.

    >>> len(flat({0: 3, 1: [], 2: "name"}))
    64
    """
    writer = _FlatBytes()
    writer.data[:4] = struct.pack("<I", writer.put(root))
    return bytes(writer.data)


@final
class _FlatBytes:
    """The bytes so far."""

    def __init__(self) -> None:
        self.data: bytearray = bytearray(4) + IDENTIFIER

    def put(self, value: Any) -> int:
        """Writes a table or a vector; returns where it begins."""
        self.data.extend(bytes(-len(self.data) % SLOT))
        if isinstance(value, dict):
            return self._table(value)
        start = len(self.data)
        self.data.extend(struct.pack("<I", len(value)))
        if isinstance(value, str | bytes):
            self.data.extend(value.encode() if isinstance(value, str) else value)
        elif isinstance(value, tuple):
            self.data.extend(struct.pack(f"<{len(value)}i", *value))
        else:
            slots = len(self.data)
            self.data.extend(bytes(4 * len(value)))
            for index, each in enumerate(value):
                self._refer(slots + 4 * index, self.put(each))
        return start

    def _table(self, fields: dict[int, Any]) -> int:
        count = max(fields, default=-1) + 1
        table = {each: 4 + SLOT * i for i, each in enumerate(fields)}
        offsets = [table.get(field, 0) for field in range(count)]
        vtable, size = len(self.data), 4 + SLOT * len(fields)
        self.data.extend(struct.pack(f"<{2 + count}H", 4 + 2 * count, size, *offsets))
        self.data.extend(bytes(-len(self.data) % 4))
        start = len(self.data)
        self.data.extend(struct.pack("<i", start - vtable) + bytes(SLOT * len(fields)))
        for field, value in fields.items():
            slot = start + table[field]
            if isinstance(value, float):
                self.data[slot : slot + 4] = struct.pack("<f", value)
            elif isinstance(value, int):
                self.data[slot : slot + SLOT] = struct.pack("<q", value)
            else:
                self._refer(slot, self.put(value))
        return start

    def _refer(self, slot: int, target: int) -> None:
        self.data[slot : slot + 4] = struct.pack("<I", target - slot)
