"""Finds devices by name, by path to a device file, or from an inline table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import msgspec

from silicast.core.catalog import own_files
from silicast.core.compiled import shipped
from silicast.core.errors import SilicastError, errors_located, unmodelled
from silicast.core.files import read_text
from silicast.core.naming import NameIndex, normalise
from silicast.core.providers import provided_files, reader_of
from silicast.hardware.device import Device
from silicast.hardware.device_file import build, decode_device
from silicast.hardware.index import DEVICES, IndexedDevice, device_files, device_names

MAX_DEVICE_FILE_BYTES = 1 << 20


def find_device(name: str) -> Device:
    """A device by catalog name or alias; a path to a device file works too.

    Raises:
        SilicastError: unknown name (the nearest are offered), a device that is known but not
            modelled yet (kind "not_yet"), or an unreadable file.

    >>> find_device("h100 sxm").name
    'H100-SXM-80GB'
    """
    if name.endswith(".toml"):
        return load_device_file(Path(name))
    names = device_names()
    if name in names and normalise(name) not in _own_names():
        return _catalog_device(names.get(name), names.canonical(name))
    if (design := _provided(name)) is not None:
        return design
    index = device_index()  # files that the index does not hold: a user's own, or a new one
    if name in index:
        return index.get(name)
    if (sized := _with_memory(name)) is not None:
        return sized
    names.canonical(name)  # raises, with the nearest names
    raise AssertionError


@cache
def _with_memory(name: str) -> Device | None:
    """A device by a name of the catalog and the memory it was bought with; None = no such name.

    Raises:
        SilicastError: it is not sold with so much memory.

    >>> find_device("M4 Pro 24 GB").name
    'M4 Pro 24GB'
    """
    match, names = _MEMORY.fullmatch(name.strip()), device_names()
    if match is None or match[1] not in names or names.get(match[1]).missing:
        return None
    base = names.canonical(match[1])
    sizes = read_device_file(DEVICES / names.get(base).file)["memory"]["dram"].get("sizes_gb", {})
    if not sizes:
        return None
    if match[2] not in sizes:
        raise SilicastError(
            f"{base} is not sold with {match[2]} GB",
            field="device",
            hint=f"{', '.join(sizes)} GB are known; a table with base = {base!r} states another",
        )
    memory = {"dram": {"capacity_gb": sizes[match[2]]}}
    return device_from({"base": base, "name": f"{base} {match[2]}GB", "memory": memory})


_MEMORY = re.compile(r"(.+?)[\s,(-]*(\d{1,4})\s*(?:GB|GiB|G)\)?", re.IGNORECASE)
"""A name and an amount of memory behind it."""


def architecture_of(name: str) -> str:
    """The architecture of a device of the catalog, without reading its file where the index says
    it.

    Raises:
        SilicastError: as :func:`find_device`.

    >>> architecture_of("H100")
    'hopper'
    """
    names = device_names()
    architecture = names.get(name).architecture if name in names else ""
    return architecture or find_device(name).architecture


def device_of(value: str | Mapping[str, Any]) -> Device:
    """The device that a scenario's ``device`` means: a name, a path or an inline table.

    Raises:
        SilicastError: as :func:`find_device` and :func:`device_from`.
    """
    return find_device(value) if isinstance(value, str) else device_from(value)


def device_from(data: Mapping[str, Any], *, file: str = "") -> Device:
    """A device from the decoded content of a device file; with a field ``base``, that device of
    the catalog with the given fields changed. One that carries the name of a device of the catalog
    is that one if it says the same, else another (:mod:`.namesake`).

    Raises:
        SilicastError: a field is missing, unknown or of the wrong type, or a number cannot be
            true; names file and field.

    >>> fast = device_from({"base": "H100", "memory": {"dram": {"bandwidth_gb_per_s": 6000}}})
    >>> fast.name, fast.cores, fast.dram.bandwidth_bytes_per_s
    ('H100-SXM-80GB (changed)', 132, 6000000000000.0)
    """
    completed = _completed(data, file)
    if (provider := reader_of(completed)) is not None:
        device: Device = provider.read()(completed, file)
        return device
    from silicast.hardware.variant import unchanged, unless_changed

    names, base = device_names(), str(data.get("base", ""))
    described = _described(completed, file)
    if base in names:
        board = find_device(base)
        if unchanged(described, board):
            return board
        described = replace(described, base=names.canonical(base))
    if described.name not in names or names.get(described.name).missing:
        return described
    return unless_changed(described, _load_once(names.get(described.name).file))


def _described(data: Mapping[str, Any], file: str) -> Device:
    """The device that a table describes, whatever others of its name are; raises as
    :func:`device_from`.
    """
    device = decode_device(_completed(data, file), file=file)
    if Path(file).parent == DEVICES:  # tests hold those of the package against physics
        return build(device)
    from silicast.hardware.plausibility import require_plausible

    return require_plausible(device, file=file)


def _completed(data: Mapping[str, Any], file: str) -> Mapping[str, Any]:
    """:func:`with_base` of a file."""
    with errors_located(file=file):
        return with_base(data)


def with_base(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The content of a device file, complete: what ``base`` names stands below the rest.

    Raises:
        SilicastError: ``base`` is not a device or a design of the catalog.
    """
    if "base" not in data:
        return data
    base = data["base"]
    if not isinstance(base, str):
        raise SilicastError(f"expected a name, found {type(base).__name__}", field="base")
    from silicast.hardware.variant import changed, changed_design

    changes = {name: value for name, value in data.items() if name != "base"}
    names = device_names()
    if base not in names and (path := _provided_file(base)) is not None:
        return changed_design(read_device_file(path), changes)
    try:
        entry = names.get(base)
        if entry.missing:
            _catalog_device(entry, names.canonical(base))
    except SilicastError as error:
        raise SilicastError(error.message, kind=error.kind, field="base", hint=error.hint) from None
    return changed(read_device_file(DEVICES / entry.file), changes)


