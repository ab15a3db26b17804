"""The one way from a file's content to typed tables.

:func:`decode` is called for every kind of file and for the flags of commands. What it refuses
names the file, the field, what was expected, the nearest known name and the page that describes
the file. The words are made in :mod:`silicast.core.refusal`, which only an error imports.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from silicast.core.errors import NotJsonError, SilicastError, errors_located, over_limit
from silicast.core.files import read_text
from silicast.core.plain_data import check_tree, with_whole_numbers

T = TypeVar("T")
MOST_TOML_BYTES = 4 << 20
_BYTE = re.compile(r"byte (\d+)")
_NO_NUMBER = re.compile(rb"NaN|Infinity")
"""What other tools write for numbers that are none."""


class Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of a file: immutable, and a field that it does not have is an error."""


class Terse(Strict, frozen=True, omit_defaults=True):
    """A strict table of which only what differs from the defaults is written."""


def decode(
    table: object,
    kind: type[T],
    *,
    file: str = "",
    page: str = "",
    field: str = "",
    hint: str = "",
    also: Iterable[str] = (),
) -> T:
    """Plain data as a ``kind``.

    Args:
        file: that holds the data; "" = they came from elsewhere.
        page: of the documentation, that describes the fields.
        field: where ``table`` stands in the file; put before the path of an error.
        hint: what to do if it is refused, beside looking at the page.
        also: names that the file may use at its top and that its reader turned into declared ones.

    Raises:
        SilicastError: a field is unknown (the nearest are offered), missing, of another type or
            out of range.

    >>> class Clock(Strict, frozen=True):
    ...     boost_mhz: float
    >>> decode({"bost_mhz": 1.0}, Clock, file="my.toml", page="docs/reference/devices.md")
    Traceback (most recent call last):
    silicast.core.errors.UnknownFieldError: my.toml: bost_mhz: unknown field 'bost_mhz' (did you \
mean boost_mhz? docs/reference/devices.md describes every field)
    """
    try:
        try:
            return msgspec.convert(table, kind)
        except msgspec.ValidationError as error:
            if "got `float`" not in str(error):
                raise
            return msgspec.convert(with_whole_numbers(table), kind)
    except msgspec.ValidationError as error:
        refused = _explained(error, table, kind, also)
        raise _located(refused, page, hint, field, file) from None
    except (RecursionError, OverflowError, ValueError) as error:
        raise SilicastError(f"not usable: {error}", field=field, file=file) from None


def decode_json(
    text: bytes | str,
    kind: type[T],
    *,
    file: str = "",
    page: str = "",
    hint: str = "",
    line: int = 0,
    decoder: Callable[[bytes | str], T] | None = None,
) -> T:
    """JSON text as a ``kind``; as :func:`decode`.

    Args:
        line: of the file, if the text is only that line; stands in the message.
        decoder: of that ``kind``, made once for many lines.

    Raises:
        SilicastError: it is no JSON, or as :func:`decode`.
    """
    start = f"line {line}: " if line else ""
    try:
        return decoder(text) if decoder else msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _located(_wrong_json(error, text, kind), page, hint, "", file, start) from None


def read_toml(path: Path, page: str = "") -> dict[str, Any]:
    """The plain content of a TOML file.

    Raises:
        SilicastError: the file cannot be read, is larger than 4 MiB or is not TOML, or holds what
            :func:`~silicast.core.plain_data.check_tree` refuses.
    """
    import tomllib  # only user's own files are read as they are

    text = read_text(path, MOST_TOML_BYTES, "a TOML file", with_page("", page))
    try:
        tree = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise SilicastError(
            f"not valid TOML: {error}", file=str(path), hint=with_page("", page)
        ) from None
    with errors_located(file=str(path)):
        check_tree(tree)
    return tree


def read_table(path: Path, kind: type[T], page: str) -> T:
    """A TOML file as a ``kind``; raises as :func:`read_toml` and :func:`decode`."""
    return decode(read_toml(path, page), kind, file=str(path), page=page)


def with_page(hint: str, page: str) -> str:
    """A hint that ends with the page.

    >>> with_page("did you mean tp?", "docs/reference/scenario.md")
    'did you mean tp? docs/reference/scenario.md describes every field'
    """
    if not page:
        return hint
    text = f"{page} describes every field"
    if not hint:
        return text
    return f"{hint} {text}" if hint.endswith("?") else f"{hint}; {text}"


@cache
def fields_of(table: type[msgspec.Struct]) -> dict[str, Any]:
    """Field name, as it stands in a file, -> declared type."""
    hints = typing.get_type_hints(table)
    info = msgspec.structs.fields(table)
    return {field.encode_name: hints[field.name] for field in info}


def _wrong_json(error: Exception, text: bytes | str, kind: Any) -> SilicastError:
    if isinstance(error, msgspec.ValidationError):
        try:
            return _explained(error, msgspec.json.decode(text), kind, ())
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as later:
            error = later  # a wrong field stands before the place where the text is cut off
    if isinstance(error, RecursionError):
        return over_limit("JSON nested too deeply")
    position = _BYTE.search(str(error))
    content = text.encode("utf-8", "replace") if isinstance(text, str) else text
    word = _NO_NUMBER.match(content, int(position[1])) if position else None
    told = (
        f"{word[0].decode()} is no number of JSON ({position[0]})" if word and position else error
    )
    return NotJsonError(f"not valid JSON: {told}")


def _explained(
    error: msgspec.ValidationError, data: object, kind: Any, also: Iterable[str]
) -> SilicastError:
    from silicast.core.refusal import explained  # only an error needs the words

    return explained(str(error), data, kind, also)


def _located(
    refused: SilicastError, page: str, hint: str, field: str, file: str, start: str = ""
) -> SilicastError:
    error = refused.located(".".join(filter(None, (field, refused.field))), file)
    error.message = start + refused.message
    error.hint = with_page("; ".join(filter(None, (refused.hint, hint))), page)
    return error
