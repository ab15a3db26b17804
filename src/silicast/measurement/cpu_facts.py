"""What Linux says of the processor: /proc/cpuinfo and /sys, as lscpu reads them."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

_SIZE = re.compile(r"(\d+)\s*([KMG]?)")
_UNIT = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_ARM_VENDOR = {"0x41": "ARM", "0xc0": "Ampere", "0x61": "Apple"}


@final
@dataclass(frozen=True)
class Cache:
    """The caches of one level that the cores of this process have.

    Attributes:
        bytes: capacity of one of them; instances: how many; cores: cores that share one.
    """

    level: int
    bytes: int
    instances: int
    cores: int


@final
@dataclass(frozen=True)
class CpuFacts:
    """A processor, as far as the system tells.

    Attributes:
        name: model name as reported ("AMD EPYC", "Intel(R) Xeon(R) Platinum 8480+"), or "".
        vendor: "AuthenticAMD", "GenuineIntel", "ARM" or "".
        family, model, stepping: of x86; for ARM the part is the model. 0 = not told.
        cores: physical cores that this process may use; logical: hardware threads of them.
        sockets, nodes: packages and NUMA nodes that those cores are on.
        quota: processors that a control group allows, None = no limit.
        now_mhz: clock that was read; base_mhz, max_mhz: as the driver of clocks tells; None where
            there is none, as in most virtual machines.
        governor: policy of the clock driver, or "".
        memory_bytes: of the machine, or what a control group allows of it.
        hypervisor: "" on bare metal, else what is known of it ("kvm", "yes").
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
        """Width of the widest vector instructions that it has."""
        for flag, bits in (("avx512f", 512), ("avx2", 256), ("avx", 256), ("sse2", 128)):
            if flag in self.flags:
                return bits
        return 128

    def table(self) -> dict[str, object]:
        """What a session records of it."""
        wanted = ("avx2", "fma", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "avx512_fp16",
                  "amx_tile", "amx_bf16", "amx_int8", "amx_fp16", "asimd", "asimddp", "sve", "bf16",
                  "i8mm")  # fmt: skip
        found: dict[str, object] = {
            "cpu": self.name, "vendor": self.vendor, "family": self.family, "model": self.model,
            "stepping": self.stepping, "isa": self.isa, "cores": self.cores,
            "hardware_threads": self.logical, "sockets": self.sockets, "numa_nodes": self.nodes,
            "memory_bytes": self.memory_bytes, "hypervisor": self.hypervisor,
            "instructions": [flag for flag in wanted if flag in self.flags],
            "caches": {f"l{c.level}": {"bytes": c.bytes, "instances": c.instances}
                       for c in self.caches.values()},
        }  # fmt: skip
        stated = {"base_mhz": self.base_mhz, "max_mhz": self.max_mhz, "cpu_quota": self.quota}
        found |= {name: value for name, value in stated.items() if value is not None}
        if self.governor:
            found["governor"] = self.governor
        return found


def read_cpu(root: Path = Path("/"), cpus: Collection[int] | None = None) -> CpuFacts:
    """Facts of the processors that this process may use.

    Args:
        root: where proc and sys are.
        cpus: numbers of the processors; left out, those that the scheduler lets this process use.
    """
    used = sorted(cpus if cpus is not None else _allowed())
    told = _cpuinfo(root, used[0] if used else 0)
    places = [_place(root, cpu) for cpu in used]
    cores = {place for place in places if place} or set(enumerate(used))
    info = {key: told.get(key, "") for key in ("flags", "Features", "model name", "vendor_id")}
    base, top = _frequency(root, used, "base_frequency"), _frequency(root, used, "cpuinfo_max_freq")
    return CpuFacts(
        name=info["model name"] or ("" if told else platform.processor()),
        vendor=info["vendor_id"] or _ARM_VENDOR.get(told.get("CPU implementer", ""), ""),
        family=_whole(told.get("cpu family", "")),
        model=_whole(told.get("model", "") or told.get("CPU part", "")),
        stepping=_whole(told.get("stepping", "")),
        flags=frozenset((info["flags"] or info["Features"]).split()),
        cores=len(cores),
        logical=max(len(used), 1),
        sockets=len({package for package, _ in cores}) if any(places) else 1,
        nodes=max(1, _nodes(root, used)),
        quota=_quota(root),
        now_mhz=_number(told.get("cpu MHz", "")),
        base_mhz=base,
        max_mhz=top,
        governor=_text(_cpu(root, used[0] if used else 0).joinpath("cpufreq/scaling_governor")),
        caches=_caches(root, used, max(1, round(len(used) / len(cores)))),
        memory_bytes=_memory(root),
        hypervisor=_hypervisor(root, info["flags"]),
        isa=platform.machine(),
    )


