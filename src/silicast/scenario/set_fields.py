"""Fields of a scenario set by their dotted names, as ``--set parallel.tp=2`` does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from silicast.core.errors import SilicastError


def plain_tree(raw: msgspec.Struct) -> dict[str, Any]:
    """What a scenario states, as its file would."""
    return {name: value for name, value in msgspec.to_builtins(raw).items() if value is not None}


def with_fields(table: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """A table with dotted fields put in; neither is changed.

    >>> with_fields({"device": "h100", "parallel": {"tp": 2}},
    ...             {"device": "a100", "parallel.pp": 2})
    {'device': 'a100', 'parallel': {'tp': 2, 'pp': 2}}

    Raises:
        SilicastError: a field of one that is no table.
    """
    copied = _copied(table)
    for name, value in fields.items():
        *above, last = name.split(".")
        position = copied
        for part in above:
            inside = position.setdefault(part, {})
            if not isinstance(inside, dict):
                raise SilicastError(
                    f"{part!r} is a value, not a table: it has no fields",
                    field=f"--set {name}",
                    hint="give the whole table by its fields",
                )
            position = inside
        if not last or not all(above):
            raise SilicastError(f"is no field: {name!r}", field="--set")
        position[last] = value
    return copied


def _copied(table: Mapping[str, Any]) -> dict[str, Any]:
    return {k: _copied(v) if isinstance(v, dict) else v for k, v in table.items()}
