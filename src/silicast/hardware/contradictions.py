"""Numbers of a device file that cannot be true together: each is fine alone.

The limits are several times what any device of the catalog has: they catch a wrong unit, a rate of
the whole device given for one core, sparse rates, a core too many, not a bold design.
"""

from __future__ import annotations

from collections.abc import Iterator

from silicast.core.dtypes import BITS
from silicast.hardware.device import Device
from silicast.hardware.device_file import DeviceFile

Finding = tuple[str, str, str]
"""Field, what is expected there, what stands there."""

BUS_TOLERANCE = 0.03
BOOST_OVER_BASE = 6.0
MAX_OVER_BOOST = 2.0
HALVED_WIDTH = 8.0
"""Of a pipe's rate, what half the bits of an operand may gain; the most known is 4.4."""
L2_BYTES_PER_CLOCK = 256.0
"""A core's share of L2; the widest known have 64."""
SHARED_BYTES_PER_CLOCK = 4096.0
OPS_TIMES_BITS_PER_JOULE = 4e14
"""Operations a joule times an operand's bits; the best known reach 0.8e14."""
BYTES_PER_JOULE = 100e9
"""From memory; the best known reach 17e9."""
READ_ALL_S = (1e-4, 1e4)
"""To read all of memory once: 2 ms to some seconds on every known device."""


def contradictions(table: DeviceFile, device: Device) -> Iterator[Finding]:
    """What cannot be true of a file whose numbers are each in their range."""
    yield from _clocks(table)
    yield from _bus(table)
    yield from _memory(table, device)
    yield from _rates(table, device)
    yield from _power(table, device)


def _clocks(table: DeviceFile) -> Iterator[Finding]:
    clocks = table.clocks
    if clocks.base_mhz is not None:
        if clocks.base_mhz > clocks.boost_mhz:
            most = f"at most the boost clock, {clocks.boost_mhz:g}"
            yield "clocks.base_mhz", most, f"{clocks.base_mhz:g}"
        elif clocks.boost_mhz > BOOST_OVER_BASE * clocks.base_mhz:
            most = f"at most {BOOST_OVER_BASE:g} x the base clock, {clocks.base_mhz:g}"
            yield "clocks.boost_mhz", most, f"{clocks.boost_mhz:g}"
    if clocks.max_mhz is not None:
        low, high = clocks.boost_mhz, MAX_OVER_BOOST * clocks.boost_mhz
        if clocks.max_mhz < low:
            yield "clocks.max_mhz", f"at least the boost clock, {low:g}", f"{clocks.max_mhz:g}"
        elif clocks.max_mhz > high:
            most = f"at most {MAX_OVER_BOOST:g} x the boost clock, {low:g}"
            yield "clocks.max_mhz", most, f"{clocks.max_mhz:g}"


def _bus(table: DeviceFile) -> Iterator[Finding]:
    """Bandwidth against pins and their rate, where a file gives both."""
    for name, level in table.memory.items():
        bits, rate, bandwidth = level.bus_bits, level.data_rate_gbit_per_s, level.bandwidth_gb_per_s
        if bits is None or rate is None or bandwidth is None:
            continue
        wires = bits * rate / 8.0
        if abs(bandwidth - wires) > BUS_TOLERANCE * wires:
            yield (
                f"memory.{name}.bandwidth_gb_per_s",
                f"{wires:.5g} = {bits:g} bits x {rate:g} Gbit/s / 8",
                f"{bandwidth:g}",
            )


