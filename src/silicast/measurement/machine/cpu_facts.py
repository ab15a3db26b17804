"""Properties of the processor as Linux reports them in /proc/cpuinfo and /sys, and its architecture
in catalog/architectures/cpus.toml.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import final

from silicast.core.catalog import catalog_files
from silicast.core.decode import Strict, read_table
from silicast.hardware.device import Device
from silicast.measurement.machine.device_draft import Draft, Table, free_name

UNKNOWN = "unknown"
_SIZE = re.compile(r"(\d+)\s*([KMG]?)")
_UNIT = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_ARM_VENDOR = {"0x41": "ARM", "0xc0": "Ampere", "0x61": "Apple"}
_VENDORS = {"AuthenticAMD": "AMD", "GenuineIntel": "Intel", "Ampere": "ARM"}
_RECORDED_FLAGS = (
    "avx2", "fma", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "avx512_fp16", "amx_tile",
    "amx_bf16", "amx_int8", "amx_fp16", "asimd", "asimddp", "sve", "bf16", "i8mm",
)  # fmt: skip


@final
@dataclass(frozen=True)
class Cache:
    """Caches of one level that the usable cores have.

    Attributes:
        bytes: capacity of one; instances: their number; cores: that share one.
    """

    level: int
    bytes: int
    instances: int
    cores: int


@final
@dataclass(frozen=True)
class CpuFacts:
    """A processor.

    Attributes:
        name: model name as reported ("AMD EPYC", "Intel(R) Xeon(R) Platinum 8480+"), or "".
        vendor: "AuthenticAMD", "GenuineIntel", "ARM" or "".
        family, model, stepping: of x86; for ARM the part is the model. 0 = not reported.
        cores: physical cores that this process may use; logical: their hardware threads.
        sockets, nodes: packages and NUMA nodes of those cores.
        quota: processors that a control group allows, None = no limit.
        now_mhz: current clock; base_mhz, max_mhz: by the clock driver; None where there is none, as
            in most virtual machines.
        governor: policy of the clock driver, or "".
        memory_bytes: of the machine, or the limit of a control group.
        hypervisor: "" on bare metal, else its name ("kvm") or "yes".
    """

    name: str
    vendor: str = ""
    family: int = 0
    model: int = 0
    stepping: int = 0
    flags: frozenset[str] = frozenset()
    cores: int = 1
    logical: int = 1
    sockets: int = 1
    nodes: int = 1
    quota: float | None = None
    now_mhz: float | None = None
    base_mhz: float | None = None
    max_mhz: float | None = None
    governor: str = ""
    caches: Mapping[int, Cache] = field(default_factory=dict)
    memory_bytes: int = 0
    hypervisor: str = ""
    isa: str = "x86_64"

    @property
    def vector_bits(self) -> int:
        """Width of the widest vector instructions."""
        for flag, bits in (("avx512f", 512), ("avx2", 256), ("avx", 256)):
            if flag in self.flags:
                return bits
        return 128

    @property
    def vendor_name(self) -> str:
        """The vendor's usual name."""
        return _VENDORS.get(self.vendor, self.vendor) or "unknown"

    def table(self) -> dict[str, object]:
        """What a session records."""
        table: dict[str, object] = {
            "cpu": self.name, "vendor": self.vendor, "family": self.family, "model": self.model,
            "stepping": self.stepping, "isa": self.isa, "cores": self.cores,
            "hardware_threads": self.logical, "sockets": self.sockets, "numa_nodes": self.nodes,
            "memory_bytes": self.memory_bytes, "hypervisor": self.hypervisor,
            "instructions": [flag for flag in _RECORDED_FLAGS if flag in self.flags],
            "caches": {f"l{c.level}": {"bytes": c.bytes, "instances": c.instances}
                       for c in self.caches.values()},
        }  # fmt: skip
        optional = {"base_mhz": self.base_mhz, "max_mhz": self.max_mhz, "cpu_quota": self.quota}
        table |= {name: value for name, value in optional.items() if value is not None}
        return table | ({"governor": self.governor} if self.governor else {})


