"""A device described as another one with some fields changed: ``base = "H100"``.

What was measured is known by the names of boards. A table whose numbers differ from those of the
board whose name it carries describes another one: it gets a name of its own, so that nothing that
was measured counts as measured on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from silicast.core.errors import SilicastError
from silicast.core.plain_data import leaves
from silicast.hardware.cluster import usual_system
from silicast.hardware.device import Device
from silicast.hardware.device_file import numbers_of, plain_path, tabulate

CHANGED = "stated by the user"


def changed(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a device file with ``changes`` laid over it.

    Tables are merged field by field; of ``compute.children`` the first entry is merged with the
    first. A number given in another unit replaces the old one. Memories on the chip keep their
    bytes a clock where the clock changes. Names are not inherited; every changed number loses its
    source, and is no longer unknown.

    Raises:
        SilicastError: ``changes`` is not a table of tables where the base is one.
    """
    merged = _merged(_clocked(base, changes), changes, "device")
    merged["name"] = changes.get("name", f"{base['name']} (changed)")
    merged["aliases"] = changes.get("aliases", [])
    sources = dict(base.get("sources", {}))
    changed_paths = dict.fromkeys((plain_path(path) for path, _ in numbers_of(changes)), CHANGED)
    sources.update(changed_paths)
    merged["unknown"] = changes.get(
        "unknown",
        [path for path in base.get("unknown", []) if plain_path(path) not in changed_paths],
    )
    for name in ("name", "aliases", "vendor", "architecture", "execution_model"):
        sources.pop(name, None)
    merged["sources"] = {**sources, **_table(changes.get("sources", {}), "sources")}
    return merged


def changed_design(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """:func:`changed` for a file of a designed accelerator, which names no source of each number.

    Raises:
        SilicastError: ``changes`` is not a table of tables where the base is one.
    """
    merged = _merged(base, changes, "device")
    if changes:
        merged["name"] = changes.get("name", f"{base['name']} (changed)")
    return merged


def _clocked(base: Mapping[str, Any], changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """The base with its memories on the chip as quick as they are at a changed boost clock."""
    built, clocks = base["clocks"]["boost_mhz"], changes.get("clocks")
    boost_mhz = clocks.get("boost_mhz") if isinstance(clocks, Mapping) else None
    if not isinstance(boost_mhz, int | float) or boost_mhz <= 0.0 or boost_mhz == built:
        return base
    rate, ratio = "bandwidth_gb_per_s", boost_mhz / built
    memory = {
        name: {**level, rate: level[rate] * ratio} if name != "dram" and rate in level else level
        for name, level in base["memory"].items()
    }
    return {**base, "memory": memory}


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any], path: str) -> dict[str, Any]:
    merged = dict(base)
    replaced = {plain_path(name) for name in changes}
    for name in base:
        if name not in changes and plain_path(name) in replaced and name != plain_path(name):
            del merged[name]
    for name, value in changes.items():
        old = base.get(name)
        if name == "sources" or old is None:
            merged[name] = value
        elif isinstance(old, Mapping):
            merged[name] = _merged(old, _table(value, f"{path}.{name}"), f"{path}.{name}")
        elif name == "children" and isinstance(value, list) and value and old:
            first = _merged(old[0], _table(value[0], f"{path}.{name}[0]"), f"{path}.{name}[0]")
            merged[name] = [first, *value[1:]]
        else:
            merged[name] = value
    return merged


def _table(value: Any, path: str) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    raise SilicastError(
        f"expected a table, found {type(value).__name__}", field=path.removeprefix("device.")
    )


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
    own_fields, board_fields = (_fields(device, board) for device in (stated, board))
    for path in dict.fromkeys((*own_fields, *board_fields)):
        a, b = own_fields.get(path), board_fields.get(path)
        if not _alike(a, b):
            yield f"{path} = {_shown(a)}, not {_shown(b)}"


def _fields(device: Device, board: Device) -> dict[str, Any]:
    """Values of a device file by their dotted paths, as if both came from the same sources."""
    table = msgspec.to_builtins(tabulate(replace(device, sources=board.sources)))
    return {
        path: sorted(value) if isinstance(value, list) else value
        for path, value in leaves(table)
        if path not in NO_NUMBERS and not (path.startswith("compute") and path.endswith("name"))
    }


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, int | float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=ROUNDING)
    return bool(one == other)


def _shown(value: Any) -> str:
    return "nothing" if value in (None, [], "") else str(value)[:60]
