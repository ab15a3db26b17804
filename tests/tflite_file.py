"""TFLite files written byte by byte."""

from __future__ import annotations

import struct
from typing import Any

Byte = tuple[str, int]
CONV, DEPTHWISE, DENSE, RESHAPE, SOFTMAX, TRANSPOSED, CUSTOM = 3, 4, 9, 22, 25, 67, 32


def flat(root: dict[int, Any]) -> bytes:
    """A FlatBuffer: tables are dictionaries, vectors lists (of tables) or tuples, and a text or
    bytes a vector of bytes. Whatever is referred to stands behind what refers to it.
    """
    data = bytearray(8)
    data[4:8] = b"TFL3"

    def put(value: Any) -> int:
        while len(data) % 8:
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
        table = {each: 4 + 8 * i for i, each in enumerate(fields)}
        offsets = [table.get(field, 0) for field in range(count)]
        vtable = len(data)
        data.extend(struct.pack(f"<{2 + count}H", 4 + 2 * count, 4 + 8 * len(fields), *offsets))
        while len(data) % 4:
            data.append(0)
        start = len(data)
        data.extend(struct.pack("<i", start - vtable) + bytes(8 * len(fields)))
        for field, value in fields.items():
            slot = start + table[field]
            if isinstance(value, int):
                data[slot : slot + 8] = struct.pack("<q", value)
            else:
                refer(slot, put(value))
        return start

    def refer(slot: int, target: int) -> None:
        data[slot : slot + 4] = struct.pack("<I", target - slot)

    data[:4] = struct.pack("<I", put(root))
    return bytes(data)


def model(
    tensors: list[tuple[tuple[int, ...], int, bool]],
    operators: list[tuple[int, tuple[int, ...], tuple[int, ...], dict[int, Any]]],
    custom: str = "",
) -> bytes:
    """A file: (shape, type, whether it is stored) a tensor, (code, inputs, outputs, options) an
    operator; tensor 0 is the input.
    """
    codes = sorted({code for code, *_ in operators})
    return flat(
        {
            0: 3,
            1: [{0: min(c, 127), 3: c, **({1: custom} if c == CUSTOM else {})} for c in codes],
            2: [
                {
                    0: [{0: s, 1: kind, 2: int(stored)} for s, kind, stored in tensors],
                    1: (0,),
                    2: operators[-1][2],
                    3: [
                        {0: codes.index(c), 1: i, 2: o, **({4: options} if options else {})}
                        for c, i, o, options in operators
                    ],
                }
            ],
            4: [{}, {0: b"\1\2\3\4"}],
        }
    )


INT8, FP32 = 9, 0
SMALL = model(
    [
        ((1, 32, 32, 3), INT8, False),
        ((16, 3, 3, 3), INT8, True),
        ((1, 16, 16, 16), INT8, False),
        ((1, 5, 5, 16), INT8, True),
        ((1, 16, 16, 16), INT8, False),
        ((1, 4096), INT8, False),
        ((10, 4096), INT8, True),
        ((1, 10), INT8, False),
        ((1, 10), INT8, False),
    ],
    [
        (CONV, (0, 1), (2,), {0: 0, 1: 2, 2: 2}),
        (DEPTHWISE, (2, 3), (4,), {0: 0, 1: 1, 2: 1, 3: 1}),
        (RESHAPE, (4,), (5,), {}),
        (DENSE, (5, 6), (7,), {}),
        (SOFTMAX, (7,), (8,), {}),
    ],
)
