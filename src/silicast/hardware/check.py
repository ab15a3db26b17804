"""The battery that any device must pass, whether it is in the catalog or a user's own.

>>> from silicast.hardware.catalog import find_device
>>> check_device(find_device("H100"))
[]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from silicast.core.errors import SilicastError
from silicast.core.naming import normalise
from silicast.core.providers import Provider, reader_of
from silicast.hardware.catalog import read_device_file, with_base
from silicast.hardware.cluster import systems
from silicast.hardware.device import Device
from silicast.hardware.device_file import (
    DeviceFile,
    DeviceLinkTable,
    decode_device,
    numbers_of,
    plain_path,
    source_of,
    tabulate,
)
from silicast.hardware.host import hosts
from silicast.hardware.index import device_names
from silicast.hardware.plausibility import DeviceFault, implausible

PLACEHOLDERS = ("todo", "tbd", "to be completed", "unknown", "?")


def check_device(
    device: Device | Path | str | Mapping[str, Any], *, strict: bool = False
) -> list[DeviceFault]:
    """Everything that is wrong with a device; an empty list is a pass.

    Checked are the structure, the range of every number, how numbers relate to each other, a
    source for every number, and that no name belongs to another device of the catalog.

    Args:
        device: a device, the path of its file, or the decoded content of one; or of a design.
        strict: also report what is not known (``severity`` "warning").

    Raises:
        SilicastError: the file cannot be read.
    """
    try:
        if not isinstance(device, Device):
            content = device if isinstance(device, Mapping) else read_device_file(Path(device))
            if (provider := reader_of(content)) is not None:
                return _of_design(provider, content)
        table = _table(device)
    except SilicastError as error:
        if error.kind == "io":
            raise
        return [DeviceFault(error.field or "file", "", error.message, remedy=error.hint)]
    problems = [*implausible(table), *_sources(table), *_stand_ins(table), *_names(table)]
    problems.extend(_surroundings(table))
    if strict:
        problems.extend(_unknown(table))
    return problems


def _of_design(provider: Provider, content: Mapping[str, Any]) -> list[DeviceFault]:
    """What the one check of an architecture file says; a design needs no source for a number."""
    errors: list[SilicastError] = provider.checker()(content)
    return [
        DeviceFault(
            error.field or "file",
            "",
            f"{error.message} ({error.hint})" if error.hint else error.message,
        )
        for error in errors
    ]


def _table(device: Device | Path | str | Mapping[str, Any]) -> DeviceFile:
    if isinstance(device, Device):
        return tabulate(device)
    if isinstance(device, Mapping):
        return decode_device(with_base(device))
    return decode_device(with_base(read_device_file(Path(device))), file=str(device))


def _sources(table: DeviceFile) -> Iterator[DeviceFault]:
    fields = {
        f"links.{n}.{field}" for n in table.links for field in DeviceLinkTable.__struct_fields__
    }
    for path, value in numbers_of(table):
        plain = plain_path(path)
        fields.update(_prefixes(plain))
        if not source_of(table.sources, path):
            yield DeviceFault(path, f'a source: "{plain}" in [sources]', f"none for {value:g}")
    for key, source in table.sources.items():
        if plain_path(key) not in fields:
            yield DeviceFault(
                f"sources.{key}", "the path of a number in this file", "no such number"
            )
        if not source.strip() or source.strip().casefold() in PLACEHOLDERS:
            yield DeviceFault(f"sources.{key}", "a document, page or table", repr(source))


def _stand_ins(table: DeviceFile) -> Iterator[DeviceFault]:
    """Whether every entry of ``unknown`` is the path of a number in the file."""
    stated_paths = {
        prefix for path, _ in numbers_of(table) for prefix in _prefixes(plain_path(path))
    }
    for index, path in enumerate(table.unknown):
        if plain_path(path) not in stated_paths:
            yield DeviceFault(f"unknown[{index}]", "the path of a number in this file", repr(path))


def _surroundings(table: DeviceFile) -> Iterator[DeviceFault]:
    """Whether the system and the host that the file names are in the catalog."""
    for field, name, index in (
        ("usual_system", table.usual_system, systems()),
        ("default_host", table.default_host, hosts()),
    ):
        if name and name not in index:
            yield DeviceFault(field, f"one of {', '.join(index.names)}", repr(name))


def _prefixes(path: str) -> Iterator[str]:
    while path:
        yield path
        path = path.rpartition(".")[0]


def _names(table: DeviceFile) -> Iterator[DeviceFault]:
    catalog = device_names()
    name_by_key: dict[str, str] = {normalise(table.name): table.name}
    for index, alias in enumerate(table.aliases):
        field, key = f"aliases[{index}]", normalise(alias)
        if not key:
            yield DeviceFault(field, "a name", repr(alias))
        elif key in name_by_key:
            yield DeviceFault(
                field, "a name that differs in letters or digits", f"{name_by_key[key]!r} again"
            )
        name_by_key[key] = alias
    for key, alias in name_by_key.items():
        if key and key in catalog and catalog.canonical(key) != table.name:
            device_name = catalog.canonical(key)
            yield DeviceFault(
                "aliases", "names of no other device", f"{alias!r}, a name of {device_name}"
            )


def _unknown(table: DeviceFile) -> Iterator[DeviceFault]:
    l2 = table.memory.get("l2")
    gaps = {
        "clocks.base_mhz": table.clocks.base_mhz is None,
        "clocks.max_mhz": table.clocks.max_mhz is None,
        "power.cap_w": table.power.cap_w is None,
        "links": not table.links,
        "memory.l2.bandwidth_gb_per_s": l2 is not None
        and l2.bandwidth_gb_per_s is None
        and l2.bandwidth_bytes_per_clock is None,
    }
    for path in table.unknown:
        yield DeviceFault(path, "a published value", "a stand-in", severity="warning")
    for field, missing in gaps.items():
        if missing:
            yield DeviceFault(field, "a value", "nothing", severity="warning")
