"""Thread blocks of many configurations on one device: what they hold and how many fit a core.

Arrays have the shape (configurations,). Registers are an estimate: accumulators, operands of one
instruction and addresses; what a compiler needs beyond that is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from silicast.core.dtypes import BITS, Recipe
from silicast.core.errors import unsupported
from silicast.core.numerics import F64
from silicast.hardware.device import Device
from silicast.kernels.configuration import Configuration, kinds
from silicast.kernels.physics.device_rates import CoreLimits, core_limits

OTHER_REGISTERS = 40.0
"""Addresses, masks and counters of a thread."""
ROWS_OF_WGMMA = 64.0
"""Rows that a group of four warps multiplies at once; smaller tiles use mma.sync there too."""
LARGE_TILE = 128 * 128
DEPTH_OF_FRAGMENT_BYTES = 32.0
"""Of k, what one mma.sync instruction takes."""


@final
@dataclass(frozen=True)
class TileColumns:
    """Configurations of tiled products as columns.

    Attributes:
        m, n, k: of a block's tile; group: rows of tiles that are gone through together.
        warps, stages, split: of a block, of its pipeline, of k.
        cluster: blocks that share operands by multicast.
        persistent: blocks that stay on their core and take tile after tile.
    """

    m: F64
    n: F64
    k: F64
    group: F64
    warps: F64
    stages: F64
    split: F64
    cluster: F64
    persistent: F64

    def __len__(self) -> int:
        return len(self.m)

    def take(self, rows: NDArray[np.int64]) -> TileColumns:
        return TileColumns(**{name: values[rows] for name, values in vars(self).items()})


def tiles_of(configurations: Sequence[Configuration]) -> TileColumns:
    """Columns of configurations of the kinds that GPUs run."""
    rows = [list(_row(configuration)) for configuration in configurations]
    columns = np.array(rows, dtype=np.float64).reshape(-1, 9).T.copy()
    return TileColumns(*columns)


def _row(configuration: Configuration) -> Iterator[float]:
    """A row of :class:`TileColumns`; what a kind leaves to its library is taken as libraries
    usually choose it.
    """
    m, n = configuration.number("tile_m"), configuration.number("tile_n")
    kind = kinds()[configuration.kind]
    large = m * n >= LARGE_TILE and "large_warps" in kind.assumes
    yield m
    yield n
    yield configuration.number("tile_k", configuration.number("depth_u", 32))
    yield configuration.number("group_m", kind.assumes.get("group_m", 1))
    yield configuration.number("warps", kind.assumes.get("large_warps" if large else "warps", 4))
    yield configuration.number("stages", kind.assumes.get("stages", 3))
    yield configuration.number("split_k")
    yield configuration.number("cluster_m") * configuration.number("cluster_n")
    yield configuration.word("schedule") in kind.words_persistent


@final
@dataclass(frozen=True)
class TileBlocks:
    """What blocks of each configuration hold.

    Attributes:
        step_bytes: operands of one step of the main loop.
        shared_bytes, registers: of a block, and of one of its threads; threads: of a block.
        resident: blocks that one core holds at a time, at least 1.
        spilled: registers of a thread beyond the largest allowed number, over that number.
        wide: the instruction reads its operands from shared memory (wgmma, UMMA).
        warp_m, warp_n: warps along rows and columns of the tile.
    """

    step_bytes: F64
    shared_bytes: F64
    registers: F64
    threads: F64
    resident: F64
    spilled: F64
    wide: NDArray[np.bool_]
    warp_m: F64
    warp_n: F64


def blocks_of(tiles: TileColumns, device: Device, recipe: Recipe) -> TileBlocks:
    """Blocks on a device.

    Args:
        recipe: formats of the operands.

    Raises:
        SilicastError: thread blocks of the device's architecture are not modelled.
    """
    limits = core_limits(device)
    a_bytes, b_bytes = BITS[recipe.activations] / 8.0, BITS[recipe.weights] / 8.0
    step = (tiles.m * a_bytes + tiles.n * b_bytes) * tiles.k
    bulk = limits.instruction in ("wgmma", "umma")
    wide = np.full(len(tiles), bulk) & (tiles.m >= ROWS_OF_WGMMA)
    buffers = tiles.stages if limits.buffers == "all" else tiles.stages - 1.0
    warp_m, warp_n = _warps(tiles)
    threads = limits.warp * tiles.warps
    accumulators = tiles.m * tiles.n / threads
    if limits.instruction == "umma":  # they lie in tensor memory
        accumulators = np.where(wide, accumulators * 0.25, accumulators)
    fragments = (tiles.m / warp_m + tiles.n / warp_n) * (
        DEPTH_OF_FRAGMENT_BYTES / 4.0 / limits.warp
    )
    registers = accumulators + np.where(wide, 0.0, fragments) + OTHER_REGISTERS
    shared = np.maximum(step * np.maximum(buffers, 1.0), 0.0)
    held = np.minimum(np.ceil(registers / 8.0) * 8.0, float(limits.thread_registers))
    resident = np.minimum(
        np.floor(device.memory["smem"].capacity_bytes / (shared + limits.reserved_bytes + 1.0)),
        np.floor(limits.registers / (held * threads)),
    )
    resident = np.minimum(resident, np.floor(limits.threads / threads))
    over = np.maximum(registers - limits.thread_registers, 0.0) / limits.thread_registers
    return TileBlocks(
        step_bytes=step,
        shared_bytes=shared,
        registers=registers,
        threads=threads,
        resident=np.maximum(np.minimum(resident, float(limits.blocks)), 1.0),
        spilled=over,
        wide=wide,
        warp_m=warp_m,
        warp_n=warp_n,
    )


def _warps(tiles: TileColumns) -> tuple[F64, F64]:
    """Warps along rows and columns: the split whose warps read the fewest operands, none with less
    than 16 rows or 8 columns.
    """
    best = np.full(len(tiles), np.inf)
    rows, columns = np.ones(len(tiles)), np.maximum(tiles.warps, 1.0)
    for along in (1.0, 2.0, 4.0, 8.0, 16.0):
        across = tiles.warps / along
        fits = (tiles.m >= 16.0 * along) & (tiles.n >= 8.0 * across) & (across >= 1.0)
        cost = np.where(fits, tiles.m / along + tiles.n / across, np.inf)
        better = cost < best
        best = np.where(better, cost, best)
        rows, columns = np.where(better, along, rows), np.where(better, across, columns)
    return rows, columns


def is_legal(tiles: TileColumns, device: Device, recipe: Recipe) -> NDArray[np.bool_]:
    """Which configurations a device can run: none needs more than a core has.

    Registers are an estimate, so that only accumulators that no thread could hold count.
    """
    limits, blocks = core_limits(device), blocks_of(tiles, device, recipe)
    room = device.memory["smem"].capacity_bytes - limits.reserved_bytes
    held = tiles.m * tiles.n / blocks.threads <= limits.thread_registers + 1.0
    if limits.instruction == "umma":
        held = held | blocks.wide
    legal: NDArray[np.bool_] = (
        (blocks.shared_bytes <= room) & held & (blocks.threads <= min(limits.threads, 1024))
    )
    return legal


def check_legal(configuration: Configuration, device: Device, recipe: Recipe) -> None:
    """Refuses what a device cannot run.

    Raises:
        SilicastError: shared memory, registers or threads do not suffice; by how much.
    """
    for resource, needed, allowed in excesses(configuration, device, recipe):
        raise unsupported(
            f"{configuration.label} needs {needed:,.0f} {resource} on {device.name}, which has "
            f"{allowed:,.0f}: {needed - allowed:,.0f} too many",
            "configuration",
            "take fewer stages or a smaller tile",
        )


def excesses(
    configuration: Configuration, device: Device, recipe: Recipe
) -> Iterator[tuple[str, float, float]]:
    """What a configuration needs more of than there is: name, needed, there."""
    limits: CoreLimits = core_limits(device)
    tiles = tiles_of([configuration])
    blocks = blocks_of(tiles, device, recipe)
    room = device.memory["smem"].capacity_bytes - limits.reserved_bytes
    needs = (
        ("bytes of shared memory", float(blocks.shared_bytes[0]), room),
        ("threads", float(blocks.threads[0]), float(min(limits.threads, 1024))),
        (
            "registers a thread for accumulators",
            0.0
            if limits.instruction == "umma" and blocks.wide[0]
            else float(tiles.m[0] * tiles.n[0] / blocks.threads[0]),
            limits.thread_registers + 1.0,
        ),
    )
    for resource, needed, there in needs:
        if needed > there:
            yield resource, needed, there
