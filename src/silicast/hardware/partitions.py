"""One device shared by several engines: its parts, and what is known of sharing it in time.

A part has some of a device's cores and some of its memory: a profile of MIG has both, clients of
MPS with a limit on active threads have some of the cores and all of the memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import final

from silicast.core.catalog import CATALOG
from silicast.core.decode import Strict, read_table
from silicast.core.errors import SilicastError, unsupported
from silicast.hardware.device import Device

COMPUTE_SLICES, MEMORY_SLICES = 7, 8
GIB, KIB = float(1 << 30), 1024


@final
class Profile(Strict, frozen=True):
    """A part of a board that hardware keeps apart.

    Attributes:
        compute: slices of computing, of 7; ``memory``: of memory, its bandwidth and L2, of 8.
        cores: multiprocessors; gib: memory that it shows.
    """

    name: str
    compute: int
    cores: int
    memory: int
    gib: float


@final
class TimeSlices(Strict, frozen=True):
    """Sharing in time.

    Attributes:
        slice_us: how long one runs before the next.
        register_kib: of a core; a switch saves and restores them with the shared memory.
        log_sd: judged error of a step beside others.
    """

    slice_us: float
    register_kib: float
    log_sd: float

    def switch_s(self, device: Device) -> float:
        """What a switch takes: registers and shared memory go to main memory, and others' come."""
        smem = device.memory.get("smem")
        held = self.register_kib * KIB + (smem.capacity_bytes if smem is not None else 0.0)
        return 2.0 * device.cores * held / device.dram.bandwidth_bytes_per_s


@final
class Judged(Strict, frozen=True):
    """Judged error of a step in a mode; ``on``: where there is the mode, () = anywhere."""

    log_sd: float
    on: tuple[str, ...] = ()


@final
class BoardProfiles(Strict, frozen=True):
    """Profiles of some devices."""

    devices: list[str]
    parts: list[Profile]


@final
class PartitionFile(Strict, frozen=True):
    """A file of ``catalog/partitions``."""

    time_slice: TimeSlices
    mps: Judged
    mig: Judged
    boards: dict[str, BoardProfiles]
    sources: dict[str, str]


@cache
def sharing() -> PartitionFile:
    """What is known of sharing a device."""
    path = CATALOG / "partitions" / "nvidia.toml"
    return read_table(path, PartitionFile, "docs/explanation/colocation.md")


def profiles_of(device: Device) -> Sequence[Profile]:
    """The parts into which hardware divides a device.

    Raises:
        SilicastError: the catalog knows of none.
    """
    for board in sharing().boards.values():
        if device.name in board.devices:
            return board.parts
    board_names = sorted(name for board in sharing().boards.values() for name in board.devices)
    raise unsupported(
        f"no hardware partitions of {device.name} are known",
        "colocation.mode",
        f"time_slice or mps; known: {', '.join(board_names)}",
    )


def chosen_profiles(device: Device, shares: Sequence[float]) -> list[Profile]:
    """The profile of each share of a device, with the computing slices next to it.

    Raises:
        SilicastError: the device has no partitions, or these do not fit together.

    >>> from silicast.hardware.catalog import find_device
    >>> [each.name for each in chosen_profiles(find_device("H100"), [3 / 7, 4 / 7])]
    ['3g.40gb', '4g.40gb']
    """
    available = profiles_of(device)
    profiles = [
        min(available, key=lambda part: (abs(part.compute - share * COMPUTE_SLICES), part.memory))
        for share in shares
    ]
    compute, memory = (
        sum(part.compute for part in profiles),
        sum(part.memory for part in profiles),
    )
    if compute > COMPUTE_SLICES or memory > MEMORY_SLICES:
        raise SilicastError(
            f"{' + '.join(part.name for part in profiles)} take {compute} of {COMPUTE_SLICES} "
            f"slices of computing and {memory} of {MEMORY_SLICES} of memory",
            field="colocation.shares",
            hint=f"parts of {device.name}: {', '.join(part.name for part in available)}",
        )
    return profiles


def isolated(device: Device, profile: Profile) -> Device:
    """The device that a profile is: cores, memory, bandwidth, L2 and power of its own.

    >>> from silicast.hardware.catalog import find_device
    >>> half = isolated(find_device("H100"), profiles_of(find_device("H100"))[3])
    >>> half.name, half.cores, round(half.dram.bandwidth_bytes_per_s / 1e9)
    ('H100-SXM-80GB 3g.40gb', 60, 1676)
    """
    part = profile.memory / MEMORY_SLICES
    memory = {
        name: level
        if level.scope == "core"
        else replace(
            level,
            capacity_bytes=min(profile.gib * GIB, level.capacity_bytes)
            if name == "dram"
            else level.capacity_bytes * part,
            bandwidth_bytes_per_s=level.bandwidth_bytes_per_s * part,
            peak_bytes_per_s=level.peak_bytes_per_s * part,
        )
        for name, level in device.memory.items()
    }
    return replace(fewer_cores(device, profile.cores, profile.name), memory=memory)


def fewer_cores(device: Device, cores: int, called: str) -> Device:
    """The device with some of its cores and, of its power, as much; all of its memory.

    Args:
        called: what is added to the device's name.

    >>> from silicast.hardware.catalog import find_device
    >>> fewer_cores(find_device("H100"), 53, "40 %").cores
    53
    """
    if cores == device.cores:
        return device

    def power_w(whole: float | None) -> float | None:
        return None if whole is None else whole * cores / device.cores

    return replace(
        device.with_cores(cores),
        name=f"{device.name} {called}",
        power_cap_w=power_w(device.power_cap_w),
        idle_power_w=power_w(device.idle_power_w),
    )