def load_device_file(path: Path) -> Device:
    """The device in a TOML file.

    Raises:
        SilicastError: the file cannot be read, is too large, is not TOML or not a device.
    """
    return _device_of_text(_text_of(path), str(path))


@lru_cache(maxsize=32)
def _device_of_text(text: str, file: str) -> Device:
    """The device of a file; of a text that was read before, the same. A design with compiled
    mappings takes longer to decode than to ask.
    """
    return device_from(_decoded(text, file), file=file)


def read_device_file(path: Path) -> dict[str, Any]:
    """The decoded content of a TOML file.

    Raises:
        SilicastError: the file cannot be read, is too large or is not TOML.
    """
    if path.parent == DEVICES and (content := shipped("devices").get(path.stem)) is not None:
        table: dict[str, Any] = msgspec.json.decode(content)
        return table
    return _decoded(_text_of(path), str(path))


def _text_of(path: Path) -> str:
    return read_text(path, MAX_DEVICE_FILE_BYTES, "a device file")


def _decoded(text: str, file: str) -> dict[str, Any]:
    import tomllib  # the package's files are compiled

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # bad TOML, too many digits
        raise SilicastError(f"not valid TOML: {error}", file=file) from None


@cache
def device_index() -> NameIndex[Device]:
    """All modelled devices by name and alias, each parsed: for listings, not for finding one.

    Raises:
        SilicastError: a file is not a device, or two claim one name; names the file.
    """
    table: dict[str, Device] = {}
    claimed: dict[str, tuple[str, Path]] = {}
    for path in device_files():
        device = _catalog_file(path)
        names = dict.fromkeys(normalise(name) for name in (device.name, *device.aliases))
        for key in names:
            if key in claimed:
                first_name, where = claimed[key]
                raise SilicastError(
                    f"{key!r} is a name of {first_name} too, in {where}",
                    field="name" if key == normalise(device.name) else "aliases",
                    file=str(path),
                    hint='give each name to one device; `base = "..."` describes a changed one',
                )
            claimed[key] = device.name, path
        table[device.name] = device
    return NameIndex("device", {name: (entry, entry.aliases) for name, entry in table.items()})


@cache
def _own_names() -> frozenset[str]:
    """Names and aliases in the user's own folder: they go through the index of all files, which
    says where one of them belongs to a device of the package. A file that cannot be read has none.
    """
    own_names: list[Any] = []
    for path in own_files("devices", ".toml"):
        try:
            table = read_device_file(path)
        except SilicastError:
            continue
        aliases = table.get("aliases")
        own_names += [table.get("name"), *(aliases if isinstance(aliases, list) else [])]
    return frozenset(normalise(name) for name in own_names if isinstance(name, str))


@cache
def _provided(name: str) -> Device | None:
    """A device of the catalog that an execution model reads itself (a design), or None."""
    path = _provided_file(name)
    return None if path is None else load_device_file(path)


def _provided_file(name: str) -> Path | None:
    for provided_name, (_, path) in provided_files().items():
        if normalise(provided_name) == normalise(name):
            return Path(path)
    return None


@cache
def _load_once(file: str) -> Device:
    return _catalog_file(DEVICES / file)


def _catalog_file(path: Path) -> Device:
    """The device in a file that the catalog itself holds; raises as :func:`load_device_file`."""
    return _described(read_device_file(path), str(path))


def _catalog_device(entry: IndexedDevice, name: str) -> Device:
    if entry.missing:
        raise unmodelled(
            f"{name} is known but not modelled yet: missing is {entry.missing}",
            "device",
            "`silicast devices` lists those that are; a device file can describe another",
        )
    return _load_once(entry.file)
