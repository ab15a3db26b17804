"""Drafts the device file of a CPU from what Linux reports and from its architecture."""

from __future__ import annotations

import re
from typing import Any

from silicast.hardware.device import Device
from silicast.measurement.cpu_architectures import (
    UNKNOWN,
    CpuArchitecture,
    architecture_of,
    vendor_of,
)
from silicast.measurement.cpu_facts import Cache, CpuFacts
from silicast.measurement.device_draft import Draft, Table, free_name

REPORTED = "reported by the system: /proc/cpuinfo and /sys/devices/system/cpu"
PIPES = "compute.children.pipes"
_NOISE = re.compile(
    r"\((?:R|TM)\)|\bCPU\b|\bProcessor\b|@.*$|\b\d+-Core\b|\bwith\b.*$", re.IGNORECASE
)
L3_BYTES_PER_CLOCK = 16  # of each core, as the CPUs of the catalog have it
EXPONENTIAL = 16  # multiply-adds as long as one exponential, as the CPUs of the catalog have it

USUAL_CACHES = {1: 32 << 10, 2: 512 << 10}
"""Level -> bytes of each core, where the system tells none."""


def plain_name(name: str) -> str:
    """A processor's name without marks and remarks.

    >>> plain_name("Intel(R) Xeon(R) Platinum 8480+ CPU @ 2.00GHz")
    'Intel Xeon Platinum 8480+'
    >>> plain_name("AMD EPYC 7742 64-Core Processor")
    'AMD EPYC 7742'
    """
    return " ".join(_NOISE.sub(" ", name).split())


def draft_cpu(facts: CpuFacts, relative: Device | None = None) -> Draft:
    """The device file of a CPU.

    Args:
        relative: the processor of the catalog that has its name but another number of cores; its
            clocks are taken.
    """
    name, architecture = architecture_of(facts)
    judged = f"judged from architecture {name}"
    if relative is not None:
        name = relative.architecture
    sources: dict[str, str] = {}
    unknown: list[str] = []
    rates = _rates(facts, architecture, unknown)
    table: Table = {
        "name": _name(facts, name),
        "vendor": vendor_of(facts),
        "architecture": name,
        "execution_model": "vector_cpu",
        "default_gpus_per_node": 1,
        "compute": {
            "name": "die",
            "count": 1,
            "children": [{"name": "core", "count": facts.cores, "pipes": rates}],
        },
        "memory": _memory(facts, architecture, judged, sources, unknown),
        "clocks": _clocks(facts, architecture, relative, judged, sources, unknown),
    }
    sources |= {
        "compute": f"{REPORTED}: physical cores that this process may use",
        PIPES: f"derived: instructions that the system reports ({_instructions(facts)}); widths of "
        f"the units {judged}: {architecture.source}",
        f"{PIPES}.xu": f"derived: an exponential takes about as long as {EXPONENTIAL} "
        "multiply-adds",
        "default_gpus_per_node": "this machine, as one device",
    }
    table["unknown"] = [*unknown, f"{PIPES}.xu"]
    table["sources"] = sources
    place = f", a virtual machine under {facts.hypervisor}" if facts.hypervisor else ""
    said = (
        f'The system calls the processor "{facts.name}", family {facts.family}, model '
        f"{facts.model}{place}."
    )
    return Draft(table, ("power.cap_w", "links", "latencies of its memories"), (said,))


def _name(facts: CpuFacts, architecture: str) -> str:
    """Such as "AMD EPYC, zen3, 2 cores, kvm"."""
    words = [plain_name(facts.name) or facts.vendor or "CPU"]
    words += [] if architecture == UNKNOWN else [architecture]
    words.append(f"{facts.cores} core{'s' if facts.cores > 1 else ''}")
    words += [facts.hypervisor] if facts.hypervisor else []
    return free_name(", ".join(words))


def _instructions(facts: CpuFacts) -> str:
    shown = [flag for flag in ("avx512f", "avx2", "fma", "sve", "asimd") if flag in facts.flags]
    return ", ".join(shown) or "none of vectors"


def _rates(facts: CpuFacts, architecture: CpuArchitecture, unknown: list[str]) -> Table:
    """Operations per clock and core of its pipes; a fused multiply-add counts 2."""
    flags = facts.flags
    arm = facts.isa.startswith(("aarch", "arm")) or "asimd" in flags
    # Two units of the widest instructions that a hypervisor lets through, at most.
    bits = architecture.fma_bits if arm else min(architecture.fma_bits, 2 * facts.vector_bits)
    fused = arm or bool(flags & {"fma", "fma4", "avx512f"})
    fp32 = bits // 32 * (2 if fused else 1)
    bf16 = 4 if arm and "bf16" in flags else 2 if "avx512_bf16" in flags else 1
    fp16 = 2 if flags & {"avx512_fp16", "asimdhp"} else 1
    int8 = 4 if flags & {"avx512_vnni", "avx_vnni", "asimddp", "i8mm"} else 2
    pipes: Table = {}
    if "amx_tile" in flags:
        found = {"amx_bf16": ("bf16", 2048), "amx_fp16": ("fp16", 2048), "amx_int8": ("int8", 4096)}
        pipes["tensor"] = {dtype: rate for flag, (dtype, rate) in found.items() if flag in flags}
    pipes["fma"] = {
        "fp32": fp32, "fp64": fp32 // 2, "bf16": fp32 * bf16, "fp16": fp32 * fp16,
        "int8": fp32 * int8,
    }  # fmt: skip
    pipes["xu"] = {"fp32": fp32 / EXPONENTIAL}
    if not architecture.models:
        unknown.append(f"{PIPES}.fma")
    return {name: rates for name, rates in pipes.items() if rates}


