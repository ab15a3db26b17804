"""Dotted paths into the tables of a file, as in ``level.buffer.port[0].words_per_cycle``.

In a list of tables a word picks the one whose ``name`` (or ``level``) it is, ``[i]`` the i-th.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from silicast.core.errors import SilicastError, unknown_name

_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_PATH = re.compile(r"[^.\[\]]+(\[\d+\]|\.[^.\[\]]+)*")
NAMES = ("name", "level")
"""Fields that tell tables of a list apart."""


def value_at(table: Any, path: str) -> Any:
    """What stands at a path.

    Raises:
        SilicastError: nothing does; names what is there instead.

    >>> value_at({"level": [{"name": "buffer", "mesh": [4, 8]}]}, "level.buffer.mesh[1]")
    8
    """
    position = table
    for step in _steps(path):
        position = _entered(position, step, path)
    return position


def put(table: Any, path: str, value: Any) -> None:
    """Sets what stands at a path, or adds it to the table that the path leads to.

    Raises:
        SilicastError: the path leads nowhere.
    """
    *way, last = _steps(path)
    position = table
    for step in way:
        position = _entered(position, step, path)
    named = isinstance(position, dict) and isinstance(last, str)
    numbered = isinstance(position, list) and isinstance(last, int) and last < len(position)
    if not (named or numbered):
        raise _nowhere(path, last, position)
    position[last] = value


def _steps(path: str) -> Iterator[str | int]:
    if not _PATH.fullmatch(path):
        raise SilicastError(
            f"expected a path like level.buffer.capacity_kib, found {path!r}", field="path"
        )
    for word, index in _STEP.findall(path):
        yield word or int(index)


def _entered(position: Any, step: str | int, path: str) -> Any:
    if isinstance(position, dict) and step in position:
        return position[step]
    if isinstance(position, list):
        if isinstance(step, int) and step < len(position):
            return position[step]
        for entry in position:
            if isinstance(entry, dict) and step in {entry.get(name) for name in NAMES}:
                return entry
    raise _nowhere(path, step, position)


def _nowhere(path: str, step: str | int, position: Any) -> SilicastError:
    known: list[str] = []
    if isinstance(position, dict):
        known = sorted(position)
    elif isinstance(position, list):
        known = [
            next((str(entry[name]) for name in NAMES if name in entry), f"[{number}]")
            if isinstance(entry, dict)
            else f"[{number}]"
            for number, entry in enumerate(position)
        ]
    return unknown_name(
        f"the base has no {step!r} there", path, f"there are {', '.join(known) or 'no fields'}"
    )
