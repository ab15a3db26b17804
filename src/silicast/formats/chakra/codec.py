"""Chakra's messages: the schema as classes of protobuf, and bytes into them and back.

The classes are made from the field numbers. Texts are fields of bytes: the bytes of a file are the
same, and text that is no UTF-8 is kept. Attributes and operands are fields of bytes too, which are
read as messages of their own.
"""

from __future__ import annotations

from functools import cache
from typing import Any, final

from silicast.core.packages import missing_package
from silicast.formats.chakra.schema import KINDS, Attribute, ChakraNode, Operands, RankTrace, Scalar

_TYPES = {"string": "bytes"}
Fields = dict[int, tuple[str, str]]
"""Number -> (name, type with "*" before it where it is repeated)."""
_MESSAGES: dict[str, Fields] = {
    "Metadata": {1: ("version", "bytes"), 2: ("attr", "*bytes")},
    "Node": {
        1: ("id", "uint64"),
        2: ("name", "bytes"),
        3: ("type", "int32"),
        4: ("ctrl_deps", "*uint64"),
        5: ("data_deps", "*uint64"),
        6: ("start", "uint64"),
        7: ("duration", "uint64"),
        8: ("inputs", "bytes"),
        9: ("outputs", "bytes"),
        10: ("attr", "*bytes"),
    },
    "Operands": {1: ("values", "bytes"), 2: ("shapes", "bytes"), 3: ("types", "bytes")},
    "Attribute": {1: ("name", "bytes"), 2: ("doc", "bytes")},
}


@final
class Messages:
    """Classes of protobuf by the names of their messages.

    Attributes:
        DecodeError: what a class raises for bytes that are none of its messages.
        unknown: gives the fields of a message that the schema does not have.
    """

    def __init__(self, classes: dict[str, Any], error: type[Exception], unknown: Any) -> None:
        self.Metadata, self.Node = classes["Metadata"], classes["Node"]
        self.Operands, self.Attribute = classes["Operands"], classes["Attribute"]
        self.DecodeError = error
        self.unknown = unknown


@cache
def messages() -> Messages:
    """The classes.

    Raises:
        SilicastError: kind "unsupported": protobuf is not installed.
    """
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
        from google.protobuf.message import DecodeError
        from google.protobuf.unknown_fields import UnknownFieldSet
    except ImportError:
        raise missing_package("protobuf", "reading and writing Chakra traces") from None
    file = descriptor_pb2.FileDescriptorProto(
        name="chakra.proto", package="chakra", syntax="proto3"
    )
    for name, fields in _MESSAGES.items():
        _add(file, name, fields)
    values = file.message_type[-1]
    values.oneof_decl.add(name="value")
    for position, kind in enumerate(KINDS):
        _add(file, f"{kind}_list", {1: ("values", f"*{_TYPES.get(kind, kind)}")})
        for number, (field, type_) in enumerate(
            ((kind, _TYPES.get(kind, kind)), (f"{kind}_list", f"{kind}_list")), 3 + 2 * position
        ):
            _field(values, number, field, type_).oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    classes = {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"chakra.{name}"))
        for name in _MESSAGES
    }
    return Messages(classes, DecodeError, UnknownFieldSet)


def _add(file: Any, name: str, fields: Fields) -> None:
    message = file.message_type.add(name=name)
    for number, (field, type_) in fields.items():
        _field(message, number, field, type_)


def _field(message: Any, number: int, name: str, type_: str) -> Any:
    field = message.field.add(name=name, number=number)
    field.label = field.LABEL_REPEATED if type_.startswith("*") else field.LABEL_OPTIONAL
    if type_.endswith("_list"):
        field.type, field.type_name = field.TYPE_MESSAGE, f".chakra.{type_}"
    else:
        field.type = getattr(field, f"TYPE_{type_.removeprefix('*').upper()}")
    return field


MOST_LISTED = 1 << 16
"""Numbers in a list, of an attribute or of a node's dependencies."""
MOST_VALUES = 4_000_000
"""Nodes, attributes and numbers in lists of a file."""
MOST_MESSAGE_BYTES = 1 << 20
"""Of one message: what protobuf makes of it is not counted before it is made."""
MOST_LENGTH_BYTES = 10


class WireError(ValueError):
    """Bytes that are no message; says where."""


