"""Plain data into typed tables, with errors that name the field, what was found and what to do."""

from __future__ import annotations

import difflib
import re
import types
import typing
from collections.abc import Iterable
from functools import cache
from typing import Any, TypeVar

import msgspec

from silicast.core.errors import SilicastError, unknown_name
from silicast.core.plain_data import shown, type_name

T = TypeVar("T")


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A table of the contract: immutable, and unknown fields are errors."""


def convert(data: object, to: type[T], field: str = "") -> T:
    """``data`` as a ``to``.

    Args:
        field: where ``data`` stands in the scenario; put before the path of an error.

    Raises:
        SilicastError: a field is unknown (the nearest are offered), missing, of another type or
            out of range.
    """
    try:
        return msgspec.convert(data, to)
    except msgspec.ValidationError as error:
        explained = _explained(str(error), data, to)
        raise (explained.at(field) if field else explained) from None
    except (RecursionError, OverflowError, ValueError) as error:
        raise SilicastError(f"not usable: {error}", field=field) from None


def near(name: object, known: Iterable[str], count: int = 3) -> str:
    """A hint that offers the nearest of ``known``, or all of them where they are few.

    >>> near("devise", ["device", "model"])
    'did you mean device?'
    """
    names = list(known)
    folded = {other.casefold(): other for other in names}
    found = difflib.get_close_matches(str(name)[:80].casefold(), folded, n=count, cutoff=0.5)
    if found:
        return f"did you mean {' or '.join(folded[match] for match in found)}?"
    return f"known: {', '.join(names[:24])}{', …' if len(names) > 24 else ''}"


def require(condition: bool, message: str, field: str, hint: str = "") -> None:
    """Raises SilicastError for ``field`` unless ``condition`` holds."""
    if not condition:
        raise SilicastError(message, field=field, hint=hint)


@cache
def fields_of(table: type[msgspec.Struct]) -> dict[str, Any]:
    """Field name, as it stands in a file, -> declared type."""
    hints = typing.get_type_hints(table)
    info = msgspec.structs.fields(table)
    return {field.encode_name: hints[field.name] for field in info}


_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`", re.DOTALL)
_STEP = re.compile(r"\[(\d+|\.\.\.)\]|\.?([^.\[\]]+)")


def _explained(text: str, data: object, to: Any) -> SilicastError:
    message, _, raw = text.rpartition(" - at ")
    if not message:
        message, raw = text, "`$`"
    path = raw.strip("`").removeprefix("key` in `").removeprefix("$").removeprefix(".")
    steps = [a or b for a, b in _STEP.findall(path)]
    target, value, sure = _follow(to, data, steps)
    if unknown := _UNKNOWN.match(message):
        name = unknown.group(1)
        known = fields_of(target) if _is_table(target) else {}
        field = f"{path}.{name}" if path else name
        return unknown_name(f"unknown field {shown(name)}", field, near(name, known))
    if missing := _MISSING.match(message):
        field = f"{path}.{missing.group(1)}" if path else missing.group(1)
        return SilicastError("is missing", field=field, hint=_expected(target, missing.group(1)))
    choices = _choices(target)
    if choices and sure and not (isinstance(value, str) and value in choices):
        hint = near(value, choices)
        one = choices[0] if len(choices) == 1 else f"one of {', '.join(choices)}"
        return SilicastError(
            f"expected {one}, found {shown(value)}",
            kind="unknown_name" if isinstance(value, str) else "invalid_input",
            field=path,
            hint="" if hint.startswith("known") else hint,
        )
    found = f", found {shown(value)}" if sure else ""
    return SilicastError(_plain(message, value, sure) + found, field=path)


def _plain(message: str, value: object, sure: bool) -> str:
    words = {
        "`int`": "a whole number", "`float`": "a number", "`str`": "text",
        "`bool`": "true or false", "`object`": "a table", "`array`": "a list",
    }  # fmt: skip
    text = message[:300]
    if sure and text.startswith("Expected") and ", got" in text:
        text = text.partition(", got")[0]
    if match := re.fullmatch(r"Expected `([a-z |]+)`", text):
        parts = [words.get(f"`{part}`", part) for part in match.group(1).split(" | ")]
        parts = [part for part in parts if part != "null"]
        return f"expected {' or '.join(parts)}"
    for code, word in words.items():
        text = text.replace(code, word)
    if sure and isinstance(value, (list, str)) and "length" in text:
        kind = type_name(value)
        return f"expected {kind} {text.partition('of ')[2]}" if "of " in text else text
    return text[:1].lower() + text[1:]


def _follow(to: Any, data: object, steps: list[str]) -> tuple[Any, object, bool]:
    """The declared type and the value at the end of a path; False where the path is not exact."""
    sure = True
    for step in steps:
        to = _strip(to, data)
        if step == "...":
            args = typing.get_args(to)
            to, sure, data = (args[-1] if args else Any), False, None
        elif step.isdigit() and isinstance(data, (list, tuple)):
            args = typing.get_args(to)
            to = args[0] if args else Any
            data = data[int(step)] if int(step) < len(data) else None
        else:
            to = fields_of(to).get(step, Any) if _is_table(to) else Any
            sure = sure and isinstance(data, dict) and step in data
            data = data.get(step) if isinstance(data, dict) else None
    return _strip(to, data), data, sure


def _strip(to: Any, data: object) -> Any:
    """A declared type without Annotated, and the member of a union that ``data`` aims at."""
    while typing.get_origin(to) is typing.Annotated:
        to = typing.get_args(to)[0]
    if typing.get_origin(to) in {types.UnionType, typing.Union}:
        members = [_strip(member, data) for member in typing.get_args(to)]
        tables = [member for member in members if _is_table(member)]
        lists = [member for member in members if typing.get_origin(member) is list]
        if isinstance(data, (list, tuple)) and lists:
            return lists[0]
        if tables and (isinstance(data, dict) or data is None):
            return tables[0]
        literals = [member for member in members if typing.get_origin(member) is typing.Literal]
        return literals[0] if literals else Any
    return to


def _is_table(to: Any) -> bool:
    return isinstance(to, type) and issubclass(to, msgspec.Struct)


def _choices(to: Any) -> list[str]:
    return [str(c) for c in typing.get_args(to)] if typing.get_origin(to) is typing.Literal else []


def _expected(target: Any, name: str) -> str:
    choices = _choices(_strip(fields_of(target).get(name, Any), None)) if _is_table(target) else []
    return f"one of {', '.join(choices)}" if choices else "it is required"