def busy_cores(root: Path = Path("/")) -> float | None:
    """Load of the last minute, in processes that run or want to; None where it is not told."""
    return _number(_text(root.joinpath("proc/loadavg")).partition(" ")[0])


def _allowed() -> Collection[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return range(os.cpu_count() or 1)


def _text(path: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return path.read_text(encoding="utf-8").strip()
    return ""


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
    """The block of one processor; the first one where it has none of its own."""
    blocks: list[dict[str, str]] = []
    for text in _text(root / "proc/cpuinfo").split("\n\n"):
        parts = (line.partition(":") for line in text.splitlines())
        blocks.append({key.strip(): value.strip() for key, _, value in parts})
    own = [block for block in blocks if block.get("processor") == str(cpu)]
    return (own or [block for block in blocks if block] or [{}])[0]


def _place(root: Path, cpu: int) -> tuple[int, int] | None:
    """Package and core of a processor."""
    topology = _cpu(root, cpu) / "topology"
    package, core = _text(topology / "physical_package_id"), _text(topology / "core_id")
    if not package or not core:
        return None
    siblings = _text(topology / "thread_siblings_list")
    return _whole(package), _whole(re.split(r"[,-]", siblings)[0]) if siblings else _whole(core)


def _frequency(root: Path, used: list[int], name: str) -> float | None:
    """The largest of a clock over the processors, in MHz."""
    found = [_number(_text(_cpu(root, cpu) / "cpufreq" / name)) for cpu in used]
    return max((khz * 1e-3 for khz in found if khz), default=None)


def _caches(root: Path, used: list[int], threads_per_core: int) -> dict[int, Cache]:
    """Data and unified caches by level."""
    places: dict[int, dict[str, tuple[int, int]]] = {}
    for cpu in used:
        for index in sorted((_cpu(root, cpu) / "cache").glob("index*")):
            if _text(index / "type") == "Instruction":
                continue
            level, size = _whole(_text(index / "level")), _SIZE.match(_text(index / "size"))
            shared = _text(index / "shared_cpu_list")
            if level and size:
                total = int(size[1]) * _UNIT[size[2]]
                places.setdefault(level, {})[shared or str(cpu)] = total, _listed(shared)
    found = {}
    for level, instances in sorted(places.items()):
        capacity, sharers = max(instances.values())
        cores = max(1, sharers // threads_per_core)
        found[level] = Cache(level, capacity, len(instances), cores)
    return found


def _listed(text: str) -> int:
    """How many processors a list names.

    >>> _listed("0-3,8"), _listed("")
    (5, 1)
    """
    count = 0
    for part in text.split(",") if text else []:
        low, _, high = part.partition("-")
        count += _whole(high or low) - _whole(low) + 1
    return max(count, 1)


def _nodes(root: Path, used: list[int]) -> int:
    wanted = {f"cpu{cpu}" for cpu in used}
    nodes = root.joinpath("sys/devices/system/node").glob("node[0-9]*")
    return sum(any(node.joinpath(cpu).exists() for cpu in wanted) for node in nodes)


def _quota(root: Path) -> float | None:
    """Processors that the control group allows; the second version's file and the first's."""
    limit, _, period = _text(root / "sys/fs/cgroup/cpu.max").partition(" ")
    if not limit:
        limit = _text(root / "sys/fs/cgroup/cpu/cpu.cfs_quota_us")
        period = _text(root / "sys/fs/cgroup/cpu/cpu.cfs_period_us")
    allowed, of = _number(limit), _number(period)
    return allowed / of if allowed and of and allowed > 0 else None


def _memory(root: Path) -> int:
    found = re.search(r"MemTotal:\s*(\d+) kB", _text(root / "proc/meminfo"))
    total = int(found[1]) * 1024 if found else _pages()
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        allowed = _whole(_text(root / "sys/fs/cgroup" / name))
        total = min(total, allowed) if allowed else total
    return total


def _pages() -> int:
    """Memory by the C library, where there is no /proc."""
    with suppress(ValueError, OSError, AttributeError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return 0


def _hypervisor(root: Path, flags: str) -> str:
    product = _text(root / "sys/class/dmi/id/product_name")
    if "hypervisor" not in flags.split():
        return ""
    clock = _text(root / "sys/devices/system/clocksource/clocksource0/available_clocksource")
    return next((word for word in ("kvm", "hyperv", "xen") if word in clock), product or "yes")
