"""Properties of a GPU as PyTorch and nvidia-smi report them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, final

import msgspec

from silicast.core.errors import unsupported
from silicast.hardware.catalog import device_index
from silicast.hardware.device import Device
from silicast.hardware.device_file import tabulate
from silicast.hardware.plausibility import CAPABILITIES
from silicast.measurement.machine.device_draft import Draft, Table, free_name
from silicast.measurement.machine.nvidia_smi import Query, nvidia_smi, other_processes

_FIELDS = (
    "driver_version", "clocks.max.sm", "clocks.max.memory", "clocks.applications.graphics",
    "clocks.default_applications.graphics", "power.limit", "power.default_limit",
    "pcie.link.gen.max", "pcie.link.width.max", "mig.mode.current", "ecc.mode.current",
    "persistence_mode", "memory.total",
)  # fmt: skip


@final
@dataclass(frozen=True)
class GpuFacts:
    """A GPU; 0, None or "" = not reported.

    Attributes:
        capability: compute capability ("9.0"); sms: multiprocessors.
        memory_bytes: of the board; free_bytes: unused when read.
        smem_bytes: shared memory of one multiprocessor.
        max_mhz: largest clock of its multiprocessors; memory_mhz, bus_bits: of its memory, whose
            data rate is twice the clock.
        power_w: power limit that is set; default_power_w: the board's own.
        set_mhz: application clock where one is set.
        others: other processes that compute on it, as "name (pid)".
    """

    name: str
    index: int = 0
    count: int = 1
    uuid: str = ""
    capability: str = ""
    sms: int = 0
    memory_bytes: int = 0
    free_bytes: int = 0
    l2_bytes: int = 0
    smem_bytes: int = 0
    max_mhz: float | None = None
    memory_mhz: float | None = None
    bus_bits: int = 0
    power_w: float | None = None
    default_power_w: float | None = None
    set_mhz: float | None = None
    pcie_generation: int = 0
    pcie_width: int = 0
    driver: str = ""
    cuda: str = ""
    mig: bool = False
    ecc: bool = False
    others: tuple[str, ...] = ()

    @property
    def memory_gb_per_s(self) -> float:
        """Bandwidth by clock and width of the bus; 0 where they are not reported."""
        return 2.0 * (self.memory_mhz or 0.0) * 1e6 * self.bus_bits / 8 / 1e9

    def table(self) -> dict[str, object]:
        """What a session records: nothing that changes from run to run."""
        table: dict[str, object] = {
            "gpu": self.name, "uuid": self.uuid, "compute_capability": self.capability,
            "multiprocessors": self.sms, "memory_bytes": self.memory_bytes,
            "l2_bytes": self.l2_bytes, "shared_memory_bytes": self.smem_bytes,
            "max_clock_mhz": self.max_mhz, "memory_clock_mhz": self.memory_mhz,
            "memory_bus_bits": self.bus_bits or None, "power_limit_w": self.power_w,
            "default_power_limit_w": self.default_power_w, "application_clock_mhz": self.set_mhz,
            "mig": self.mig, "ecc": self.ecc,
        }  # fmt: skip
        return {name: value for name, value in table.items() if value not in {None, ""}}

    def notes(self) -> tuple[str, ...]:
        """What about its state makes times doubtful or unusual."""
        notes = []
        if self.others:
            notes.append(f"other processes compute on it: {', '.join(self.others)}")
        used = self.memory_bytes - self.free_bytes
        if self.free_bytes and not self.others and used > 0.05 * self.memory_bytes + (1 << 30):
            notes.append(f"{used / 1e9:.1f} GB of its memory are in use by invisible processes")
        if self.set_mhz is not None:
            notes.append(f"its application clock is set to {self.set_mhz:.0f} MHz")
        power, default = self.power_w, self.default_power_w
        if power is not None and default is not None and abs(power - default) > 1.0:
            notes.append(f"its power limit is set to {power:.0f} W, the board's is {default:.0f} W")
        if self.mig:
            notes.append("it is partitioned (MIG): only one part of it is measured")
        return tuple(notes)


def read_gpu(index: int = 0) -> GpuFacts:
    """Properties of a GPU.

    Args:
        index: among those that PyTorch sees.
    """
    import torch

    properties, free = torch.cuda.get_device_properties(index), 0
    with suppress(RuntimeError):
        free, _ = torch.cuda.mem_get_info(index)
    count, cuda = torch.cuda.device_count(), str(torch.version.cuda or "")
    return gpu_facts(properties, index, count, nvidia_smi, free, cuda)


def gpu_facts(
    properties: Any, index: int, count: int, query: Query, free_bytes: int, cuda: str
) -> GpuFacts:
    """Combines PyTorch's properties of a GPU with nvidia-smi's fields."""
    uuid = str(getattr(properties, "uuid", "") or "")
    uuid = uuid if not uuid or uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
    reported = _query_fields(query, uuid or str(index))

    def number(field: str) -> float | None:
        with suppress(ValueError):
            return float(reported.get(field, ""))
        return None

    def whole(name: str) -> int:
        return int(getattr(properties, name, 0) or 0)

    wanted = number("clocks.applications.graphics")
    usual = number("clocks.default_applications.graphics")
    return GpuFacts(
        name=str(properties.name),
        index=index,
        count=count,
        uuid=uuid,
        capability=f"{properties.major}.{properties.minor}",
        sms=whole("multi_processor_count"),
        memory_bytes=whole("total_memory"),
        free_bytes=free_bytes,
        l2_bytes=whole("L2_cache_size") or whole("l2_cache_size"),
        smem_bytes=whole("shared_memory_per_multiprocessor"),
        max_mhz=number("clocks.max.sm") or (whole("clock_rate") * 1e-3 or None),
        memory_mhz=number("clocks.max.memory") or (whole("memory_clock_rate") * 1e-3 or None),
        bus_bits=whole("memory_bus_width"),
        power_w=number("power.limit"),
        default_power_w=number("power.default_limit"),
        set_mhz=wanted if wanted and usual and wanted != usual else None,
        pcie_generation=int(number("pcie.link.gen.max") or 0),
        pcie_width=int(number("pcie.link.width.max") or 0),
        driver=reported.get("driver_version", ""),
        cuda=cuda,
        mig=reported.get("mig.mode.current") == "Enabled" or uuid.startswith("MIG-"),
        ecc=reported.get("ecc.mode.current") == "Enabled",
        others=other_processes(uuid or str(index), query),
    )


def _query_fields(query: Query, gpu: str) -> Mapping[str, str]:
    """Fields of nvidia-smi, queried one by one where it does not know all of them."""

    def ask(*fields: str) -> dict[str, str]:
        text = query(
            (f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits", "-i", gpu)
        )
        values = [value.strip() for value in text.strip().split(",")]
        return dict(zip(fields, values, strict=True)) if len(values) == len(fields) else {}

    query_fields = ask(*_FIELDS)
    if query_fields or not query(("-L",)):
        return query_fields
    return {name: value for field in _FIELDS for name, value in ask(field).items()}


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
    same_capability = kin.compute_capability == facts.capability
    architectures = (name for name, levels in CAPABILITIES.items() if facts.capability in levels)
    architecture = next(architectures, "")
    similar = f"as {kin.name}, the most similar device of the catalog"
    core: Table = msgspec.to_builtins(tabulate(kin))["compute"]
    while core.get("children"):
        core = core["children"][0]
    sources = {
        "compute": f"{REPORTED}: number of multiprocessors",
        PIPES: f"judged from compute capability {facts.capability}: {similar}",
    }
    unknown = [] if same_capability else [f"{PIPES}.{pipe}" for pipe in core["pipes"]]
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
    if not same_capability:
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
