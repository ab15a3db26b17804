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
        stated = {"base_mhz": self.base_mhz, "max_mhz": self.max_mhz, "cpu_quota": self.quota}
        table |= {name: value for name, value in stated.items() if value is not None}
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
    current = [block for block in blocks if block.get("processor") == str(cpu)]
    return (current or [block for block in blocks if block] or [{}])[0]


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
    items = [_number(text_of(_cpu(root, cpu) / "cpufreq" / name)) for cpu in used]
    return max((khz * 1e-3 for khz in items if khz), default=None)


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
    known = cpu_architectures()
    for name, architecture in known.items():
        if architecture.vendor == facts.vendor_name and any(
            facts.family == family and low <= facts.model <= high
            for family, low, high in architecture.models
        ):
            return name, architecture
    return UNKNOWN, known[UNKNOWN]