def _memory(table: DeviceFile, device: Device) -> Iterator[Finding]:
    dram = device.dram
    whole_s = dram.capacity_bytes / dram.bandwidth_bytes_per_s
    low, high = READ_ALL_S
    if not low <= whole_s <= high:
        least, most = (dram.capacity_bytes / each * 1e-9 for each in (high, low))
        yield (
            "memory.dram.bandwidth_gb_per_s",
            f"{least:.3g} to {most:.3g} for {dram.capacity_bytes * 1e-9:g} GB",
            f"{dram.bandwidth_bytes_per_s * 1e-9:g}",
        )
    for name, link in table.links.items():
        most = dram.bandwidth_bytes_per_s * 1e-9
        if link.bandwidth_gb_per_s > most:
            yield (
                f"links.{name}.bandwidth_gb_per_s",
                f"at most what memory delivers, {most:g}",
                f"{link.bandwidth_gb_per_s:g}",
            )
    if table.execution_model != "simt":
        return
    per_clock = device.clocks.boost_hz * device.cores
    value = device.l2.bandwidth_bytes_per_s / per_clock
    if value > L2_BYTES_PER_CLOCK:
        most = L2_BYTES_PER_CLOCK * per_clock * 1e-9
        yield (
            "memory.l2.bandwidth_gb_per_s",
            f"at most {most:.4g}, {L2_BYTES_PER_CLOCK:g} bytes a clock and core",
            f"{device.l2.bandwidth_bytes_per_s * 1e-9:.4g}",
        )
    shared = device.memory["smem"].bandwidth_bytes_per_s / device.clocks.boost_hz
    if shared > SHARED_BYTES_PER_CLOCK:
        yield (
            "memory.smem.bandwidth_bytes_per_clock",
            f"at most {SHARED_BYTES_PER_CLOCK:g} of one core",
            f"{shared:g}",
        )


def _rates(table: DeviceFile, device: Device) -> Iterator[Finding]:
    """Half the bits gain so much and no more; a vector pipe has a lane for each product and sum."""
    for pipe in ("tensor", "fma"):
        rates = {d: device.rate_per_core(pipe, d) for d in BITS if device.rate_per_core(pipe, d)}
        for wide, slow in rates.items():
            for narrow, fast in rates.items():
                halved = BITS[wide] / BITS[narrow]
                if 1.0 < halved <= 2.0 and fast > HALVED_WIDTH * slow and _alike(wide, narrow):
                    yield (
                        pipe_path(table, pipe, narrow),
                        f"at most {HALVED_WIDTH:g} x the rate of {wide}, {slow:g}",
                        f"{fast:g}",
                    )


def _alike(wide: str, narrow: str) -> bool:
    """Of one kind: devices have few units for 32 and 64 bits, and integers have their own."""
    return not any(name.startswith(("int", "uint", "fp32", "fp64")) for name in (wide, narrow))


def _power(table: DeviceFile, device: Device) -> Iterator[Finding]:
    cap, idle = table.power.cap_w, table.power.idle_w
    if cap is None:
        return
    if idle is not None and idle >= cap:
        yield "power.idle_w", f"below the cap, {cap:g}", f"{idle:g}"
    least = table.power.least_w
    if least is not None and not (idle or 0.0) < least <= cap:
        yield "power.least_w", f"above the idle power and at most the cap, {cap:g}", f"{least:g}"
    clock = device.clocks.boost_hz * device.cores
    beyond = []
    for pipe in ("tensor", "fma"):
        for dtype, bits in BITS.items():
            rate = device.rate_per_core(pipe, dtype)
            most = OPS_TIMES_BITS_PER_JOULE / bits * cap / clock
            if rate > most:
                beyond.append((pipe, dtype, rate, most))
    if len(beyond) > 1:  # one wrong limit is likelier than several wrong rates
        least = cap * max(rate / most for *_, rate, most in beyond)
        yield "power.cap_w", f"at least {least:.3g} for the rates of the pipes", f"{cap:g}"
        return
    for pipe, dtype, rate, most in beyond:
        where = f"on {device.cores} cores at {device.clocks.boost_hz * 1e-6:g} MHz"
        expected = f"at most {most:.3g} a clock {where} within {cap:g} W"
        yield pipe_path(table, pipe, dtype), expected, f"{rate:g}"
    bandwidth = device.dram.bandwidth_bytes_per_s
    if bandwidth > BYTES_PER_JOULE * cap:
        yield (
            "memory.dram.bandwidth_gb_per_s",
            f"at most {BYTES_PER_JOULE * cap * 1e-9:g} within {cap:g} W",
            f"{bandwidth * 1e-9:g}",
        )


def pipe_path(table: DeviceFile, pipe: str, dtype: str) -> str:
    """The path of a rate, which the innermost level holds."""
    depth, level = 0, table.compute
    while level.children:
        depth, level = depth + 1, level.children[0]
    return f"compute{'.children[0]' * depth}.pipes.{pipe}.{dtype}"
