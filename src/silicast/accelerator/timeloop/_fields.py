"""Looking into files of others: what is missing or of the wrong kind is named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from silicast.core.errors import SilicastError


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
