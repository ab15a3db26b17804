"""A device described as another one with some fields changed: ``base = "H100"``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from silicast.core.errors import SilicastError
from silicast.hardware.device_file import plain_path

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
    stated = dict.fromkeys((plain_path(path) for path in _leaves(changes, "")), CHANGED)
    sources.update(stated)
    merged["unknown"] = changes.get(
        "unknown", [path for path in base.get("unknown", []) if plain_path(path) not in stated]
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
    stated = clocks.get("boost_mhz") if isinstance(clocks, Mapping) else None
    if not isinstance(stated, int | float) or stated <= 0.0 or stated == built:
        return base
    rate, ratio = "bandwidth_gb_per_s", stated / built
    memory = {
        name: {**level, rate: level[rate] * ratio} if name != "dram" and rate in level else level
        for name, level in base["memory"].items()
    }
    return {**base, "memory": memory}


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any], path: str) -> dict[str, Any]:
    result = dict(base)
    replaced = {plain_path(name) for name in changes}
    for name in base:
        if name not in changes and plain_path(name) in replaced and name != plain_path(name):
            del result[name]
    for name, value in changes.items():
        old = base.get(name)
        if name == "sources" or old is None:
            result[name] = value
        elif isinstance(old, Mapping):
            result[name] = _merged(old, _table(value, f"{path}.{name}"), f"{path}.{name}")
        elif name == "children" and isinstance(value, list) and value and old:
            first = _merged(old[0], _table(value[0], f"{path}.{name}[0]"), f"{path}.{name}[0]")
            result[name] = [first, *value[1:]]
        else:
            result[name] = value
    return result


def _table(value: Any, path: str) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    raise SilicastError(
        f"expected a table, found {type(value).__name__}", field=path.removeprefix("device.")
    )


def _leaves(value: Any, path: str) -> Iterator[str]:
    """Paths of the numbers in ``value``, units and indexes included."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            if name != "sources":
                yield from _leaves(item, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path
