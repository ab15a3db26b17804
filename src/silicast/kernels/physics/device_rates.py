"""Rates of a device that several kernel models need, and what its cores hold.

Rates are of main memory, of the shared cache and of the softmax. What one core holds for the thread
blocks that share it are facts of instruction sets, ``catalog/core_limits.toml``; shared memory
stands in the device files.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any, Literal, NamedTuple, final

from msgspec import convert

from silicast.core.catalog import CATALOG
from silicast.core.decode import Strict, read_toml
from silicast.core.errors import SilicastError, unmodelled
from silicast.hardware.device import Device
from silicast.kernels.physics.constants import load_physics

EXPONENTIAL_FMAS = 8
"""Multiply-adds of an exponential without a unit for it: range reduction and a polynomial of
degree 5 (Muller, Elementary Functions, section 5; FlashAttention-4 does so beside the unit)."""


@lru_cache(maxsize=1024)
def data_rate(device: Device) -> float:
    """Bytes of data per second that main memory could deliver: the datasheet's bandwidth, which
    bounds use, less inline error correction.

    Boards with GDDR5 or GDDR6 and error correction keep the correction words among the data, so
    each transfer brings some along (lab/fit_data_rate.py measures how many).
    """
    rate = device.dram.bandwidth_bytes_per_s
    if not device.dram.inline_ecc:
        return rate
    return rate * load_physics("data_rate").default["inline_ecc_share"]


@lru_cache(maxsize=1024)
def cache_rate(device: Device) -> float:
    """Bytes per second of the cache that all cores share; where no bandwidth is published, what
    matrix products assume per clock and core (the device's unknowns widen the interval).
    """
    stated = device.l2.bandwidth_bytes_per_s
    assumed = load_physics("gemm").default["l2_bytes_per_clock_per_core"]
    return stated or assumed * device.cores * device.clocks.boost_hz


@final
class ClockedRates(NamedTuple):
    """What the clock of a device changes of its rates, as numbers; of rows with a clock each, as
    columns of shape (n,).

    Attributes:
        clock_hz: of the cores; cache_per_s: see :func:`cache_rate`.
        l2_per_s: bytes per second of the cache that all cores share; 0 = not published.
    """

    clock_hz: Any
    cache_per_s: Any
    l2_per_s: Any

    @staticmethod
    def from_device(device: Device) -> ClockedRates:
        return ClockedRates(
            device.clocks.boost_hz, cache_rate(device), device.l2.bandwidth_bytes_per_s
        )


@lru_cache(maxsize=1024)
def softmax_rates(device: Device) -> tuple[float, float]:
    """Exponentials and floating-point operations per clock and core.

    Arithmetic is done in fp32, on cores without it in the format that they have. Where no unit
    for exponentials is stated they are made of multiply-adds, two operations each.

    Raises:
        SilicastError: the device states no arithmetic pipe at all.
    """
    fma = device.rate_per_core("fma", "fp32")
    if fma <= 0.0:
        pipe = device.core.pipes.get("fma")
        fma = max(pipe.rate.values(), default=0.0) if pipe else 0.0
    if fma <= 0.0:
        raise SilicastError(
            f"{device.name} states no rate of its arithmetic pipe",
            field="device.compute.pipes.fma",
            hint="state fp32 operations per clock and core: softmax needs them",
        )
    exponentials = device.rate_per_core("xu", "fp32")
    return exponentials or fma / (2.0 * EXPONENTIAL_FMAS), fma


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
