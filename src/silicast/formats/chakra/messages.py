"""The messages of Chakra's schema as classes of protobuf, made from the field numbers.

Texts are fields of bytes: the bytes of a file are the same, and text that is no UTF-8 is kept.
Attributes and operands are fields of bytes too, which are read as messages of their own.
"""

from __future__ import annotations

from functools import cache
from typing import Any, final

from silicast.core.errors import unsupported
from silicast.formats.chakra.schema import KINDS

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
        raise unsupported(
            "reading and writing Chakra traces needs protobuf, which is not installed",
            hint="pip install 'silicast[chakra]'",
        ) from None
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