def read_cpu(root: Path = Path("/"), cpus: Collection[int] | None = None) -> CpuFacts:
    """Properties of the processors that this process may use.

    Args:
        root: folder of proc and sys.
        cpus: numbers of the processors; None = those that the scheduler lets this process use.
    """
    used = sorted(cpus if cpus is not None else _allowed())
    first = used[0] if used else 0
    info = _cpuinfo(root, first)
    indices = [_place(root, cpu) for cpu in used]
    cores = {position for position in indices if position} or set(enumerate(used))
    flags = info.get("flags", "")
    return CpuFacts(
        name=info.get("model name", "") or ("" if info else platform.processor()),
        vendor=info.get("vendor_id", "") or _ARM_VENDOR.get(info.get("CPU implementer", ""), ""),
        family=_whole(info.get("cpu family", "")),
        model=_whole(info.get("model", "") or info.get("CPU part", "")),
        stepping=_whole(info.get("stepping", "")),
        flags=frozenset((flags or info.get("Features", "")).split()),
        cores=len(cores),
        logical=max(len(used), 1),
        sockets=len({package for package, _ in cores}) if any(indices) else 1,
        nodes=max(1, _nodes(root, used)),
        quota=_quota(root),
        now_mhz=_number(info.get("cpu MHz", "")),
        base_mhz=_frequency(root, used, "base_frequency"),
        max_mhz=_frequency(root, used, "cpuinfo_max_freq"),
        governor=text_of(_cpu(root, first) / "cpufreq/scaling_governor"),
        caches=_caches(root, used, max(1, round(len(used) / len(cores)))),
        memory_bytes=_memory(root),
        hypervisor=_hypervisor(root, flags),
        isa=platform.machine(),
    )


def text_of(path: Path) -> str:
    """Content of a small file, "" if it cannot be read."""
    with suppress(OSError, UnicodeDecodeError):
        return path.read_text(encoding="utf-8").strip()
    return ""


