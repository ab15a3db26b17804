"""Bytes of a Chakra trace into messages of the schema, and back."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import final

from silicast.workload.chakra import wire
from silicast.workload.chakra.schema import (
    KINDS,
    Attribute,
    ChakraNode,
    Operands,
    RankTrace,
    Scalar,
    Value,
)
from silicast.workload.chakra.wire import BYTES, FIXED32, FIXED64, VARINT, Packing, WireError

MOST_LISTED = 1 << 16
"""Numbers in a list, of an attribute or of a node's dependencies."""
MOST_VALUES = 4_000_000
"""Nodes, attributes and numbers in lists of a file."""

_FIXED: dict[str, tuple[Packing, int]] = {
    "double": ("<d", FIXED64), "float": ("<f", FIXED32), "fixed32": ("<I", FIXED32),
    "fixed64": ("<Q", FIXED64), "sfixed32": ("<i", FIXED32), "sfixed64": ("<q", FIXED64),
}  # fmt: skip
_TEXT = {"string": "utf-8", "bytes": ""}
_BITS = {"int32": 32, "int64": 64}
_ZIGZAG = ("sint32", "sint64")
_UNSIGNED = {"uint32": 32, "uint64": 64}


@final
class Reading:
    """What was read of a file: values, which are bounded, and fields that were not understood.

    Attributes:
        known: attributes by their bytes; most nodes of a trace have the same few.
    """

    def __init__(self) -> None:
        self.values = self.skipped = 0
        self.known: dict[bytes, Attribute] = {}

    def take(self, count: int = 1) -> None:
        """Counts values; a few bytes of a file must not become a heap of objects.

        Raises:
            WireError: there are more than :data:`MOST_VALUES`.
        """
        self.values += count
        if self.values > MOST_VALUES:
            raise WireError(f"holds more than {MOST_VALUES} nodes, attributes and dependencies")


def decode_trace(data: bytes) -> RankTrace:
    """The messages of a file: one of the trace, then one a node, each behind its length.

    Raises:
        WireError: it is no such file; says in which message.
    """
    read = Reading()
    spans: list[tuple[int, int]] = []
    place = 0
    while place < len(data):
        try:
            length, start = wire.read_varint(data, place, len(data))
        except WireError as error:
            raise WireError(f"message {len(spans) + 1}: {error}") from None
        if length > len(data) - start:
            raise WireError(
                f"message {len(spans) + 1} at byte {place} has {length} bytes, "
                f"{len(data) - start} are left"
            )
        spans.append((start, start + length))
        place = start + length
        read.take()
    if not spans:
        raise WireError("holds no message")
    nodes: list[ChakraNode] = []
    version = ""
    metadata: tuple[Attribute, ...] = ()
    for number, span in enumerate(spans, 1):
        try:
            if number == 1:
                version, metadata = _metadata(data, *span, read)
            else:
                nodes.append(_node(data, *span, read))
        except WireError as error:
            raise WireError(f"message {number}: {error}") from None
    return RankTrace(tuple(nodes), version, metadata, read.skipped)


def encode_trace(trace: RankTrace) -> bytes:
    """The bytes of a file; the same trace gives the same bytes."""
    head = wire.text_field(1, trace.version) + b"".join(
        wire.sized(2, _attribute_bytes(each)) for each in trace.metadata
    )
    messages = (head, *map(_node_bytes, trace.nodes))
    return b"".join(wire.varint(len(each)) + each for each in messages)


def _metadata(
    data: bytes, start: int, end: int, read: Reading
) -> tuple[str, tuple[Attribute, ...]]:
    version, attributes = "", []
    for number, kind, value, after in wire.fields(data, start, end):
        if number == 1 and kind == BYTES:
            version = _text(data, value, after)
        elif number == 2 and kind == BYTES:
            attributes.append(_attribute(data, value, after, read))
        else:
            read.skipped += 1
    return version, tuple(attributes)


def _node(data: bytes, start: int, end: int, read: Reading) -> ChakraNode:
    numbers = {1: 0, 3: 0, 6: 0, 7: 0}
    deps: dict[int, list[int]] = {4: [], 5: []}
    operands = {8: Operands(), 9: Operands()}
    name, attributes = "", []
    for number, kind, value, after in wire.fields(data, start, end):
        if number in numbers and kind == VARINT:
            numbers[number] = value
        elif number in deps and kind in (VARINT, BYTES):
            own = deps[number]
            if kind == VARINT:
                own.append(value)
                read.take()
            else:
                more = wire.read_packed(data, value, after, "varint", MOST_LISTED)
                read.take(len(more))
                own += map(int, more)
            if len(own) > MOST_LISTED:
                raise WireError(f"a node waits for more than {MOST_LISTED} others")
        elif number == 2 and kind == BYTES:
            name = _text(data, value, after)
        elif number in operands and kind == BYTES:
            operands[number] = _operands(data, value, after, read)
        elif number == 10 and kind == BYTES:
            attributes.append(_attribute(data, value, after, read))
        else:
            read.skipped += 1
    return ChakraNode(
        numbers[1], name, wire.signed(numbers[3], 32), tuple(deps[4]), tuple(deps[5]), numbers[6],
        numbers[7], tuple(attributes), operands[8], operands[9],
    )  # fmt: skip


