"""Device files: their tables, the :class:`Device` made of them, and where each number is from.

docs/reference/devices.md describes every field. Units stand in the key names here and are
converted to SI once, in :func:`build`.

Where a number is from stands in the ``sources`` table. A key of the table is a dotted path
(``"memory.l2.bandwidth"``) and covers everything below it; the longest key that fits wins. Indexes
and units do not matter, so that ``"compute.children.count"`` covers ``compute.children[0].count``
and ``"clocks.max"`` covers ``clocks.max_mhz``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from silicast.core.decode import Strict, decode
from silicast.hardware.device import (
    NO_CAP,
    Clocks,
    ComputeLevel,
    Cube,
    Device,
    ExecutionModel,
    Link,
    MatrixArray,
    MemoryLevel,
    Pipe,
    Scope,
)

_UNIT = re.compile(r"_(kib|mib|gb_per_s|gb|bytes_per_clock|ns|mhz|w)$")
_INDEX = re.compile(r"\[\d+\]")


def plain_path(path: str) -> str:
    """A path without indexes and without the unit of its last part.

    >>> plain_path("memory.l2.capacity_mib"), plain_path("compute.children[0].count")
    ('memory.l2.capacity', 'compute.children.count')
    """
    return _UNIT.sub("", _INDEX.sub("", path))


def source_of(sources: Mapping[str, str], path: str) -> str:
    """The source of the number at ``path``, or "".

    >>> source_of({"memory": "datasheet", "memory.l2": "bench"}, "memory.l2.latency_ns")
    'bench'
    >>> source_of({"memory": "datasheet"}, "clocks.max_mhz")
    ''
    """
    plain = {plain_path(key): source for key, source in sources.items()}
    wanted = plain_path(path)
    while wanted:
        if wanted in plain:
            return plain[wanted]
        wanted = wanted.rpartition(".")[0]
    return ""


def numbers_of(value: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a table with its path, absent ones left out."""
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, int | float):
        yield path, value
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from numbers_of(getattr(value, name), f"{path}.{name}" if path else name)
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from numbers_of(item, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from numbers_of(item, f"{path}[{index}]")


_STEP = re.compile(r"\[(\d+)\]|\.?([^.\[\]]+)")


class ArrayTable(Strict, frozen=True):
    """``[compute...array]``: the arrays of multipliers in one core."""

    rows: int
    columns: int
    count: int = 1


class ComputeTable(Strict, frozen=True):
    """``[compute]``: a level; ``pipes.<name>.<dtype>`` = operations per clock and core."""

    name: str
    count: int
    pipes: dict[str, dict[str, float]] = {}
    children: list[ComputeTable] = []
    array: ArrayTable | None = None


class MemoryTable(Strict, frozen=True):
    """``[memory.<level>]``: give the capacity in one unit, the bandwidth of one instance in one.

    ``peak_bytes_per_clock`` is what the wires carry, for bounds; left out = the bandwidth.
    ``bus_bits`` and ``data_rate_gbit_per_s`` (of one pin) check the bandwidth, no more. Memory that
    GPU and CPU share counts as far as the GPU may use it. ``sizes_gb``: what devices of this name
    are sold with ("64", in 2^30 bytes) -> the capacity of such a one; "M4 Max 64GB" names it.
    """

    scope: Scope
    capacity_kib: float | None = None
    capacity_mib: float | None = None
    capacity_gb: float | None = None
    bandwidth_gb_per_s: float | None = None
    bandwidth_bytes_per_clock: float | None = None
    peak_bytes_per_clock: float | None = None
    latency_ns: float | None = None
    bus_bits: float | None = None
    data_rate_gbit_per_s: float | None = None
    technology: str = ""
    inline_ecc: bool = False
    sizes_gb: dict[str, float] = {}


class ClocksTable(Strict, frozen=True):
    """``[clocks]`` in MHz; leave out what is not published."""

    boost_mhz: float
    base_mhz: float | None = None
    max_mhz: float | None = None


class PowerTable(Strict, frozen=True):
    """``[power]`` in watts; ``least_w`` where makers of systems choose the limit: the smallest."""

    cap_w: float | None = None
    idle_w: float | None = None
    least_w: float | None = None


class CubeTable(Strict, frozen=True):
    """``cube`` of a link: links of a device, and those that two, three and four of a quad use."""

    links: int
    pair: int
    three: int
    four: int


class DeviceLinkTable(Strict, frozen=True):
    """``[links.<name>]``: per device and direction."""

    bandwidth_gb_per_s: float
    switched: bool = False
    multicast: bool = False
    domain: int | None = None
    mesh: bool = False
    mesh_boards: list[int] = []
    cube: CubeTable | None = None
    peer_access: bool = True
    paths: Literal["", "own", "shared"] = ""


class DeviceFile(Strict, frozen=True):
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
    links: dict[str, DeviceLinkTable] = {}
    default_gpus_per_node: int = 8
    default_host: str = ""
    usual_system: str = ""
    sources: dict[str, str] = {}
    unknown: list[str] = []


def decode_device(data: Mapping[str, Any], *, file: str = "") -> DeviceFile:
    """The decoded content of a device file, as a table whose types are right.

    Raises:
        SilicastError: a field is missing, unknown or of the wrong type; names file and field.
    """
    return decode(data, DeviceFile, file=file, page="docs/reference/devices.md")


def build(table: DeviceFile) -> Device:
    """The device that a table describes, in SI units."""
    boost_hz = table.clocks.boost_mhz * 1e6
    max_hz = (table.clocks.max_mhz or table.clocks.boost_mhz) * 1e6
    return Device(
        name=table.name,
        vendor=table.vendor,
        architecture=table.architecture,
        execution_model=table.execution_model,
        compute=_level(table.compute),
        memory={
            name: _memory(name, level, boost_hz, max_hz) for name, level in table.memory.items()
        },
        clocks=Clocks((table.clocks.base_mhz or 0.0) * 1e6, boost_hz, max_hz),
        compute_capability=table.compute_capability,
        power_cap_w=table.power.cap_w,
        idle_power_w=table.power.idle_w,
        least_power_cap_w=table.power.least_w,
        links={name: _link(name, link) for name, link in table.links.items()},
        default_gpus_per_node=table.default_gpus_per_node,
        default_host=table.default_host,
        usual_system=table.usual_system,
        aliases=tuple(table.aliases),
        sources=dict(table.sources),
        unknowns=(*table.unknown, *(() if table.power.cap_w else (NO_CAP,))),
    )


def tabulate(device: Device) -> DeviceFile:
    """The table of a device that was made in code; :func:`build` gives the device back."""
    return DeviceFile(
        name=device.name,
        vendor=device.vendor,
        architecture=device.architecture,
        execution_model=device.execution_model,
        compute=_compute_table(device.compute),
        memory={
            name: MemoryTable(
                scope=level.scope,
                capacity_gb=level.capacity_bytes / 1e9,
                bandwidth_gb_per_s=level.bandwidth_bytes_per_s / 1e9 or None,
                peak_bytes_per_clock=level.peak_bytes_per_s / device.clocks.max_hz
                if f"memory.{name}.peak_bytes_per_clock" in device.sources
                or level.peak_bytes_per_s > level.bandwidth_bytes_per_s
                else None,
                latency_ns=level.latency_s * 1e9 or None,
                technology=level.technology,
                inline_ecc=level.inline_ecc,
            )
            for name, level in device.memory.items()
        },
        clocks=ClocksTable(
            boost_mhz=device.clocks.boost_hz / 1e6,
            base_mhz=device.clocks.base_hz / 1e6 or None,
            max_mhz=device.clocks.max_hz / 1e6
            if "clocks.max_mhz" in device.sources or device.clocks.max_hz > device.clocks.boost_hz
            else None,
        ),
        compute_capability=device.compute_capability,
        aliases=list(device.aliases),
        power=PowerTable(
            cap_w=device.power_cap_w, idle_w=device.idle_power_w, least_w=device.least_power_cap_w
        ),
        links={name: _link_table(link) for name, link in device.links.items()},
        default_gpus_per_node=device.default_gpus_per_node,
        default_host=device.default_host,
        usual_system=device.usual_system,
        sources=dict(device.sources),
        unknown=[path for path in device.unknowns if path != NO_CAP],
    )


def _link(name: str, table: DeviceLinkTable) -> Link:
    cube = table.cube
    return Link(
        name,
        table.bandwidth_gb_per_s * 1e9,
        table.switched,
        table.multicast,
        table.domain or 0,
        table.mesh,
        tuple(table.mesh_boards),
        Cube(cube.links, cube.pair, cube.three, cube.four) if cube else None,
        table.peer_access,
        table.paths,
    )


def _link_table(link: Link) -> DeviceLinkTable:
    cube = link.cube
    return DeviceLinkTable(
        link.bandwidth_bytes_per_s / 1e9,
        link.switched,
        link.multicast,
        link.domain or None,
        link.mesh,
        list(link.mesh_boards),
        CubeTable(cube.links, cube.pair, cube.three, cube.four) if cube else None,
        link.peer_access,
        link.paths,
    )


def _level(table: ComputeTable) -> ComputeLevel:
    return ComputeLevel(
        name=table.name,
        count=table.count,
        pipes={name: Pipe(name, dict(rate)) for name, rate in table.pipes.items()},
        children=tuple(_level(child) for child in table.children),
        array=MatrixArray(table.array.rows, table.array.columns, table.array.count)
        if table.array
        else None,
    )


def _compute_table(level: ComputeLevel) -> ComputeTable:
    return ComputeTable(
        name=level.name,
        count=level.count,
        pipes={name: dict(pipe.rate) for name, pipe in level.pipes.items()},
        children=[_compute_table(child) for child in level.children],
        array=ArrayTable(level.array.rows, level.array.columns, level.array.count)
        if level.array
        else None,
    )


def _memory(name: str, level: MemoryTable, boost_hz: float, max_hz: float) -> MemoryLevel:
    per_clock = (level.bandwidth_bytes_per_clock or 0.0) * boost_hz
    return MemoryLevel(
        name=name,
        scope=level.scope,
        capacity_bytes=_capacity(level),
        bandwidth_bytes_per_s=(level.bandwidth_gb_per_s or 0.0) * 1e9 or per_clock,
        latency_s=(level.latency_ns or 0.0) * 1e-9,
        technology=level.technology,
        inline_ecc=level.inline_ecc,
        peak_bytes_per_s=(level.peak_bytes_per_clock or 0.0) * max_hz,
    )


def _capacity(level: MemoryTable) -> float:
    if level.capacity_kib is not None:
        return level.capacity_kib * 1024.0
    if level.capacity_mib is not None:
        return level.capacity_mib * 1048576.0
    return (level.capacity_gb or 0.0) * 1e9
