"""The names of all devices, in one small file, so that finding one does not parse all others.

``python -m silicast.hardware.index`` writes ``catalog/devices/index.json`` anew; a test says when
that is due. ``catalog/devices/not_yet.toml`` names devices that are known but not modelled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import final

import msgspec

from silicast.core.catalog import CATALOG, catalog_files
from silicast.core.decode import MOST_TOML_BYTES, Strict
from silicast.core.errors import SilicastError
from silicast.core.files import read_text
from silicast.core.naming import NameIndex, normalise

DEVICES = CATALOG / "devices"
INDEX_FILE = DEVICES / "index.json"
NOT_YET_FILE = DEVICES / "not_yet.toml"


@final
class IndexedDevice(msgspec.Struct, frozen=True):
    """What the index knows of a device.

    Attributes:
        aliases: its other names.
        file: its file in the catalog; "" if there is none yet.
        missing: what is missing to predict it; "" if nothing is.
        architecture: as its file states it; "" = nothing is known without reading that.
    """

    aliases: list[str]
    file: str = ""
    missing: str = ""
    architecture: str = ""


class _NotYetGroup(Strict, frozen=True):
    vendor: str
    missing: str
    devices: dict[str, list[str]]


class _NotYetFile(Strict, frozen=True):
    group: list[_NotYetGroup]


class _Named(msgspec.Struct, frozen=True):
    """The part of a device file that the index needs."""

    name: str
    vendor: str
    aliases: list[str] = []
    architecture: str = ""


def device_files() -> Iterator[Path]:
    """All device files of the catalog and of the user's own folder."""
    return (path for path in catalog_files("devices", ".toml") if path.name != NOT_YET_FILE.name)


@cache
def device_names() -> NameIndex[IndexedDevice]:
    """Every device of the package by name and alias, those not modelled yet included."""
    entries = msgspec.json.decode(INDEX_FILE.read_bytes(), type=dict[str, IndexedDevice])
    return name_index(entries)


def name_index(entries: Mapping[str, IndexedDevice]) -> NameIndex[IndexedDevice]:
    """An index over ``entries``.

    Raises:
        SilicastError: two entries claim one name.
    """
    return NameIndex("device", {name: (entry, entry.aliases) for name, entry in entries.items()})


def with_vendor(vendor: str, names: Iterable[str]) -> list[str]:
    """The names, and each again with the vendor before it; without what only looks different.

    >>> with_vendor("NVIDIA", ["L4", "nvidia l4", "Tesla T4"])
    ['L4', 'NVIDIA L4', 'Tesla T4', 'NVIDIA Tesla T4']
    """
    table: dict[str, str] = {}
    for name in names:
        table.setdefault(normalise(name), name)
        if not normalise(name).startswith(normalise(vendor)):
            full = f"{vendor} {name}"
            table.setdefault(normalise(full), full)
    return list(table.values())


def make_index() -> dict[str, IndexedDevice]:
    """The index, from the device files of the package; user's own files are not in it."""
    import tomllib

    entries: dict[str, IndexedDevice] = {}
    for path in sorted(DEVICES.glob("*.toml")):
        if path == NOT_YET_FILE:
            continue
        text = read_text(path, MOST_TOML_BYTES, "a device file")
        table = msgspec.convert(tomllib.loads(text), _Named)
        if table.name in entries:
            raise SilicastError(f"two files for {table.name}", field="name", file=str(path))
        aliases = with_vendor(table.vendor, [table.name, *table.aliases])[1:]
        entries[table.name] = IndexedDevice(aliases, path.name, "", table.architecture)
    groups = msgspec.convert(tomllib.loads(NOT_YET_FILE.read_text(encoding="utf-8")), _NotYetFile)
    for group in groups.group:
        for name, aliases in group.devices.items():
            if name in entries:
                raise SilicastError(f"{name} has a device file", field=name, file=str(NOT_YET_FILE))
            names = with_vendor(group.vendor, [name, *aliases])[1:]
            entries[name] = IndexedDevice(names, missing=group.missing)
    name_index(entries)
    return entries


def index_text(entries: Mapping[str, IndexedDevice]) -> str:
    """The content of the index file: one line a device."""
    encode = msgspec.json.Encoder().encode
    lines = [
        f"  {encode(name).decode()}: {encode(entry).decode()}" for name, entry in entries.items()
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    from silicast.core.files import write_atomically

    write_atomically(INDEX_FILE, index_text(make_index()).encode("utf-8"))
