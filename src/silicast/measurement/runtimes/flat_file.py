"""FlatBuffers written without a schema compiler, as TFLite files need them."""

from __future__ import annotations

import struct
from typing import Any

IDENTIFIER = b"TFL3"
SLOT = 8
"""Bytes of a field: scalars are little-endian, so that wide ones read as narrow ones too."""


def flat(root: dict[int, Any]) -> bytes:
    """A FlatBuffer: tables are dictionaries by number of field, vectors lists (of tables), tuples
    (of whole numbers), texts or bytes; scalars whole numbers or floats. Whatever is referred to
    stands behind what refers to it.

    >>> len(flat({0: 3, 1: [], 2: "name"}))
    60
    """
    data = bytearray(SLOT)
    data[4:8] = IDENTIFIER

    def put(value: Any) -> int:
        while len(data) % SLOT:
            data.append(0)
        if isinstance(value, dict):
            return put_table(value)
        start = len(data)
        data.extend(struct.pack("<I", len(value)))
        if isinstance(value, str | bytes):
            data.extend(value.encode() if isinstance(value, str) else value)
        elif isinstance(value, tuple):
            data.extend(struct.pack(f"<{len(value)}i", *value))
        else:
            slots = len(data)
            data.extend(bytes(4 * len(value)))
            for index, each in enumerate(value):
                refer(slots + 4 * index, put(each))
        return start

    def put_table(fields: dict[int, Any]) -> int:
        count = max(fields, default=-1) + 1
        table = {each: 4 + SLOT * i for i, each in enumerate(fields)}
        offsets = [table.get(field, 0) for field in range(count)]
        vtable, size = len(data), 4 + SLOT * len(fields)
        data.extend(struct.pack(f"<{2 + count}H", 4 + 2 * count, size, *offsets))
        while len(data) % 4:
            data.append(0)
        start = len(data)
        data.extend(struct.pack("<i", start - vtable) + bytes(SLOT * len(fields)))
        for field, value in fields.items():
            slot = start + table[field]
            if isinstance(value, float):
                data[slot : slot + 4] = struct.pack("<f", value)
            elif isinstance(value, int):
                data[slot : slot + SLOT] = struct.pack("<q", value)
            else:
                refer(slot, put(value))
        return start

    def refer(slot: int, target: int) -> None:
        data[slot : slot + 4] = struct.pack("<I", target - slot)

    data[:4] = struct.pack("<I", put(root))
    return bytes(data)
