"""What a user is told of data that are no table of a kind.

:mod:`msgspec` says what is wrong in the types of Python and gives a path. Here the path is followed
through the declared types and the data, so that the message can use the words of a file: the field,
what it should be, what it is, and the nearest known name.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from silicast.core.decode import fields_of
from silicast.core.errors import SilicastError, unknown_field
from silicast.core.naming import near
from silicast.core.plain_data import shown, type_name

_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`", re.DOTALL)
_STEP = re.compile(r"\[(\d+|\.\.\.)\]|\.?([^.\[\]]+)")
_KEY = "key` in `"
_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "object": "a table",
    "array": "a list",
}
"""A type, as the decoder names it -> as a user of a file does."""


class _End(typing.NamedTuple):
    """Where a path ends.

    Attributes:
        kind: the declared type there; value: what the data hold there.
        is_exact: whether every step was followed; if not, the value is not that of the error.
        path: as users write it.
    """

    kind: Any
    value: object
    is_exact: bool
    path: str


def explained(text: str, data: object, kind: Any, also: Iterable[str] = ()) -> SilicastError:
    """The error for a message of the decoder.

    Args:
        text: of a ``msgspec.ValidationError``.
        data, kind: that it tried to convert, and into what.
        also: further names of fields at the top.
    """
    message, raw = _parted(text)
    end = _key_of(_followed(kind, data, raw.removeprefix(_KEY)), raw.startswith(_KEY))
    if unknown := _UNKNOWN.match(message):
        name = unknown.group(1)
        fields = [*fields_of(end.kind)] if _is_table(end.kind) else []
        fields += () if end.path else also
        return unknown_field(
            f"unknown field {shown(name)}", _joined(end.path, name), near(name, fields)
        )
    if missing := _MISSING.match(message):
        name = missing.group(1)
        return SilicastError(
            "is missing",
            field=_joined(end.path, name),
            hint=_required(_field_type(end.kind, end.value, name)),
        )
    choices = [str(choice) for choice in _choices(end.kind)]
    if choices and end.is_exact and end.value not in choices:
        hint = near(end.value, choices)
        expected = choices[0] if len(choices) == 1 else f"one of {', '.join(choices)}"
        return SilicastError(
            f"expected {expected}, found {shown(end.value)}",
            kind="unknown_name" if isinstance(end.value, str) else "invalid_input",
            field=end.path,
            hint="" if hint.startswith("known") else hint,
        )
    value = f", found {shown(end.value)}" if end.is_exact else ""
    return SilicastError(_in_plain_words(message, end) + value, field=end.path)


def _parted(text: str) -> tuple[str, str]:
    """A message and its path, without the root.

    >>> _parted("Expected `int`, got `str` - at `$.a[0]`")
    ('Expected `int`, got `str`', 'a[0]')
    """
    message, _, raw = text.rpartition(" - at ")
    if not message:
        return text, ""
    path = raw.strip("`")
    key = _KEY if path.startswith(_KEY) else ""
    return message, key + path.removeprefix(_KEY).removeprefix("$").removeprefix(".")


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _required(kind: Any) -> str:
    """What stands where a field is missing.

    >>> _required(float)
    'a number is required'
    """
    kind = _member(kind, None)
    if choices := _choices(kind):
        return f"one of {', '.join(map(str, choices))}"
    names = {int: "int", float: "float", str: "str", bool: "bool", dict: "object"}
    names |= dict.fromkeys((list, tuple), "array")
    word = _WORDS.get(names.get(typing.get_origin(kind) or kind, ""), "")
    word = _WORDS["object"] if _is_table(kind) else word
    return f"{word} is required" if word else "it is required"


def _in_plain_words(message: str, end: _End) -> str:
    text = message[:300]
    if end.is_exact and text.startswith("Expected") and ", got" in text:
        text = text.partition(", got")[0]
    if match := re.fullmatch(r"Expected `([a-z |]+)`", text):
        parts = [part for part in match.group(1).split(" | ") if part != "null"]
        return f"expected {' or '.join(_WORDS.get(part, part) for part in parts)}"
    if end.is_exact and isinstance(end.value, list | str) and "length" in text and "of " in text:
        return f"expected {type_name(end.value)} of {text.partition('of ')[2]}"
    for code, word in _WORDS.items():
        text = text.replace(f"`{code}`", word).replace(f"`{code} | null`", word)
    text = text.replace(", got ", ", found ")
    return text[:1].lower() + text[1:]


def _followed(kind: Any, value: object, raw: str) -> _End:
    """The end of a path of the decoder.

    A key of a dictionary stands as "[...]" in the path: the key whose value gives the same error
    is meant.
    """
    message_path, path, exact = raw, "", True
    while step := _STEP.match(message_path):
        message_path = message_path[step.end() :]
        index, name = step.groups()
        if index == "...":
            kind = _member(kind, value)
            item, key = _arguments(kind)[-1], _meant(kind, value, message_path)
            exact = exact and key is not None
            path = _joined(path, str(key)) if key is not None else path
            kind, value = item, value[key] if isinstance(value, Mapping) and exact else None
        elif index:
            kind, path = _item(_member(kind, value), int(index)), f"{path}[{index}]"
            value = value[int(index)] if isinstance(value, list | tuple) else None
        else:
            kind, path = _field_type(kind, value, name), _joined(path, name)
            exact = exact and isinstance(value, Mapping) and name in value
            value = value.get(name) if isinstance(value, Mapping) else None
    return _End(_member(kind, value), value, exact, path)


def _meant(kind: Any, table: object, tail: str) -> Any:
    """The key of a dictionary whose value is refused at the path ``tail``; None = no one."""
    item = _arguments(kind)[-1]
    for key, value in table.items() if isinstance(table, Mapping) else ():
        try:
            msgspec.convert(value, item)
        except msgspec.ValidationError as error:
            if _parted(str(error))[1].removeprefix(_KEY) == tail.removeprefix("."):
                return key
    return None


def _key_of(end: _End, is_key: bool) -> _End:
    """The end of a path, or, where a key of a dictionary is wrong, that key."""
    if not is_key:
        return end
    kind = _member(_arguments(end.kind)[0], "")
    for key in end.value if isinstance(end.value, Mapping) else ():
        try:
            msgspec.convert(key, kind)
        except msgspec.ValidationError:
            return _End(kind, key, end.is_exact, _joined(end.path, str(key)))
    return _End(kind, None, False, end.path)


def _arguments(kind: Any) -> tuple[Any, ...]:
    return tuple(item for item in typing.get_args(kind) if item is not Ellipsis) or (Any,)


def _item(kind: Any, index: int) -> Any:
    """The declared type of an item of a list or tuple."""
    declared = typing.get_args(kind)
    if typing.get_origin(kind) is tuple and Ellipsis not in declared:
        return declared[index] if index < len(declared) else Any
    return declared[0] if declared else Any


def _field_type(kind: Any, value: object, name: str) -> Any:
    """The declared type of a field; of the field that tells tables apart, their names."""
    tables = [member for member in _members(kind) if _is_table(member)]
    tags = [
        table.__struct_config__.tag for table in tables if table.__struct_config__.tag_field == name
    ]
    if tags:
        return typing.Literal[tuple(tags)]
    table = _member(kind, value)
    if _is_table(table):
        return fields_of(table).get(name, Any)
    return _arguments(table)[-1] if typing.get_origin(table) is dict else Any


def _members(kind: Any) -> list[Any]:
    """The types of a union without Annotated, null and unset; a type alone is one."""
    while typing.get_origin(kind) is typing.Annotated:
        kind = typing.get_args(kind)[0]
    if typing.get_origin(kind) not in {types.UnionType, typing.Union}:
        return [kind]
    members = [member for argument in typing.get_args(kind) for member in _members(argument)]
    return [option for option in members if option not in (type(None), msgspec.UnsetType)]


def _member(kind: Any, value: object) -> Any:
    """The member of a union that a value aims at."""
    members = _members(kind)
    tables = [option for option in members if _is_table(option)]
    lists = [option for option in members if typing.get_origin(option) in (list, tuple)]
    if len(members) == 1:
        return members[0]
    if isinstance(value, list | tuple) and lists:
        return lists[0]
    if tables and (isinstance(value, Mapping) or value is None):
        return next((option for option in tables if _has_tag(option, value)), tables[0])
    dictionaries = [option for option in members if typing.get_origin(option) is dict]
    if dictionaries and isinstance(value, Mapping):
        return dictionaries[0]
    literals = [option for option in members if typing.get_origin(option) is typing.Literal]
    return literals[0] if literals else Any


def _has_tag(table: Any, value: object) -> bool:
    config = table.__struct_config__
    return (
        isinstance(value, Mapping)
        and bool(config.tag_field)
        and value.get(config.tag_field) == config.tag
    )


def _is_table(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _choices(kind: Any) -> tuple[Any, ...]:
    return typing.get_args(kind) if typing.get_origin(kind) is typing.Literal else ()
