"""Whether the numbers of a device file can be true: ranges, and how they relate to each other.

The limits are wide: they catch a wrong unit, a missing factor or a typing error, not a bold
design.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, final

from silicast.core.dtypes import BITS
from silicast.core.errors import SilicastError
from silicast.hardware.contradictions import contradictions
from silicast.hardware.device import Device
from silicast.hardware.device_file import ComputeTable, CubeTable, DeviceFile, MemoryTable, build

Severity = Literal["error", "warning"]

SIMT_PIPES = ("tensor", "fma", "xu", "alu")
MAX_DEPTH = 8
MAX_CORES = 1000  # of one SIMT device; other execution models count smaller units
MAX_UNITS = 1_000_000
MAX_ARRAY = 65536
MAX_RATE = 1e7
CLOCK_MHZ = (100.0, 6000.0)
LINK_GB_PER_S = (0.1, 20_000.0)
DRAM_GB_PER_S = (0.1, 50_000.0)
MATRIX_TFLOPS = (1e-4, 50_000.0)
POWER_W = (0.5, 20_000.0)
LATENCY_NS = (0.1, 100_000.0)
CAPACITY_GB = {"dram": (1e-4, 100_000.0), "l2": (1e-6, 10.0), "smem": (1e-6, 0.1)}
ANY_CAPACITY_GB = (1e-9, 100_000.0)
CAPABILITIES: dict[str, tuple[str, ...]] = {
    "maxwell": ("5.0", "5.2", "5.3"), "pascal": ("6.0", "6.1", "6.2"), "volta": ("7.0", "7.2"),
    "turing": ("7.5",), "ampere": ("8.0",), "ampere-ga10x": ("8.6",), "ampere-ga10b": ("8.7",),
    "ada": ("8.9",), "hopper": ("9.0",), "blackwell": ("10.0", "10.1", "10.3", "11.0"),
    "blackwell-rtx": ("12.0", "12.1"),
}  # fmt: skip
"""NVIDIA architecture -> compute capabilities, from the CUDA programming guide."""


@final
@dataclass(frozen=True)
class DeviceFault:
    """One thing that is wrong with a device file.

    Attributes:
        field: dotted path of the field.
        expected, found: what should stand there and what does; expected "" = ``found`` says both.
        remedy: what to do, where it is more than to correct the field.
        severity: an "error" must be put right, a "warning" is something that is not known.
    """

    field: str
    expected: str
    found: str
    severity: Severity = "error"
    remedy: str = ""

    def __str__(self) -> str:
        expected = f"expected {self.expected}, found " if self.expected else ""
        remedy = f" ({self.remedy})" if self.remedy else ""
        return f"{self.field}: {expected}{self.found}{remedy}"


def require_plausible(table: DeviceFile, *, file: str = "") -> Device:
    """The device of a table whose numbers can be true.

    Raises:
        SilicastError: the first number that cannot; names file, field, expectation and finding.
    """
    for problem in implausible(table):
        raise SilicastError(
            f"expected {problem.expected}, found {problem.found}",
            field=problem.field,
            hint=problem.remedy
            or f"correct {problem.field}, or what it is compared with; docs/reference/devices.md "
            "lists the limits",
            file=file,
        )
    return build(table)


def implausible(table: DeviceFile) -> Iterator[DeviceFault]:
    """Everything that cannot be true; relations are looked at only if every range holds."""
    fine = True
    for problem in _ranges(table):
        fine = False
        yield problem
    if fine:
        yield from _relations(table, build(table))


def _outside(field: str, value: float | None, limits: tuple[float, float]) -> Iterator[DeviceFault]:
    if value is None:
        return
    low, high = limits
    if not low <= value <= high:  # NaN too is not between them
        yield DeviceFault(field, f"{low:g} to {high:g}", _shown(value) + _other_unit(value, limits))


_UNITS = (1e3, 1e6, 1e9, 1e12)


def _other_unit(value: float, limits: tuple[float, float]) -> str:
    """What to say of a number that would be right in a unit of another size; "" = nothing.

    >>> _other_unit(3.35e12, (1.0, 50000.0))
    ', which would be 3350 in a unit 1e+09 times as large'
    """
    if abs(value) > 1e300 or not math.isfinite(value):
        return ""
    low, high = limits
    for size in _UNITS:
        if low <= value / size <= high and value > high:
            return f", which would be {value / size:g} in a unit {size:g} times as large"
        if low <= value * size <= high and 0.0 < value < low:
            return f", which would be {value * size:g} in a unit {size:g} times as small"
    return ""


def _shown(value: float) -> str:
    """A number in a message; an integer of a thousand digits is no float."""
    return "a huge number" if abs(value) > 1e300 else f"{value:g}"


def _ranges(table: DeviceFile) -> Iterator[DeviceFault]:
    if not table.name.strip():
        yield DeviceFault("name", "a name", "nothing")
    yield from _compute(table.compute, "compute", table.execution_model == "simt", 1)
    yield from _memories(table)
    for name in ("base_mhz", "boost_mhz", "max_mhz"):
        yield from _outside(f"clocks.{name}", getattr(table.clocks, name), CLOCK_MHZ)
    yield from _outside("power.cap_w", table.power.cap_w, POWER_W)
    yield from _outside("power.idle_w", table.power.idle_w, (0.0, POWER_W[1]))
    yield from _outside("power.least_w", table.power.least_w, POWER_W)
    for name, link in table.links.items():
        yield from _outside(
            f"links.{name}.bandwidth_gb_per_s", link.bandwidth_gb_per_s, LINK_GB_PER_S
        )
        yield from _outside(f"links.{name}.domain", link.domain, (2, 1_000_000))
        for index, size in enumerate(link.mesh_boards):
            yield from _outside(f"links.{name}.mesh_boards[{index}]", size, (2, 1024))
        yield from _cube(f"links.{name}.cube", link.cube)
    yield from _outside("default_gpus_per_node", table.default_gpus_per_node, (1, 1024))


def _cube(path: str, cube: CubeTable | None) -> Iterator[DeviceFault]:
    if cube is None:
        return
    yield from _outside(f"{path}.links", cube.links, (1, 64))
    for name in ("pair", "three", "four"):
        yield from _outside(f"{path}.{name}", getattr(cube, name), (1, max(cube.links, 1)))


def _compute(level: ComputeTable, path: str, simt: bool, depth: int) -> Iterator[DeviceFault]:
    if depth > MAX_DEPTH:
        yield DeviceFault(f"{path}.children", f"at most {MAX_DEPTH} levels", "more")
        return
    yield from _outside(f"{path}.count", level.count, (1, MAX_UNITS))
    for pipe, rates in level.pipes.items():
        if simt and pipe not in SIMT_PIPES:
            yield DeviceFault(f"{path}.pipes.{pipe}", f"one of {', '.join(SIMT_PIPES)}", pipe)
        for dtype, rate in rates.items():
            where = f"{path}.pipes.{pipe}.{dtype}"
            if dtype not in BITS:
                yield DeviceFault(where, f"one of {', '.join(BITS)}", dtype)
            yield from _outside(where, rate, (1e-6, MAX_RATE))
    if level.array is not None:
        for side in ("rows", "columns", "count"):
            yield from _outside(f"{path}.array.{side}", getattr(level.array, side), (1, MAX_ARRAY))
    if not level.children and not level.pipes:
        yield DeviceFault(f"{path}.pipes", "at least one pipe on the innermost level", "none")
    if len(level.children) > 1:
        yield DeviceFault(f"{path}.children", "one kind of unit", f"{len(level.children)}")
    for index, child in enumerate(level.children):
        yield from _compute(child, f"{path}.children[{index}]", simt, depth + 1)


def _memories(table: DeviceFile) -> Iterator[DeviceFault]:
    needed = ["smem", "dram"] if table.execution_model == "simt" else ["dram"]
    shared = [n for n, level in table.memory.items() if level.scope == "device" and n != "dram"]
    if table.execution_model == "simt" and not shared:
        needed.insert(1, "l2")  # or another level that all cores share: see Device.l2
    for name in needed:
        if name not in table.memory:
            yield DeviceFault(f"memory.{name}", "a table", "nothing")
    for name, level in table.memory.items():
        yield from _memory(f"memory.{name}", name, level)
        if name == "dram" and not level.bandwidth_gb_per_s:
            yield DeviceFault(
                "memory.dram.bandwidth_gb_per_s",
                f"{DRAM_GB_PER_S[0]:g} to {DRAM_GB_PER_S[1]:g}",
                "nothing" if level.bandwidth_gb_per_s is None else "0",
            )


def _memory(path: str, name: str, level: MemoryTable) -> Iterator[DeviceFault]:
    units = (
        ("capacity_kib", level.capacity_kib, 1024e-9),
        ("capacity_mib", level.capacity_mib, 1048576e-9),
        ("capacity_gb", level.capacity_gb, 1.0),
    )
    gb_by_unit = {unit: value * in_gb for unit, value, in_gb in units if value is not None}
    if len(gb_by_unit) != 1:
        yield DeviceFault(
            f"{path}.capacity_gb",
            "one of capacity_kib, capacity_mib, capacity_gb",
            " and ".join(gb_by_unit) or "nothing",
        )
    for unit, in_gb in gb_by_unit.items():
        low, high = CAPACITY_GB.get(name, ANY_CAPACITY_GB)
        if not low <= in_gb <= high:
            yield DeviceFault(f"{path}.{unit}", f"{low:g} to {high:g} GB", f"{in_gb:g} GB")
    if level.bandwidth_gb_per_s is not None and level.bandwidth_bytes_per_clock is not None:
        yield DeviceFault(f"{path}.bandwidth_gb_per_s", "one unit of bandwidth", "two")
    limits = DRAM_GB_PER_S if name == "dram" else (0.01, 1e7)
    yield from _outside(f"{path}.bandwidth_gb_per_s", level.bandwidth_gb_per_s, limits)
    yield from _outside(
        f"{path}.bandwidth_bytes_per_clock", level.bandwidth_bytes_per_clock, (0.01, 1e6)
    )
    yield from _outside(f"{path}.peak_bytes_per_clock", level.peak_bytes_per_clock, (0.01, 1e6))
    yield from _outside(f"{path}.latency_ns", level.latency_ns, LATENCY_NS)
    yield from _outside(f"{path}.bus_bits", level.bus_bits, (1, 1 << 17))
    yield from _outside(f"{path}.data_rate_gbit_per_s", level.data_rate_gbit_per_s, (0.01, 1000.0))


def _relations(table: DeviceFile, device: Device) -> Iterator[DeviceFault]:
    for name, link in table.links.items():
        if link.multicast and not link.switched:
            yield DeviceFault(
                f"links.{name}.multicast", "false, or switched = true as well", "true"
            )
    yield from _capability(table)
    if table.execution_model == "simt":
        if device.cores > MAX_CORES:
            yield DeviceFault("compute", f"1 to {MAX_CORES} cores", f"{device.cores}")
        yield from _cache_relations(device)
    if table.execution_model == "systolic" and device.core.array is None:
        yield DeviceFault(
            "compute" + ".children[0]" * _depth(device) + ".array",
            "the shape of its arrays",
            "nothing",
        )
    yield from _rates(device)
    for field, expected, item in contradictions(table, device):
        yield DeviceFault(field, expected, item)


def _capability(table: DeviceFile) -> Iterator[DeviceFault]:
    """Architecture and compute capability of an NVIDIA device; pairs of neither are not known."""
    compute_capability = table.compute_capability
    if table.vendor.casefold() != "nvidia" or not compute_capability:
        return
    capabilities = CAPABILITIES.get(table.architecture)
    if capabilities is not None and compute_capability not in capabilities:
        capability_text = " or ".join(capabilities)
        yield DeviceFault(
            "compute_capability",
            f"{capability_text} for {table.architecture}",
            repr(compute_capability),
        )
    if capabilities is None:
        for architecture, listed in CAPABILITIES.items():
            if compute_capability in listed:
                yield DeviceFault(
                    "architecture",
                    f"{architecture!r} for compute capability {compute_capability}",
                    repr(table.architecture),
                )


def _cache_relations(device: Device) -> Iterator[DeviceFault]:
    l2, dram = device.l2, device.dram
    if l2.bandwidth_bytes_per_s and l2.bandwidth_bytes_per_s < dram.bandwidth_bytes_per_s:
        yield DeviceFault(
            "memory.l2.bandwidth_gb_per_s",
            f"at least that of dram, {dram.bandwidth_bytes_per_s / 1e9:g} GB/s",
            f"{l2.bandwidth_bytes_per_s / 1e9:g} GB/s",
            remedy=f"state memory.l2.bandwidth_gb_per_s = {dram.bandwidth_bytes_per_s / 1e9:g} or "
            "more too: a cache is not slower than the memory behind it",
        )
    if not device.memory["smem"].capacity_bytes <= l2.capacity_bytes <= dram.capacity_bytes:
        yield DeviceFault(
            "memory.l2.capacity_mib",
            "between those of smem and dram",
            f"{l2.capacity_bytes / 1048576:g} MiB",
        )


def _rates(device: Device) -> Iterator[DeviceFault]:
    """Narrower formats are never slower on the same pipe, and the whole is of this world."""
    path = "compute" + ".children[0]" * _depth(device) + ".pipes"
    for pipe in ("tensor", "fma"):
        rates = {d: device.rate_per_core(pipe, d) for d in BITS if device.rate_per_core(pipe, d)}
        for wide, narrow in (("tf32", "bf16"), ("bf16", "fp8"), ("fp16", "fp8"), ("fp8", "nvfp4")):
            if pipe == "tensor" and rates.get(narrow, math.inf) < rates.get(wide, 0.0):
                yield DeviceFault(
                    f"{path}.{pipe}.{narrow}",
                    f"at least the rate of {wide}, {rates[wide]:g}",
                    f"{rates[narrow]:g}",
                )
        for dtype, rate in rates.items():
            tflops = rate * device.cores * device.clocks.boost_hz * 1e-12
            if not MATRIX_TFLOPS[0] <= tflops <= MATRIX_TFLOPS[1]:
                yield DeviceFault(
                    f"{path}.{pipe}.{dtype}",
                    f"{MATRIX_TFLOPS[0]:g} to {MATRIX_TFLOPS[1]:g} TFLOPS for the whole device",
                    f"{tflops:g}",
                )


def _depth(device: Device) -> int:
    depth, level = 0, device.compute
    while level.children:
        depth, level = depth + 1, level.children[0]
    return depth
