"""Tables that carry the name of a board of the catalog: that board, or one of their own.

What was measured is known by the names of boards. A table whose numbers differ from those of the
board whose name it carries describes another one: it gets a name of its own, so that nothing that
was measured counts as measured on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec

from silicast.hardware.cluster import usual_system
from silicast.hardware.device import Device
from silicast.hardware.device_file import tabulate

NO_NUMBERS = frozenset(("name", "aliases", "sources"))
"""Fields of a device file that no prediction depends on."""
CHANGED_NAME = "{} (changed)"
ROUNDING = 1e-9
"""Relative; of the same number written in another unit."""


def unless_changed(stated: Device, board: Device) -> Device:
    """``board`` if a table of its name says the same, else the stated device under another name.

    Args:
        stated: the device of the table.
        board: of the catalog, which that name means.

    >>> from silicast.hardware.catalog import find_device
    >>> board = find_device("L4")
    >>> unless_changed(replace(board, sources={}), board) is board
    True
    >>> other = unless_changed(replace(board, power_cap_w=60.0), board)
    >>> other.name, other.differs
    ('L4 (changed)', ('power.cap_w = 60.0, not 72.0',))
    """
    differs = tuple(differences(stated, board))
    if not differs:
        return board
    usual = usual_system(board.name)
    return replace(
        stated,
        name=CHANGED_NAME.format(stated.name),
        usual_system=stated.usual_system or (usual[0] if usual else ""),
        differs=differs,
    )


def unchanged(stated: Device, board: Device) -> bool:
    """Whether a table with ``base`` changes nothing of that board, not even its name.

    >>> from silicast.hardware.catalog import find_device
    >>> board = find_device("L4")
    >>> unchanged(replace(board, name="L4 (changed)"), board), unchanged(
    ...     replace(board, name="my L4"), board)
    (True, False)
    """
    if stated.name not in (board.name, CHANGED_NAME.format(board.name)):
        return False
    return next(differences(stated, board), None) is None


def differences(stated: Device, board: Device) -> Iterator[str]:
    """Fields of a device file in which two devices differ, with both values."""
    one, other = (_fields(each, board) for each in (stated, board))
    for path in dict.fromkeys((*one, *other)):
        a, b = one.get(path), other.get(path)
        if not _alike(a, b):
            yield f"{path} = {_shown(a)}, not {_shown(b)}"


def _fields(device: Device, board: Device) -> dict[str, Any]:
    """Values of a device file by their dotted paths, as if both came from the same sources."""
    table = msgspec.to_builtins(tabulate(replace(device, sources=board.sources)))
    return {
        path: value
        for path, value in _leaves(table, "")
        if path not in NO_NUMBERS and not (path.startswith("compute") and path.endswith("name"))
    }


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _leaves(item, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}[{index}]")
    else:
        yield path, sorted(value) if isinstance(value, list) else value


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, int | float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=ROUNDING)
    return bool(one == other)


def _shown(value: Any) -> str:
    return "nothing" if value in (None, [], "") else str(value)[:60]
