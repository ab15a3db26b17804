from __future__ import annotations

from pathlib import Path

import pytest

from silicast.measurement.machine.cpu_facts import Cache, CpuFacts, read_cpu

BLOCK = """processor\t: {cpu}
vendor_id\t: {vendor}
cpu family\t: {family}
model\t\t: {model}
model name\t: {name}
stepping\t: 1
cpu MHz\t\t: 2445.432
flags\t\t: {flags}
"""


def system(
    root: Path, *, cpus: int = 4, threads_per_core: int = 2, sockets: int = 1,
    vendor: str = "AuthenticAMD", family: int = 25, model: int = 1, name: str = "AMD EPYC",
    flags: str = "fma avx2 sse2 hypervisor", l3: str = "0-3",
) -> Path:  # fmt: skip
    """A /proc and /sys as Linux has them."""
    blocks = [
        BLOCK.format(cpu=cpu, vendor=vendor, family=family, model=model, name=name, flags=flags)
        for cpu in range(cpus)
    ]
    put(root, "proc/cpuinfo", "\n".join(blocks))
    put(root, "proc/meminfo", "MemTotal:       16000000 kB\nMemFree: 5 kB\n")
    put(root, "proc/loadavg", "1.25 1.0 0.9 1/99 1234\n")
    for cpu in range(cpus):
        core = cpu // threads_per_core
        first = core * threads_per_core
        location = f"sys/devices/system/cpu/cpu{cpu}"
        siblings = ",".join(str(first + each) for each in range(threads_per_core))
        put(root, f"{location}/topology/physical_package_id", str(cpu * sockets // cpus))
        put(root, f"{location}/topology/core_id", str(core))
        put(root, f"{location}/topology/thread_siblings_list", siblings)
        caches = (("1", "Data", "32K", siblings), ("1", "Instruction", "64K", siblings),
                  ("2", "Unified", "512K", siblings), ("3", "Unified", "32768K", l3))  # fmt: skip
        for index, (level, kind, size, shared) in enumerate(caches):
            cache = f"{location}/cache/index{index}"
            for key, value in (("level", level), ("type", kind), ("size", size),
                               ("shared_cpu_list", shared)):  # fmt: skip
                put(root, f"{cache}/{key}", value)
        put(root, f"sys/devices/system/node/node{cpu * sockets // cpus}/cpu{cpu}/online", "1")
    return root


def put(root: Path, location: str, text: str) -> None:
    path = root / location
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def test_reads_a_virtual_machine(tmp_path: Path) -> None:
    facts = read_cpu(system(tmp_path), range(4))
    assert (facts.name, facts.vendor, facts.family, facts.model) == (
        "AMD EPYC", "AuthenticAMD", 25, 1,
    )  # fmt: skip
    assert (facts.cores, facts.logical, facts.sockets, facts.nodes) == (2, 4, 1, 1)
    assert facts.caches == {
        1: Cache(1, 32 << 10, 2, 1),
        2: Cache(2, 512 << 10, 2, 1),
        3: Cache(3, 32 << 20, 1, 2),
    }
    assert facts.memory_bytes == 16_000_000 * 1024
    assert (facts.now_mhz, facts.base_mhz, facts.max_mhz) == (2445.432, None, None)
    assert facts.hypervisor
    assert facts.vector_bits == 256
    assert facts.table()["instructions"] == ["avx2", "fma"]


def test_two_sockets_count_all_their_cores(tmp_path: Path) -> None:
    facts = read_cpu(system(tmp_path, cpus=8, threads_per_core=1, sockets=2), range(8))
    assert (facts.cores, facts.sockets, facts.nodes) == (8, 2, 2)


def test_only_the_processors_that_may_be_used_count(tmp_path: Path) -> None:
    facts = read_cpu(system(tmp_path, cpus=8, threads_per_core=2), {2, 3})
    assert (facts.cores, facts.logical) == (1, 2)
    assert facts.caches[2].instances == 1


def test_clocks_and_governor_of_bare_metal(tmp_path: Path) -> None:
    system(tmp_path, flags="fma avx2 avx512f")
    for name, value in (("cpuinfo_max_freq", "3500000"), ("base_frequency", "2000000"),
                        ("scaling_governor", "powersave")):  # fmt: skip
        put(tmp_path, f"sys/devices/system/cpu/cpu0/cpufreq/{name}", value)
    facts = read_cpu(tmp_path, range(4))
    assert (facts.base_mhz, facts.max_mhz, facts.governor) == (2000.0, 3500.0, "powersave")
    assert facts.hypervisor == ""
    assert facts.vector_bits == 512


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"cpu.max": "150000 100000"}, 1.5),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"}, 0.5),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({}, None),
    ],
)
def test_control_groups_limit_processors(
    tmp_path: Path, files: dict[str, str], quota: float | None
) -> None:
    system(tmp_path)
    for name, text in files.items():
        put(tmp_path, f"sys/fs/cgroup/{name}", text)
    assert read_cpu(tmp_path, range(4)).quota == quota


def test_control_groups_limit_memory(tmp_path: Path) -> None:
    put(system(tmp_path), "sys/fs/cgroup/memory.max", str(1 << 30))
    assert read_cpu(tmp_path, range(4)).memory_bytes == 1 << 30


def test_a_system_that_tells_nothing(tmp_path: Path) -> None:
    facts = read_cpu(tmp_path, range(2))
    assert isinstance(facts, CpuFacts)
    assert (facts.cores, facts.sockets, facts.caches) == (2, 1, {})


def test_reads_this_machine() -> None:
    facts = read_cpu()
    assert facts.cores >= 1
    assert facts.memory_bytes > 0