def _operands(data: bytes, start: int, end: int, read: Reading) -> Operands:
    found = {1: "", 2: "", 3: ""}
    for number, kind, value, after in wire.fields(data, start, end):
        if number in found and kind == BYTES:
            found[number] = _text(data, value, after)
        else:
            read.skipped += 1
    return Operands(*found.values())


def _attribute(data: bytes, start: int, end: int, read: Reading) -> Attribute:
    raw = data[start:end]
    read.take()
    if raw not in read.known:
        read.known[raw] = _new_attribute(data, start, end, read)
    return read.known[raw]


def _new_attribute(data: bytes, start: int, end: int, read: Reading) -> Attribute:
    texts, shown = {1: "", 2: ""}, "bytes"
    held: Value = b""
    for number, kind, value, after in wire.fields(data, start, end):
        if number in texts and kind == BYTES:
            texts[number] = _text(data, value, after)
        elif 3 <= number < 3 + 2 * len(KINDS):
            is_list = number % 2 == 0
            name = KINDS[(number - 3) // 2]
            if is_list and kind == BYTES:
                listed = _listed(data, value, after, name)
                read.take(len(listed))
                shown, held = f"{name}_list", listed
            elif not is_list and kind == _wire_type(name):
                shown, held = name, _scalar(data, value, after, name)
            else:
                raise WireError(f"attribute {texts[1]!r} has a value of another type than {name}")
        else:
            read.skipped += 1
    return Attribute(texts[1], shown, held, texts[2])


def _wire_type(kind: str) -> int:
    if kind in _FIXED:
        return _FIXED[kind][1]
    return BYTES if kind in _TEXT else VARINT


def _scalar(data: bytes, value: int, after: int, kind: str) -> Scalar:
    if kind == "string":
        return _text(data, value, after)
    if kind == "bytes":
        return data[value:after]
    if kind in _FIXED:
        packing, width = _FIXED[kind]
        raw = value.to_bytes(4 if width == FIXED32 else 8, "little")
        return float(x) if isinstance(x := struct.unpack(packing, raw)[0], float) else int(x)
    return _number(value, kind)


def _number(value: int, kind: str) -> int:
    if kind == "bool":
        return bool(value)
    if kind in _ZIGZAG:
        return wire.unzigzag(value)
    if kind in _BITS:
        return wire.signed(value, _BITS[kind])
    return value & ((1 << _UNSIGNED[kind]) - 1)


def _listed(data: bytes, start: int, end: int, kind: str) -> tuple[Scalar, ...]:
    """The one field of a message of a list, packed or one number a field."""
    found: list[Scalar] = []
    packing: Packing = _FIXED[kind][0] if kind in _FIXED else "varint"
    for number, wired, value, after in wire.fields(data, start, end):
        if number != 1:
            continue
        if wired == BYTES and kind not in _TEXT:
            raw = wire.read_packed(data, value, after, packing, MOST_LISTED)
            found += raw if kind in _FIXED else (_number(int(each), kind) for each in raw)
        elif wired == _wire_type(kind):
            found.append(_scalar(data, value, after, kind))
        if len(found) > MOST_LISTED:
            raise WireError(f"more than {MOST_LISTED} values in a list")
    return tuple(found)


def _text(data: bytes, start: int, end: int) -> str:
    """Text; bytes that are none are kept, and written again as they were."""
    return data[start:end].decode("utf-8", "surrogateescape")


def _node_bytes(node: ChakraNode) -> bytes:
    return b"".join((
        wire.number_field(1, node.id), wire.text_field(2, node.name),
        wire.number_field(3, node.type), _dependencies(4, node.ctrl_deps),
        _dependencies(5, node.data_deps), wire.number_field(6, node.start_us),
        wire.number_field(7, node.duration_us), _operand_bytes(8, node.inputs),
        _operand_bytes(9, node.outputs),
        *(wire.sized(10, _attribute_bytes(each)) for each in node.attributes),
    ))  # fmt: skip


def _dependencies(number: int, ids: Iterable[int]) -> bytes:
    content = b"".join(map(wire.varint, ids))
    return wire.sized(number, content) if content else b""


def _operand_bytes(number: int, held: Operands) -> bytes:
    content = b"".join(
        wire.text_field(place, text)
        for place, text in enumerate((held.values, held.shapes, held.types), 1)
    )
    return wire.sized(number, content) if content else b""


def _attribute_bytes(attribute: Attribute) -> bytes:
    head = wire.text_field(1, attribute.name) + wire.text_field(2, attribute.doc)
    name = attribute.kind.removesuffix("_list")
    place = 3 + 2 * KINDS.index(name)
    if not isinstance(attribute.value, tuple):
        return head + wire.tag(place, _wire_type(name)) + _scalar_bytes(attribute.value, name)
    if name in _TEXT:
        own = b"".join(wire.tag(1, BYTES) + _scalar_bytes(x, name) for x in attribute.value)
    else:
        content = b"".join(_scalar_bytes(each, name) for each in attribute.value)
        own = wire.sized(1, content) if content else b""
    return head + wire.sized(place + 1, own)


def _scalar_bytes(value: Scalar, kind: str) -> bytes:
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogateescape")
    if isinstance(value, bytes):
        return wire.varint(len(value)) + value
    if kind in _FIXED:
        return struct.pack(_FIXED[kind][0], value)
    return wire.varint(wire.zigzag(int(value)) if kind in _ZIGZAG else int(value))