def _memory(
    facts: CpuFacts,
    architecture: CpuArchitecture,
    judged: str,
    sources: dict[str, str],
    unknown: list[str],
) -> Table:
    """Caches as reported, their bandwidths as usual; main memory as these cores can draw on it."""
    wide = 128 if facts.vector_bits >= 512 else 64
    memory: dict[str, Any] = {}
    told = facts.caches or {
        level: Cache(level, size, facts.cores, 1) for level, size in USUAL_CACHES.items()
    }
    for level, cache in told.items():
        if level not in (1, 2, 3):
            continue
        name = f"l{level}"
        shared = cache.cores > 1 or level == 3
        capacity = cache.bytes * (cache.instances if shared else 1)
        clock = {1: wide, 2: 64, 3: L3_BYTES_PER_CLOCK * facts.cores}[level]
        memory[name] = {
            "scope": "device" if shared else "core",
            "capacity_kib": capacity / 1024,
            "bandwidth_bytes_per_clock": clock * facts.cores if shared and level < 3 else clock,
        }
        sources[f"memory.{name}.capacity"] = (
            f"{REPORTED}: {cache.instances} of them"
            if facts.caches
            else "judged: usual of a core; the system reports no caches"
        )
        if not facts.caches:
            unknown.append(f"memory.{name}.capacity")
        sources[f"memory.{name}.bandwidth"] = f"derived: {clock} bytes a clock, {judged}"
        unknown.append(f"memory.{name}.bandwidth")
    limits = {f"{facts.sockets} sockets x {architecture.channels} channels x "
              f"{architecture.mt_per_s:g} MT/s": facts.sockets * architecture.memory_gb_per_s,
              f"{facts.cores} cores x {architecture.core_gb_per_s:g} GB/s":
              facts.cores * architecture.core_gb_per_s}  # fmt: skip
    last = facts.caches.get(3)
    if last is not None and architecture.cache_link_gb_per_s:
        text = f"{last.instances} caches x {architecture.cache_link_gb_per_s:g} GB/s"
        limits[text] = last.instances * architecture.cache_link_gb_per_s
    least = min(limits, key=limits.__getitem__)
    memory["dram"] = {
        "scope": "device",
        "capacity_gb": facts.memory_bytes / 1e9,
        "bandwidth_gb_per_s": round(limits[least], 1),
        "technology": architecture.technology,
    }
    sources["memory.dram.capacity"] = "reported by the system: /proc/meminfo"
    sources["memory.dram.bandwidth_gb_per_s"] = (
        f"derived: the memory modules cannot be read here; the least of "
        f"{', '.join(f'{text} = {value:.0f}' for text, value in limits.items())}; {judged}"
    )
    unknown.append("memory.dram.bandwidth")
    return memory


def _clocks(
    facts: CpuFacts,
    architecture: CpuArchitecture,
    relative: Device | None,
    judged: str,
    sources: dict[str, str],
    unknown: list[str],
) -> Table:
    """Clocks in MHz: told by the driver, else of the processor of that name, else usual ones."""
    told = f"{REPORTED}: its clock driver"
    if relative is not None:
        clocks = relative.clocks
        base, boost, top = (hz / 1e6 for hz in (clocks.base_hz, clocks.boost_hz, clocks.max_hz))
        said = f"as {relative.name} of the catalog"
    else:
        base, boost, top = 0.0, architecture.boost_mhz, architecture.max_mhz
        said = judged
    sources["clocks"] = said
    if facts.max_mhz:
        top, sources["clocks.max"] = facts.max_mhz, told
    else:
        unknown.append("clocks.max")
    if facts.base_mhz:
        base, sources["clocks.base"] = facts.base_mhz, told
    elif facts.hypervisor and facts.now_mhz and relative is None:
        base = facts.now_mhz
        sources["clocks.base"] = (
            "reported by the system: /proc/cpuinfo, which is nominal in a virtual machine"
        )
    boost = min(max(boost, base), top) if facts.max_mhz else max(boost, base)
    unknown.append("clocks.boost")
    table = {"base_mhz": min(base, boost), "boost_mhz": boost, "max_mhz": max(top, boost)}
    return {name: mhz for name, mhz in table.items() if mhz}
