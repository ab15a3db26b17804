"""The protobuf wire format: fields of a message as numbers and spans of bytes, and back.

https://protobuf.dev/programming-guides/encoding. A message is a run of fields, each a tag (field
number and wire type, a varint) and a value. Nothing is copied before it is asked for, so that a
file of random bytes costs no more memory than it has bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Literal

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types; groups (3, 4) are of an older language than the schemas read here."""
MAX_VARINT_BYTES = 10
MASK64 = (1 << 64) - 1

Packing = Literal["varint", "zigzag", "<d", "<f", "<I", "<Q", "<i", "<q"]
"""How numbers of a list lie behind each other: as varints, or as ``struct`` says."""


class WireError(ValueError):
    """Bytes that are no message; says where."""


def read_varint(data: bytes, place: int, end: int) -> tuple[int, int]:
    """A number of up to 64 bits, and the place behind it.

    Raises:
        WireError: it is cut off, or longer than 10 bytes.

    >>> read_varint(bytes([0xAC, 0x02]), 0, 2)
    (300, 2)
    """
    if place < end and data[place] < 0x80:
        return data[place], place + 1
    value = shift = 0
    for at in range(place, min(end, place + MAX_VARINT_BYTES)):
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & MASK64, at + 1
        shift += 7
    cut = end - place < MAX_VARINT_BYTES
    raise WireError(f"a number at byte {place} {'is cut off' if cut else 'has no end'}")


def fields(data: bytes, place: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Fields of the message in ``data[place:end]``: number, wire type, and value.

    The value of a varint or a fixed number is (bits, 0), of bytes (start, end).

    Raises:
        WireError: it is cut off, or a wire type does not exist.
    """
    while place < end:
        start = place
        tag, place = read_varint(data, place, end)
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise WireError(f"field number 0 at byte {start}")
        if kind == VARINT:
            value, place = read_varint(data, place, end)
            yield number, kind, value, 0
        elif kind == BYTES:
            length, place = read_varint(data, place, end)
            if length > end - place:
                raise WireError(
                    f"field {number} at byte {start} has {length} bytes, {end - place} are left"
                )
            yield number, kind, place, place + length
            place += length
        elif kind in (FIXED64, FIXED32):
            width = 8 if kind == FIXED64 else 4
            if width > end - place:
                raise WireError(f"field {number} at byte {start} is cut off")
            yield number, kind, int.from_bytes(data[place : place + width], "little"), 0
            place += width
        else:
            raise WireError(f"field {number} at byte {start} has the wire type {kind}")


def read_packed(
    data: bytes, start: int, end: int, packing: Packing, most: int
) -> tuple[int | float, ...]:
    """Numbers of a list that lie behind each other.

    Args:
        most: numbers that are read.

    Raises:
        WireError: the last one is cut off, or there are more.
    """
    if packing in ("varint", "zigzag"):
        found: list[int] = []
        while start < end:
            value, start = read_varint(data, start, end)
            found.append(unzigzag(value) if packing == "zigzag" else value)
            if len(found) > most:
                raise WireError(f"more than {most} numbers in a list")
        return tuple(found)
    width = struct.calcsize(packing)
    if (end - start) % width:
        raise WireError(f"a list at byte {start} is cut off")
    if (end - start) // width > most:
        raise WireError(f"more than {most} numbers in a list")
    return tuple(value for (value,) in struct.iter_unpack(packing, data[start:end]))


def varint(value: int) -> bytes:
    """A number as bytes; negative ones as their 64 bits.

    >>> varint(300).hex(), len(varint(-1))
    ('ac02', 10)
    """
    value &= MASK64
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def zigzag(value: int) -> int:
    """Signed numbers as even and odd ones.

    >>> [zigzag(n) for n in (0, -1, 1, -2)]
    [0, 1, 2, 3]
    """
    return (value << 1) ^ (value >> 63)


def unzigzag(value: int) -> int:
    """The number that :func:`zigzag` was given."""
    return (value >> 1) ^ -(value & 1)


def signed(value: int, bits: int = 64) -> int:
    """Bits as a number in two's complement.

    >>> signed((1 << 64) - 1), signed(5, 32)
    (-1, 5)
    """
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def tag(number: int, kind: int) -> bytes:
    """What stands before a field's value."""
    return varint(number << 3 | kind)


def sized(number: int, content: bytes) -> bytes:
    """A field of bytes: text, a message, or numbers behind each other."""
    return tag(number, BYTES) + varint(len(content)) + content


def number_field(number: int, value: int) -> bytes:
    """A field of a number; nothing for 0, which is what a reader takes where there is none."""
    return tag(number, VARINT) + varint(value) if value else b""


def text_field(number: int, text: str) -> bytes:
    """A field of text; nothing for an empty one."""
    return sized(number, text.encode("utf-8", "surrogateescape")) if text else b""
