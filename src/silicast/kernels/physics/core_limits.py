"""What one core of an architecture holds for the thread blocks that share it.

Facts of instruction sets, ``catalog/core_limits.toml``; shared memory stands in the device
files.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Literal, final

from msgspec import convert

from silicast.core.catalog import CATALOG
from silicast.core.decode import Strict, read_toml
from silicast.core.errors import unmodelled
from silicast.hardware.device import Device

FILE = CATALOG / "core_limits.toml"


@final
class CoreLimits(Strict, frozen=True):
    """Limits of one core.

    Attributes:
        threads, blocks: resident at a time; registers: of 32 bits, of all resident threads.
        thread_registers: most that one thread may have.
        reserved_bytes: shared memory that each block takes for the system.
        warp: threads that run together.
        buffers: of s pipelined stages, how many hold operands in shared memory at a time.
        instruction: what multiplies matrices.
        source: where the numbers are from.
        sparse_rate: of 2:4 sparse weights over dense ones.
    """

    threads: int
    blocks: int
    registers: int
    thread_registers: int
    reserved_bytes: int
    warp: int
    buffers: Literal["all", "all_but_one"]
    instruction: Literal["mma.sync", "wgmma", "umma", "mfma"]
    source: str
    sparse_rate: float = 1.0


@cache
def known_limits() -> Mapping[str, CoreLimits]:
    """Limits by architecture."""
    return convert(read_toml(FILE)["core"], dict[str, CoreLimits])


def core_limits(device: Device) -> CoreLimits:
    """Limits of a device's cores.

    Raises:
        SilicastError: thread blocks of its architecture are not modelled.

    >>> from silicast.hardware.catalog import find_device
    >>> core_limits(find_device("H20")).instruction
    'wgmma'
    """
    core_limits = known_limits().get(device.architecture)
    if core_limits is None:
        raise unmodelled(
            f"configurations of kernels on {device.name} ({device.architecture}) are not modelled",
            "device",
            f"known architectures: {', '.join(known_limits())}",
        )
    return core_limits
