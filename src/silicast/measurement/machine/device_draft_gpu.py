"""Draft of an NVIDIA GPU's device file, from its driver and a similar device of the catalog."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from silicast.core.errors import unsupported
from silicast.hardware.catalog import device_index
from silicast.hardware.device import Device
from silicast.hardware.device_file import tabulate
from silicast.hardware.plausibility import CAPABILITIES
from silicast.measurement.machine.device_draft import Draft, Table, free_name
from silicast.measurement.machine.gpu_facts import GpuFacts

PIPES = "compute.children.pipes"
_PCIE_GB_PER_S = {1: 0.25, 2: 0.5, 3: 1.0, 4: 2.0, 5: 4.0, 6: 8.0}
"""GB/s of one lane and direction by generation (PCI Express specifications, rounded)."""
_CONSUMER = re.compile(r"geforce|\bgtx\b|titan", re.IGNORECASE)
REPORTED = "reported by the driver"


def draft_gpu(facts: GpuFacts) -> Draft:
    """The device file of a GPU.

    What the driver does not report is that of the most similar device of the catalog, per
    multiprocessor and clock, and listed as unknown.

    Raises:
        SilicastError: kind "unsupported": the driver does not report the number of multiprocessors.
    """
    if not facts.sms:
        raise unsupported(
            f"the driver does not report how many multiprocessors {facts.name!r} has",
            "device",
            "docs/how-to/add-a-device.md describes how to write its file by hand",
        )
    kin = nearest_relative(facts)
    current = kin.compute_capability == facts.capability
    known = (name for name, levels in CAPABILITIES.items() if facts.capability in levels)
    architecture = next(known, "")
    similar = f"as {kin.name}, the most similar device of the catalog"
    core: Table = msgspec.to_builtins(tabulate(kin))["compute"]
    while core.get("children"):
        core = core["children"][0]
    sources = {
        "compute": f"{REPORTED}: number of multiprocessors",
        PIPES: f"judged from compute capability {facts.capability}: {similar}",
    }
    unknown = [] if current else [f"{PIPES}.{pipe}" for pipe in core["pipes"]]
    table: Table = {
        "name": free_name(facts.name.removeprefix("NVIDIA ")),
        "vendor": "NVIDIA",
        "architecture": architecture or kin.architecture,
        "compute_capability": facts.capability if architecture else "",
        "execution_model": "simt",
        "default_gpus_per_node": max(facts.count, 1),
        "compute": {
            "name": "die",
            "count": 1,
            "children": [{"name": "sm", "count": facts.sms, "pipes": core["pipes"]}],
        },
        "memory": _memory(facts, kin, similar, sources, unknown),
        "clocks": _clocks(facts, kin, similar, sources, unknown),
    }
    power = facts.default_power_w or facts.power_w
    if power:
        table["power"] = {"cap_w": power}
        sources["power.cap"] = REPORTED
    lane = _PCIE_GB_PER_S.get(facts.pcie_generation, 0.0)
    if lane and facts.pcie_width:
        pcie: dict[str, Any] = {"bandwidth_gb_per_s": lane * facts.pcie_width}
        table["links"] = {"pcie": {**pcie, "peer_access": not _CONSUMER.search(facts.name)}}
        wires = f"gen {facts.pcie_generation} x{facts.pcie_width}, one direction"
        sources["links.pcie"] = f"{REPORTED}: PCI Express {wires}"
    sources["default_gpus_per_node"] = f"{REPORTED}: GPUs of this machine"
    table["unknown"], table["sources"] = unknown, sources
    blank = [] if power else ["power.cap_w"]
    blank += ["clocks.base_mhz", "links.nvlink"] + ([] if "links" in table else ["links.pcie"])
    notes = [f'The driver calls it "{facts.name}", compute capability {facts.capability}.']
    if not current:
        notes.append(f"No device of that capability is known: rates are those of {kin.name}.")
    return Draft(table, tuple(blank), tuple(notes))


def nearest_relative(facts: GpuFacts) -> Device:
    """The NVIDIA device of the catalog that is most similar to a GPU.

    Of the same compute capability or the nearest below it; then of the same product line, as
    consumer boards have slower pipes; then of the nearest size.
    """

    def number(capability: str) -> float:
        return float(capability or 0.0)

    index = device_index()
    devices = [
        device
        for device in map(index.get, index.names)
        if device.vendor == "NVIDIA" and device.compute_capability
    ]
    levels = {number(device.compute_capability) for device in devices}
    below = {level for level in levels if level <= number(facts.capability)}
    nearest = max(below) if below else min(levels)
    consumer = bool(_CONSUMER.search(facts.name))

    def distance(device: Device) -> tuple[bool, int, str]:
        names = " ".join((device.name, *device.aliases))
        return bool(_CONSUMER.search(names)) != consumer, abs(device.cores - facts.sms), device.name

    return min((d for d in devices if number(d.compute_capability) == nearest), key=distance)


def _memory(
    facts: GpuFacts, kin: Device, similar: str, sources: dict[str, str], unknown: list[str]
) -> Table:
    l2, smem, dram = kin.l2, kin.memory["smem"], kin.dram
    ratio, clock = facts.sms / kin.cores, kin.clocks.boost_hz
    bandwidth = facts.memory_gb_per_s
    sources["memory.smem.capacity"] = REPORTED if facts.smem_bytes else f"derived: {similar}"
    sources["memory.smem.bandwidth"] = f"derived: {similar}"
    sources["memory.l2.capacity"] = REPORTED if facts.l2_bytes else f"derived: {similar}"
    sources["memory.l2.bandwidth"] = f"derived: {similar}, per multiprocessor and clock"
    sources["memory.dram.capacity"] = REPORTED
    unknown.append("memory.l2.bandwidth")
    if bandwidth:
        sources["memory.dram.bandwidth"] = (
            f"derived: {REPORTED}: {facts.memory_mhz:g} MHz x 2 x {facts.bus_bits} bit"
        )
    else:
        bandwidth = dram.bandwidth_bytes_per_s / 1e9 * ratio
        sources["memory.dram.bandwidth"] = (
            f"derived: the driver does not report the width of the bus; {similar}, per "
            "multiprocessor"
        )
        unknown.append("memory.dram.bandwidth")
    l2_clock = l2.bandwidth_bytes_per_s / clock * ratio
    boost = (facts.max_mhz or clock / 1e6) * 1e6
    if l2_clock * boost < bandwidth * 1e9:  # a cache is not slower than its memory
        l2_clock = 2.0 * bandwidth * 1e9 / boost
        sources["memory.l2.bandwidth"] = "derived: twice that of its memory"
    return {
        "smem": {
            "scope": "core",
            "capacity_kib": (facts.smem_bytes or smem.capacity_bytes) / 1024,
            "bandwidth_bytes_per_clock": round(smem.bandwidth_bytes_per_s / clock),
        },
        "l2": {
            "scope": "device",
            "capacity_kib": round((facts.l2_bytes or l2.capacity_bytes * ratio) / 1024),
            "bandwidth_bytes_per_clock": round(l2_clock),
        },
        "dram": {
            "scope": "device",
            "capacity_gb": facts.memory_bytes / 1e9,
            "bandwidth_gb_per_s": round(bandwidth, 1),
            "technology": dram.technology,
        },
    }


def _clocks(
    facts: GpuFacts, kin: Device, similar: str, sources: dict[str, str], unknown: list[str]
) -> Table:
    """The driver reports the largest clock; the datasheet's is a usual share of it."""
    clocks = kin.clocks
    top = facts.max_mhz or clocks.max_hz / 1e6
    sources["clocks.max"] = REPORTED if facts.max_mhz else f"derived: {similar}"
    sources["clocks.boost"] = f"derived: its share of the largest clock {similar}"
    unknown.append("clocks.boost")
    if not facts.max_mhz:
        unknown.append("clocks.max")
    return {"boost_mhz": round(top * clocks.boost_hz / clocks.max_hz, 1), "max_mhz": top}