def _allowed() -> Collection[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return range(os.cpu_count() or 1)


def _whole(text: str) -> int:
    with suppress(ValueError):
        return int(text, 0)
    return 0


def _number(text: str) -> float | None:
    with suppress(ValueError):
        return float(text)
    return None


def _cpu(root: Path, cpu: int) -> Path:
    return root / "sys/devices/system/cpu" / f"cpu{cpu}"


def _cpuinfo(root: Path, cpu: int) -> dict[str, str]:
    """The block of one processor; the first block if it has none of its own."""
    blocks: list[dict[str, str]] = []
    for text in text_of(root / "proc/cpuinfo").split("\n\n"):
        parts = (line.partition(":") for line in text.splitlines())
        blocks.append({key.strip(): value.strip() for key, _, value in parts})
    matching = [block for block in blocks if block.get("processor") == str(cpu)]
    return (matching or [block for block in blocks if block] or [{}])[0]


def _place(root: Path, cpu: int) -> tuple[int, int] | None:
    """Package and core of a processor."""
    topology = _cpu(root, cpu) / "topology"
    package, core = text_of(topology / "physical_package_id"), text_of(topology / "core_id")
    if not package or not core:
        return None
    siblings = text_of(topology / "thread_siblings_list")
    return _whole(package), _whole(re.split(r"[,-]", siblings)[0]) if siblings else _whole(core)


def _frequency(root: Path, used: list[int], name: str) -> float | None:
    """Largest value of a clock over the processors, in MHz."""
    clocks_khz = [_number(text_of(_cpu(root, cpu) / "cpufreq" / name)) for cpu in used]
    return max((khz * 1e-3 for khz in clocks_khz if khz), default=None)


def _caches(root: Path, used: list[int], threads_per_core: int) -> dict[int, Cache]:
    """Data and unified caches by level."""
    positions: dict[int, dict[str, tuple[int, int]]] = {}
    for cpu in used:
        for index in sorted((_cpu(root, cpu) / "cache").glob("index*")):
            level, size = _whole(text_of(index / "level")), _SIZE.match(text_of(index / "size"))
            if text_of(index / "type") != "Instruction" and level and size:
                shared = text_of(index / "shared_cpu_list")
                total = int(size[1]) * _UNIT[size[2]]
                positions.setdefault(level, {})[shared or str(cpu)] = total, _listed(shared)
    caches = {}
    for level, instances in sorted(positions.items()):
        capacity, sharers = max(instances.values())
        cores = max(1, sharers // threads_per_core)
        caches[level] = Cache(level, capacity, len(instances), cores)
    return caches


def _listed(text: str) -> int:
    """Number of processors in a list.

    >>> _listed("0-3,8"), _listed("")
    (5, 1)
    """
    count = 0
    for part in text.split(",") if text else []:
        low, _, high = part.partition("-")
        count += _whole(high or low) - _whole(low) + 1
    return max(count, 1)


def _nodes(root: Path, used: list[int]) -> int:
    nodes = root.joinpath("sys/devices/system/node").glob("node[0-9]*")
    return sum(any((node / f"cpu{cpu}").exists() for cpu in used) for node in nodes)


def _quota(root: Path) -> float | None:
    """Processors that the control group allows, by the files of its version 2 or 1."""
    limit, _, period = text_of(root / "sys/fs/cgroup/cpu.max").partition(" ")
    if not limit:
        limit = text_of(root / "sys/fs/cgroup/cpu/cpu.cfs_quota_us")
        period = text_of(root / "sys/fs/cgroup/cpu/cpu.cfs_period_us")
    allowed, of = _number(limit), _number(period)
    return allowed / of if allowed and of and allowed > 0 else None


def _memory(root: Path) -> int:
    match = re.search(r"MemTotal:\s*(\d+) kB", text_of(root / "proc/meminfo"))
    total = int(match[1]) * 1024 if match else 0
    if not match:
        with suppress(ValueError, OSError, AttributeError):
            total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        allowed = _whole(text_of(root / "sys/fs/cgroup" / name))
        total = min(total, allowed) if allowed else total
    return total


def _hypervisor(root: Path, flags: str) -> str:
    if "hypervisor" not in flags.split():
        return ""
    product = text_of(root / "sys/class/dmi/id/product_name")
    clock = text_of(root / "sys/devices/system/clocksource/clocksource0/available_clocksource")
    return next((word for word in ("kvm", "hyperv", "xen") if word in clock), product or "yes")


@final
class CpuArchitecture(Strict, frozen=True):
    """``[architecture.<name>]``; the comments of the file define the numbers."""

    vendor: str
    models: list[tuple[int, int, int]]
    fma_bits: int
    boost_mhz: float
    max_mhz: float
    channels: int
    mt_per_s: float
    technology: str
    core_gb_per_s: float
    source: str
    cache_link_gb_per_s: float = 0.0

    @property
    def memory_gb_per_s(self) -> float:
        """Bandwidth of the usual memory of one socket; a channel is 8 bytes wide."""
        return self.channels * self.mt_per_s * 8e-3


class _CpuFile(Strict, frozen=True):
    architecture: dict[str, CpuArchitecture]


@cache
def cpu_architectures() -> dict[str, CpuArchitecture]:
    """All architectures by name; "unknown" stands for any other.

    Raises:
        SilicastError: a file of the user's own folder is invalid.
    """
    cpu_architectures: dict[str, CpuArchitecture] = {}
    for path in catalog_files("architectures", ".toml"):
        cpu_architectures |= read_table(
            path, _CpuFile, "docs/how-to/measure-a-machine.md"
        ).architecture
    return cpu_architectures


def architecture_of(facts: CpuFacts) -> tuple[str, CpuArchitecture]:
    """Name and description of a processor's architecture, by its family and model."""
    architectures = cpu_architectures()
    for name, architecture in architectures.items():
        if architecture.vendor == facts.vendor_name and any(
            facts.family == family and low <= facts.model <= high
            for family, low, high in architecture.models
        ):
            return name, architecture
    return UNKNOWN, architectures[UNKNOWN]


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
        for level, reported in caches.items():
            if level not in (1, 2, 3):
                continue
            name = f"l{level}"
            shared = reported.cores > 1 or level == 3
            clock = {1: wide, 2: 64, 3: L3_BYTES_PER_CLOCK * facts.cores}[level]
            memory[name] = {
                "scope": "device" if shared else "core",
                "capacity_kib": reported.bytes * (reported.instances if shared else 1) / 1024,
                "bandwidth_bytes_per_clock": clock * facts.cores if shared and level < 3 else clock,
            }
            self.sources[f"memory.{name}.capacity"] = (
                f"{REPORTED}: {reported.instances} of them"
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
