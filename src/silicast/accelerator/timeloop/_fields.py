"""Looking into files of others: what is missing or of the wrong kind is named."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from silicast.core.errors import SilicastError, unsupported


def table(value: Any, field: str, file: str) -> Mapping[str, Any]:
    """``value`` as a table."""
    if not isinstance(value, Mapping):
        raise SilicastError(
            f"expected a table, found {type(value).__name__}", field=field, file=file
        )
    return value


def rows(value: Any, field: str, file: str) -> list[Any]:
    """``value`` as a list; nothing is an empty one."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise SilicastError(
            f"expected a list, found {type(value).__name__}", field=field, file=file
        )
    return value


def number(value: Any, field: str, file: str) -> float:
    """``value`` as a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SilicastError(f"expected a number, found {value!r}", field=field, file=file)
    return value


def word(value: Any, field: str, file: str) -> str:
    """``value`` as a word."""
    if not isinstance(value, str):
        raise SilicastError(f"expected a word, found {value!r}", field=field, file=file)
    return value


def above(value: Any, field: str, file: str) -> float:
    """``value`` as a number that is more than 0."""
    above = number(value, field, file)
    if not (above > 0 and math.isfinite(above)):
        raise SilicastError(f"expected more than 0, found {above:g}", field=field, file=file)
    return above


def whole(value: Any, field: str, file: str) -> int:
    """``value`` as a whole number of 1 or more."""
    result = number(value, field, file)
    if result < 1 or result != int(result):
        raise SilicastError(
            f"expected a whole number of 1 or more, found {result:g}", field=field, file=file
        )
    return int(result)


def spelled(value: Any, known: Collection[str], field: str, file: str) -> dict[str, Any]:
    """A table whose keys are ``known``, with ``-`` or ``_`` in them.

    Others are refused where they say something: 0, false and what is empty says nothing.
    """
    spelled: dict[str, Any] = {}
    for key, content in table(value, field, file).items():
        name = str(key).replace("-", "_")
        if name in spelled:
            raise SilicastError("is given twice", field=f"{field}.{key}", file=file)
        if name in known:
            spelled[name] = content
        elif content:
            raise unsupported(
                "is not read here",
                f"{field}.{key}",
                f"take it out; read are {', '.join(sorted(known))}",
                file=file,
            )
    return spelled


def names(value: Any, known: Collection[str], field: str, file: str) -> tuple[str, ...]:
    """A list of names that are ``known``."""
    names = tuple(str(each) for each in rows(value, field, file))
    for each in names:
        if each not in known:
            raise SilicastError(
                f"no {each!r}", field=field, file=file, hint=f"there are {', '.join(known)}"
            )
    return names
