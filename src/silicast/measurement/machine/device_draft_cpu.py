"""Draft of a CPU's device file, from what Linux reports and from its architecture."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import final

from silicast.hardware.device import Device
from silicast.measurement.machine.cpu_facts import (
    UNKNOWN,
    Cache,
    CpuArchitecture,
    CpuFacts,
    architecture_of,
)
from silicast.measurement.machine.device_draft import Draft, Table, free_name

REPORTED = "reported by the system: /proc/cpuinfo and /sys/devices/system/cpu"
PIPES = "compute.children.pipes"
_NOISE = re.compile(
    r"\((?:R|TM)\)|\bCPU\b|\bProcessor\b|@.*$|\b\d+-Core\b|\bwith\b.*$", re.IGNORECASE
)
L3_BYTES_PER_CLOCK = 16  # of each core, as the CPUs of the catalog have it
EXPONENTIAL = 16  # multiply-adds that take as long as one exponential, as in the catalog's CPUs

USUAL_CACHES = {1: 32 << 10, 2: 512 << 10}
"""Level -> bytes of each core, where the system reports none."""


def plain_name(name: str) -> str:
    """A processor's name without trademarks and remarks.

    >>> plain_name("Intel(R) Xeon(R) Platinum 8480+ CPU @ 2.00GHz")
    'Intel Xeon Platinum 8480+'
    >>> plain_name("AMD EPYC 7742 64-Core Processor")
    'AMD EPYC 7742'
    """
    return " ".join(_NOISE.sub(" ", name).split())


def draft_cpu(facts: CpuFacts, relative: Device | None = None) -> Draft:
    """The device file of a CPU.

    Args:
        relative: processor of the catalog with its name but another number of cores, whose clocks
            are used.
    """
    name, architecture = architecture_of(facts)
    drafter = _Drafter(facts, architecture, relative, f"judged from architecture {name}")
    pipes, memory, clocks = drafter.pipes(), drafter.memory(), drafter.clocks()
    if relative is not None:
        name = relative.architecture
    words = [plain_name(facts.name) or facts.vendor or "CPU"]
    words += [] if name == UNKNOWN else [name]
    words += [f"{facts.cores} core{'s' if facts.cores > 1 else ''}"]
    words += [facts.hypervisor] if facts.hypervisor else []
    vectors = [flag for flag in ("avx512f", "avx2", "fma", "sve", "asimd") if flag in facts.flags]
    table: Table = {
        "name": free_name(", ".join(words)),
        "vendor": facts.vendor_name,
        "architecture": name,
        "execution_model": "vector_cpu",
        "default_gpus_per_node": 1,
        "compute": {
            "name": "die",
            "count": 1,
            "children": [{"name": "core", "count": facts.cores, "pipes": pipes}],
        },
        "memory": memory,
        "clocks": clocks,
        "unknown": [*drafter.unknown, f"{PIPES}.xu"],
        "sources": drafter.sources
        | {
            "compute": f"{REPORTED}: physical cores that this process may use",
            PIPES: "derived: instructions that the system reports "
            f"({', '.join(vectors) or 'none of vectors'}); widths of the units {drafter.judged}: "
            f"{architecture.source}",
            f"{PIPES}.xu": f"derived: an exponential takes about as long as {EXPONENTIAL} "
            "multiply-adds",
            "default_gpus_per_node": "this machine, as one device",
        },
    }
    position = f", a virtual machine under {facts.hypervisor}" if facts.hypervisor else ""
    note = (
        f'The system calls the processor "{facts.name}", family {facts.family}, model '
        f"{facts.model}{position}."
    )
    return Draft(table, ("power.cap_w", "links", "latencies of its memories"), (note,))


@final
@dataclass(frozen=True)
class _Drafter:
    """Drafts the parts of a device file, with the sources of numbers and those in doubt.

    Attributes:
        judged: source of what follows from the architecture.
    """

    facts: CpuFacts
    architecture: CpuArchitecture
    relative: Device | None
    judged: str
    sources: dict[str, str] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)

    def pipes(self) -> Table:
        """Operations per clock and core of its pipes; a fused multiply-add counts 2."""
        flags, facts = self.facts.flags, self.facts
        arm = facts.isa.startswith(("aarch", "arm")) or "asimd" in flags
        # at most two units of the widest instructions that a hypervisor exposes
        units = self.architecture.fma_bits
        bits = units if arm else min(units, 2 * facts.vector_bits)
        fused = arm or bool(flags & {"fma", "fma4", "avx512f"})
        fp32 = bits // 32 * (2 if fused else 1)
        bf16 = 4 if arm and "bf16" in flags else 2 if "avx512_bf16" in flags else 1
        fp16 = 2 if flags & {"avx512_fp16", "asimdhp"} else 1
        int8 = 4 if flags & {"avx512_vnni", "avx_vnni", "asimddp", "i8mm"} else 2
        pipes: Table = {}
        if "amx_tile" in flags:
            amx = {
                "amx_bf16": ("bf16", 2048),
                "amx_fp16": ("fp16", 2048),
                "amx_int8": ("int8", 4096),
            }
            pipes["tensor"] = {dtype: rate for flag, (dtype, rate) in amx.items() if flag in flags}
        pipes["fma"] = {
            "fp32": fp32,
            "fp64": fp32 // 2,
            "bf16": fp32 * bf16,
            "fp16": fp32 * fp16,
            "int8": fp32 * int8,
        }
        pipes["xu"] = {"fp32": fp32 / EXPONENTIAL}
        if not self.architecture.models:
            self.unknown.append(f"{PIPES}.fma")
        return {name: rates for name, rates in pipes.items() if rates}

    def memory(self) -> Table:
        """Caches as reported, with usual bandwidths; main memory as far as these cores draw it."""
        facts, architecture = self.facts, self.architecture
        wide = 128 if facts.vector_bits >= 512 else 64
        memory: Table = {}
        caches = facts.caches or {
            level: Cache(level, size, facts.cores, 1) for level, size in USUAL_CACHES.items()
        }
        for level, cache in caches.items():
            if level not in (1, 2, 3):
                continue
            name = f"l{level}"
            shared = cache.cores > 1 or level == 3
            clock = {1: wide, 2: 64, 3: L3_BYTES_PER_CLOCK * facts.cores}[level]
            memory[name] = {
                "scope": "device" if shared else "core",
                "capacity_kib": cache.bytes * (cache.instances if shared else 1) / 1024,
                "bandwidth_bytes_per_clock": clock * facts.cores if shared and level < 3 else clock,
            }
            self.sources[f"memory.{name}.capacity"] = (
                f"{REPORTED}: {cache.instances} of them"
                if facts.caches
                else "judged: usual of a core; the system reports no caches"
            )
            if not facts.caches:
                self.unknown.append(f"memory.{name}.capacity")
            bandwidth = f"derived: {clock} bytes a clock, {self.judged}"
            self.sources[f"memory.{name}.bandwidth"] = bandwidth
            self.unknown.append(f"memory.{name}.bandwidth")
        limits = {
            f"{facts.sockets} sockets x {architecture.channels} channels x "
            f"{architecture.mt_per_s:g} MT/s": facts.sockets * architecture.memory_gb_per_s,
            f"{facts.cores} cores x {architecture.core_gb_per_s:g} GB/s": facts.cores
            * architecture.core_gb_per_s,
        }
        last = facts.caches.get(3)
        if last is not None and architecture.cache_link_gb_per_s:
            text = f"{last.instances} caches x {architecture.cache_link_gb_per_s:g} GB/s"
            limits[text] = last.instances * architecture.cache_link_gb_per_s
        memory["dram"] = {
            "scope": "device",
            "capacity_gb": facts.memory_bytes / 1e9,
            "bandwidth_gb_per_s": round(min(limits.values()), 1),
            "technology": architecture.technology,
        }
        self.sources["memory.dram.capacity"] = "reported by the system: /proc/meminfo"
        self.sources["memory.dram.bandwidth_gb_per_s"] = (
            "derived: the memory modules cannot be read here; the least of "
            f"{', '.join(f'{text} = {value:.0f}' for text, value in limits.items())}; {self.judged}"
        )
        self.unknown.append("memory.dram.bandwidth")
        return memory

    def clocks(self) -> Table:
        """In MHz: by the driver, else of the processor of that name, else usual ones."""
        facts, architecture, relative = self.facts, self.architecture, self.relative
        base, boost, top = 0.0, architecture.boost_mhz, architecture.max_mhz
        self.sources["clocks"] = self.judged
        if relative is not None:
            clocks = relative.clocks
            base, boost, top = (hz / 1e6 for hz in (clocks.base_hz, clocks.boost_hz, clocks.max_hz))
            self.sources["clocks"] = f"as {relative.name} of the catalog"
        if facts.max_mhz:
            top, self.sources["clocks.max"] = facts.max_mhz, f"{REPORTED}: its clock driver"
        else:
            self.unknown.append("clocks.max")
        if facts.base_mhz:
            base, self.sources["clocks.base"] = facts.base_mhz, f"{REPORTED}: its clock driver"
        elif facts.hypervisor and facts.now_mhz and relative is None:
            base = facts.now_mhz
            self.sources["clocks.base"] = (
                "reported by the system: /proc/cpuinfo, which is nominal in a virtual machine"
            )
        boost = min(max(boost, base), top) if facts.max_mhz else max(boost, base)
        self.unknown.append("clocks.boost")
        table = {"base_mhz": min(base, boost), "boost_mhz": boost, "max_mhz": max(top, boost)}
        return {name: mhz for name, mhz in table.items() if mhz}
