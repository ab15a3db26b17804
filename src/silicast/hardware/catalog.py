"""Reads device files (TOML) into :class:`~silicast.hardware.device.Device` and finds them by name."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from silicast.core.catalog import catalog_files
from silicast.core.errors import SilicastError
from silicast.core.naming import NameIndex
from silicast.hardware.device import (
    Clocks,
    ComputeLevel,
    Device,
    ExecutionModel,
    Link,
    MemoryLevel,
    Pipe,
    Scope,
)

MAX_DEVICE_FILE_BYTES = 1 << 20


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Unknown keys are errors."""


class ComputeTable(_Strict, frozen=True):
    """``[compute]``: a level; ``pipes.<name>.<dtype>`` = operations per clock and core."""

    name: str
    count: int
    pipes: dict[str, dict[str, float]] = {}
    children: list[ComputeTable] = []


class MemoryTable(_Strict, frozen=True):
    """``[memory.<level>]``: give the capacity in one unit; bandwidth of one instance."""

    scope: Scope
    capacity_kib: float | None = None
    capacity_mib: float | None = None
    capacity_gb: float | None = None
    bandwidth_gb_per_s: float = 0.0
    bandwidth_bytes_per_clock: float = 0.0
    peak_bytes_per_clock: float = 0.0
    latency_ns: float = 0.0
    technology: str = ""


class ClocksTable(_Strict, frozen=True):
    """``[clocks]`` in MHz; leave out what is not published."""

    boost_mhz: float
    base_mhz: float = 0.0
    max_mhz: float | None = None


class PowerTable(_Strict, frozen=True):
    """``[power]`` in watts."""

    cap_w: float | None = None
    idle_w: float | None = None


class LinkTable(_Strict, frozen=True):
    """``[links.<name>]``: per device and direction."""

    bandwidth_gb_per_s: float
    switched: bool = False
    multicast: bool = False
    domain: int = 0


class DeviceFile(_Strict, frozen=True):
    """A whole device file; the same structure may stand inline in a scenario."""

    name: str
    vendor: str
    architecture: str
    execution_model: ExecutionModel
    compute: ComputeTable
    memory: dict[str, MemoryTable]
    clocks: ClocksTable
    compute_capability: str = ""
    aliases: list[str] = []
    power: PowerTable = PowerTable()
    links: dict[str, LinkTable] = {}
    default_gpus_per_node: int = 8
    default_host: str = ""
    sources: dict[str, str] = {}


def device_from(data: dict[str, Any], *, file: str = "") -> Device:
    """A device from the decoded content of a device file.

    Raises:
        SilicastError: a field is missing, unknown or of the wrong type; names file and field.
    """
    try:
        table = msgspec.convert(data, DeviceFile)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at ")
        raise SilicastError(
            message, field=path.strip("`").removeprefix("$.") or "device", file=file
        ) from None
    return _build(table)


def load_device_file(path: Path) -> Device:
    """The device in a TOML file.

    Raises:
        SilicastError: the file cannot be read, is too large, is not TOML or not a device.
    """
    try:
        if path.stat().st_size > MAX_DEVICE_FILE_BYTES:
            raise SilicastError(
                "larger than 1 MiB: not a device file", kind="limit", file=str(path)
            )
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SilicastError(f"cannot read: {error.strerror}", kind="io", file=str(path)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SilicastError(f"not valid TOML: {error}", file=str(path)) from None
    return device_from(data, file=str(path))


@cache
def device_index() -> NameIndex[Device]:
    """All devices of the catalog by name and alias."""
    devices = [load_device_file(path) for path in catalog_files("devices", ".toml")]
    return NameIndex("device", {device.name: (device, device.aliases) for device in devices})


def find_device(name: str) -> Device:
    """A device by catalog name or alias; a path to a device file works too.

    Raises:
        SilicastError: unknown name (the nearest are offered) or unreadable file.
    """
    if name.endswith(".toml"):
        return load_device_file(Path(name))
    return device_index().get(name)


def _build(table: DeviceFile) -> Device:
    boost_hz = table.clocks.boost_mhz * 1e6
    max_hz = (table.clocks.max_mhz or table.clocks.boost_mhz) * 1e6
    return Device(
        name=table.name,
        vendor=table.vendor,
        architecture=table.architecture,
        execution_model=table.execution_model,
        compute=_level(table.compute),
        memory={
            name: MemoryLevel(
                name=name,
                scope=level.scope,
                capacity_bytes=_capacity(level),
                bandwidth_bytes_per_s=level.bandwidth_gb_per_s * 1e9
                or level.bandwidth_bytes_per_clock * boost_hz,
                latency_s=level.latency_ns * 1e-9,
                technology=level.technology,
                peak_bytes_per_s=level.peak_bytes_per_clock * max_hz,
            )
            for name, level in table.memory.items()
        },
        clocks=Clocks(table.clocks.base_mhz * 1e6, boost_hz, max_hz),
        compute_capability=table.compute_capability,
        power_cap_w=table.power.cap_w,
        idle_power_w=table.power.idle_w,
        links={
            name: Link(
                name, link.bandwidth_gb_per_s * 1e9, link.switched, link.multicast, link.domain
            )
            for name, link in table.links.items()
        },
        default_gpus_per_node=table.default_gpus_per_node,
        default_host=table.default_host,
        aliases=tuple(table.aliases),
        sources=dict(table.sources),
    )


def _level(table: ComputeTable) -> ComputeLevel:
    return ComputeLevel(
        name=table.name,
        count=table.count,
        pipes={name: Pipe(name, dict(rate)) for name, rate in table.pipes.items()},
        children=tuple(_level(child) for child in table.children),
    )


def _capacity(level: MemoryTable) -> float:
    if level.capacity_kib is not None:
        return level.capacity_kib * 1024.0
    if level.capacity_mib is not None:
        return level.capacity_mib * 1048576.0
    return (level.capacity_gb or 0.0) * 1e9