@final
class _Reading:
    """What was read of a file: values, which are bounded, and fields that were not understood.

    Attributes:
        known: attributes by their bytes; most nodes of a trace have the same few.
    """

    def __init__(self) -> None:
        self.values = self.skipped = 0
        self.known: dict[bytes, Attribute] = {}

    def take(self, count: int = 1) -> None:
        """Counts values; a few bytes of a file must not become a heap of objects."""
        self.values += count
        if self.values > MOST_VALUES:
            raise WireError(f"holds more than {MOST_VALUES} nodes, attributes and dependencies")

    def parsed(self, kind: Any, content: bytes) -> Any:
        try:
            message = kind.FromString(content)
        except messages().DecodeError as error:
            reason = str(error).rpartition(": ")[2]
            raise WireError(f"is no {kind.DESCRIPTOR.name}: {reason}") from None
        self.skipped += len(messages().unknown(message))
        return message

    def listed(self, values: Any) -> tuple[Any, ...]:
        if len(values) > MOST_LISTED:
            raise WireError(f"more than {MOST_LISTED} values in a list")
        self.take(len(values))
        return tuple(values)

    def attribute(self, content: bytes) -> Attribute:
        self.take()
        if content not in self.known:
            self.known[content] = self._new_attribute(content)
        return self.known[content]

    def _new_attribute(self, content: bytes) -> Attribute:
        read = self.parsed(messages().Attribute, content)
        kind = read.WhichOneof("value") or "bytes"
        value = getattr(read, kind)
        if kind.endswith("_list"):
            listed = self.listed(value.values)
            value = tuple(map(_text, listed)) if kind == "string_list" else listed
        elif kind == "string":
            value = _text(value)
        return Attribute(_text(read.name), kind, value, _text(read.doc))

    def operands(self, content: bytes) -> Operands:
        if not content:
            return Operands()
        read = self.parsed(messages().Operands, content)
        return Operands(_text(read.values), _text(read.shapes), _text(read.types))

    def node(self, content: bytes) -> ChakraNode:
        read = self.parsed(messages().Node, content)
        return ChakraNode(
            read.id,
            _text(read.name),
            read.type,
            self.listed(read.ctrl_deps),
            self.listed(read.data_deps),
            read.start,
            read.duration,
            tuple(map(self.attribute, read.attr)),
            self.operands(read.inputs),
            self.operands(read.outputs),
        )


def decode_trace(data: bytes) -> RankTrace:
    """The messages of a file: one of the trace, then one a node, each behind its length.

    Raises:
        WireError: it is no such file; says in which message.
        SilicastError: kind "unsupported": protobuf is not installed.
    """
    if not data:
        raise WireError("holds no message")
    reading = _Reading()
    nodes: list[ChakraNode] = []
    version, metadata = "", tuple[Attribute, ...]()
    position = number = 0
    while position < len(data):
        number += 1
        try:
            content, position = _message_at(data, position)
            reading.take()
            if number > 1:
                nodes.append(reading.node(content))
                continue
            head = reading.parsed(messages().Metadata, content)
            version, metadata = _text(head.version), tuple(map(reading.attribute, head.attr))
        except WireError as error:
            raise WireError(f"message {number}: {error}") from None
    return RankTrace(tuple(nodes), version, metadata, reading.skipped)


def _message_at(data: bytes, position: int) -> tuple[bytes, int]:
    """The message behind its length, and the position behind it."""
    length = 0
    start = position
    for count in range(MOST_LENGTH_BYTES + 1):
        if start >= len(data) or count == MOST_LENGTH_BYTES:
            raise WireError(f"its length at byte {position} has no end")
        length |= (data[start] & 0x7F) << 7 * count
        start += 1
        if data[start - 1] < 0x80:
            break
    if length > len(data) - start:
        raise WireError(f"at byte {position} has {length} bytes, but {len(data) - start} are left")
    if length > MOST_MESSAGE_BYTES:
        raise WireError(f"has {length} bytes, at most {MOST_MESSAGE_BYTES} are read")
    return data[start : start + length], start + length


def encode_trace(trace: RankTrace) -> bytes:
    """The bytes of a file; the same trace gives the same bytes.

    Raises:
        SilicastError: kind "unsupported": protobuf is not installed.
    """
    head = messages().Metadata(
        version=_bytes(trace.version), attr=map(_attribute_bytes, trace.metadata)
    )
    written = (head, *map(_node, trace.nodes))
    return b"".join(_sized(message.SerializeToString(deterministic=True)) for message in written)


def _sized(content: bytes) -> bytes:
    """A message behind its length."""
    length, head = len(content), bytearray()
    while length > 0x7F:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes((*head, length)) + content


def _node(node: ChakraNode) -> Any:
    return messages().Node(
        id=node.id,
        name=_bytes(node.name),
        type=node.type,
        ctrl_deps=node.ctrl_deps,
        data_deps=node.data_deps,
        start=node.start_us,
        duration=node.duration_us,
        inputs=_operand_bytes(node.inputs),
        outputs=_operand_bytes(node.outputs),
        attr=map(_attribute_bytes, node.attributes),
    )


def _operand_bytes(held: Operands) -> bytes:
    texts = (held.values, held.shapes, held.types)
    if not any(texts):
        return b""
    values, shapes, types = map(_bytes, texts)
    message = messages().Operands(values=values, shapes=shapes, types=types)
    content: bytes = message.SerializeToString(deterministic=True)
    return content


def _attribute_bytes(attribute: Attribute) -> bytes:
    message = messages().Attribute(name=_bytes(attribute.name), doc=_bytes(attribute.doc))
    if isinstance(attribute.value, tuple):
        listed = getattr(message, attribute.kind)
        listed.SetInParent()
        listed.values.extend(map(_scalar, attribute.value))
    else:
        setattr(message, attribute.kind, _scalar(attribute.value))
    content: bytes = message.SerializeToString(deterministic=True)
    return content


def _scalar(value: Scalar) -> Scalar:
    return _bytes(value) if isinstance(value, str) else value


def _text(content: bytes) -> str:
    """Text; bytes that are none are kept, and written again as they were."""
    return content.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
