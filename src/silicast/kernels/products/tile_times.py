"""Analytic time of a tiled product under each of many configurations.

A block of the grid multiplies its tile step by step: operands come through the L2 into shared
memory in pipelined stages, warps read them from there into the matrix units. A core holds several
blocks, whose steps overlap; a device goes through the blocks in waves. Memory sees the weights of
each expert once for every group of rows that visits them, as far as the L2 does not keep them, and
gives its bandwidth only if enough bytes are in flight. docs/explanation/tuning.md has the terms.

Sizes of products and columns of configurations broadcast: one product and many configurations, or
many products and one configuration. All operations are elementwise and exact in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import final

import msgspec
import numpy as np

from silicast.core.catalog import CATALOG
from silicast.core.decode import Strict
from silicast.core.dtypes import BITS, Recipe
from silicast.core.numerics import F64, folded
from silicast.hardware.device import Device
from silicast.kernels.experts.routing import ExpertLoads
from silicast.kernels.physics.constants import PhysicsCard
from silicast.kernels.physics.device_rates import core_limits
from silicast.kernels.products.blocks import TileBlocks, TileColumns, blocks_of

SHARED_BYTES_PER_CLOCK = 128.0
"""32 banks of four bytes, on every architecture since 2012 (CUDA C++ Programming Guide)."""
GONE = 1.5
"""A call of so many times the capacity finds nothing of the call before."""
METADATA_SHARE = 0.125
"""Bytes of the places of kept values over those of the values, of 2:4 sparse operands of 16 bits:
two bits for each."""


@final
class TileConstants(Strict, frozen=True):
    """``catalog/tuning/tile_times.json``: constants of every architecture, and a card."""

    format: int
    card: PhysicsCard
    constants: dict[str, float]


@cache
def tile_constants() -> Mapping[str, float]:
    """The shipped constants."""
    content = (CATALOG / "tuning" / "tile_times.json").read_bytes()
    return msgspec.json.decode(content, type=TileConstants).constants


@final
@dataclass(frozen=True)
class Product:
    """A product of rows with a weight matrix, or of each expert's rows with its own.

    Attributes:
        loads: rows of each expert; of a plain product, one expert.
        columns, depth: of one weight matrix.
        sparse: weights are 2:4 sparse.
    """

    loads: ExpertLoads
    columns: float | F64
    depth: float | F64
    sparse: bool = False

    @staticmethod
    def plain(rows: float, columns: float, depth: float, batch: float = 1.0) -> Product:
        """One product, or ``batch`` alike ones."""
        loads = ExpertLoads(np.array([[float(rows)]]), np.array([[float(batch)]]))
        return Product(loads, columns, depth)

    def row_tiles(self, rows: F64) -> F64:
        """Tiles along the rows of all experts, for tiles of so many rows."""
        tokens = self.loads.tokens_each
        whole = np.minimum(np.ceil(tokens / rows), np.maximum(tokens, 1.0))
        return folded(np.where(tokens > 0.0, whole, 0.0) * self.loads.weight)


@final
@dataclass(frozen=True)
class TileSteps:
    """What does not depend on the product, arrays of shape (configurations,).

    Attributes:
        tiles, blocks: see there.
        tensor_s, operand_s: one step on the matrix units, and its operands from shared memory.
        fetch_s: its operands through the L2, at one core's share of the bandwidth.
        multiply_s: of both of the former; store_s: of a block's results.
        device, recipe: what they are for.
        cores, clock_hz, dram, l2, l2_bytes: of the device.
        peak: operations per second of the whole device.
    """

    tiles: TileColumns
    blocks: TileBlocks
    tensor_s: F64
    operand_s: F64
    fetch_s: F64
    multiply_s: F64
    store_s: F64
    device: Device
    recipe: Recipe
    cores: float
    clock_hz: float
    dram: float
    l2: float
    l2_bytes: float
    peak: float

    def take(self, tiles: TileColumns, constants: Mapping[str, float]) -> TileSteps:
        return steps_of(tiles, self.device, self.recipe, constants)


def steps_of(
    tiles: TileColumns,
    device: Device,
    recipe: Recipe,
    c: Mapping[str, float],
    *,
    sparse: bool = False,
) -> TileSteps:
    """Steps of configurations on a device.

    Args:
        c: constants.
        sparse: weights are 2:4 sparse, and the device multiplies those at twice the rate.

    Raises:
        SilicastError: the device does not multiply the format, or its blocks are not modelled.
    """
    limits, blocks = core_limits(device), blocks_of(tiles, device, recipe)
    pipe = device.matrix_pipe(recipe.compute)
    clock, cores = device.clocks.boost_hz, float(device.cores)
    rate = device.rate_per_core(pipe, recipe.compute) * clock * (2.0 if sparse else 1.0)
    share = np.full(len(tiles), c["tensor_efficiency"])
    if limits.instruction in ("wgmma", "umma"):
        share = np.where(blocks.wide, share, share * c["narrow_on_wide"])
    tensor = 2.0 * tiles.m * tiles.n * tiles.k / (rate * share)
    a_bytes, b_bytes = BITS[recipe.activations] / 8.0, BITS[recipe.weights] / 8.0
    by_warps = (tiles.n * blocks.warp_m * b_bytes + tiles.m * blocks.warp_n * a_bytes) * tiles.k
    groups = np.maximum(tiles.m / 64.0, 1.0)
    by_groups = (groups * tiles.n * b_bytes + tiles.m * a_bytes) * tiles.k
    read = np.where(blocks.wide, by_groups, by_warps) + blocks.step_bytes
    operand = read / (SHARED_BYTES_PER_CLOCK * clock)
    multiply = np.maximum(tensor, operand) + c["operand_exposed"] * np.minimum(tensor, operand)
    if recipe.widens:
        multiply = multiply + tiles.n * tiles.k / (c["widened_per_clock"] * clock)
    multiply = multiply * (1.0 + c["spill_cost"] * blocks.spilled)
    l2 = device.l2.bandwidth_bytes_per_s or c["l2_bytes_per_clock"] * cores * clock
    fetched = 0.5 + 0.5 / tiles.cluster
    return TileSteps(
        tiles=tiles, blocks=blocks, tensor_s=tensor, operand_s=operand,
        fetch_s=blocks.step_bytes * fetched / (l2 / cores * c["l2_efficiency"]),
        multiply_s=multiply,
        store_s=tiles.m * tiles.n * (BITS[recipe.output] / 8.0)
        / (c["store_bytes_per_clock"] * clock),
        device=device, recipe=recipe, cores=cores, clock_hz=clock,
        dram=device.dram.bandwidth_bytes_per_s, l2=l2, l2_bytes=device.l2.capacity_bytes,
        peak=rate * cores,
    )  # fmt: skip


@final
@dataclass(frozen=True)
class TileTimes:
    """Times of a product under each configuration and what they come from; seconds.

    Attributes:
        time_s: of the kernel.
        core_s: of the busiest core; even_s: were all cores busy alike.
        memory_s, l2_s: of the bytes that pass each.
        multiply_s: of the matrix units were all cores busy alike; waves: rounds of blocks.
        blocks, share: of the grid, and of one core.
        steps: of the main loop; row_tiles, column_tiles: of the grid.
        visits: of each expert's weights, over one; window: operands of one group over the L2.
        flight: bytes on their way at a time over those that keep memory busy.
        chain_s: of one block's steps were it alone.
        padded_rows, padded_columns: sizes with padding over those without.
        ideal_multiply_s, ideal_memory_s: useful operations at peak, weights in use once at peak.
        launch_s: of an empty kernel.
    """

    time_s: F64
    core_s: F64
    even_s: F64
    memory_s: F64
    l2_s: F64
    multiply_s: F64
    waves: F64
    blocks: F64
    share: F64
    steps: F64
    row_tiles: F64
    column_tiles: F64
    visits: F64
    window: F64
    flight: F64
    chain_s: F64
    padded_rows: F64
    padded_columns: F64
    ideal_multiply_s: F64
    ideal_memory_s: F64
    launch_s: float


def tile_times(product: Product, step: TileSteps, c: Mapping[str, float]) -> TileTimes:
    """Times of one product under each configuration (or of many products under one)."""
    tiles, held = step.tiles, step.blocks
    rows, hit = product.loads.tokens(), np.maximum(product.loads.experts_hit(), 1.0)
    row_tiles = np.maximum(product.row_tiles(tiles.m), 1.0)
    column_tiles = np.ceil(product.columns / tiles.n)
    steps = np.ceil(product.depth / (tiles.k * tiles.split))
    blocks = row_tiles * column_tiles * tiles.split
    share = blocks / step.cores
    core_s, even_s = _core_s(share, steps, step, c)
    memory_s, visits, window, flight = _memory(product, row_tiles, column_tiles, share, step, c)
    l2_s = blocks * steps * step.fetch_s / step.cores
    split = tiles.split > 1.0
    if split.any():  # partial sums are added up through the L2
        partial = np.where(split, (tiles.split + 1.0) * rows * product.columns * 4.0, 0.0)
        l2_s = l2_s + partial / (step.l2 * c["l2_efficiency"])
    high = np.maximum(np.maximum(core_s, memory_s), l2_s)
    squares = core_s * core_s + memory_s * memory_s + l2_s * l2_s - high * high
    launch = c["launch_s"]
    time = high + c["overlap_loss"] * squares / high + launch
    time = time + c["start_s"] * c["ramp"] * np.minimum(share, 1.0)
    useful = 2.0 * rows * product.columns * product.depth
    weights = hit * product.columns * product.depth * (BITS[step.recipe.weights] / 8.0)
    return TileTimes(
        time_s=time, core_s=core_s, even_s=even_s, memory_s=memory_s, l2_s=l2_s,
        multiply_s=blocks * steps * step.multiply_s / step.cores,
        waves=share / held.resident, blocks=blocks, share=share, steps=steps,
        row_tiles=row_tiles, column_tiles=column_tiles, visits=visits, window=window,
        flight=flight,
        chain_s=steps * (c["latency_s"] + step.multiply_s) / np.maximum(tiles.stages - 1.0, 1.0),
        padded_rows=row_tiles * tiles.m / rows,
        padded_columns=column_tiles * tiles.n / product.columns,
        ideal_multiply_s=useful / step.peak + 0.0 * share,
        ideal_memory_s=weights / step.dram + 0.0 * share, launch_s=launch,
    )  # fmt: skip


def _core_s(share: F64, steps: F64, step: TileSteps, c: Mapping[str, float]) -> tuple[F64, F64]:
    """Time of the busiest core: full rounds of the blocks that it holds, and a last one; and of
    every core, were all busy alike.
    """
    resident = step.blocks.resident
    whole = np.floor(share / resident + 1e-9)
    whole = np.where(share < 1.0, 0.0, whole)
    remaining = np.ceil(share - whole * resident - 1e-9)
    remaining = np.where(share < 1.0, 1.0, remaining)
    start = np.where(step.tiles.persistent > 0.0, 0.0, c["start_s"])
    round_s = steps * _together_s(resident, step, c) + start + step.store_s * resident
    last = np.maximum(remaining, 1.0)
    last_s = steps * _together_s(last, step, c) + c["start_s"] + step.store_s * last
    busiest: F64 = whole * round_s + np.where(remaining > 0.0, last_s, 0.0)
    even = np.where(whole > 0.0, share / resident * round_s, share / last * last_s)
    return busiest, even


def _together_s(count: F64, step: TileSteps, c: Mapping[str, float]) -> F64:
    """One step of each of ``count`` blocks on a core, whose waits hide behind each other's work."""
    issue = c["issue_clocks"] / step.clock_hz
    busy = np.maximum(step.multiply_s, step.fetch_s) * count
    ahead = np.maximum(step.tiles.stages - 1.0, 1.0)
    alone = (c["latency_s"] + step.multiply_s + issue) / ahead
    alone = np.maximum(alone, step.multiply_s + issue)
    together_s: F64 = np.maximum(busy, alone) + c["wait_exposed"] * np.minimum(busy, alone)
    return together_s


def _memory(
    product: Product,
    row_tiles: F64,
    column_tiles: F64,
    share: F64,
    step: TileSteps,
    c: Mapping[str, float],
) -> tuple[F64, F64, F64, F64]:
    """Time of main memory, visits of weights, a group's window and bytes in flight."""
    tiles, recipe = step.tiles, step.recipe
    rows, hit = product.loads.tokens(), np.maximum(product.loads.experts_hit(), 1.0)
    a_bytes, b_bytes = BITS[recipe.activations] / 8.0, recipe.weight_bits / 8.0
    if product.sparse:
        b_bytes = b_bytes * 0.5 * (1.0 + METADATA_SHARE)
    weight_bytes = product.columns * product.depth * b_bytes
    of_expert = np.maximum(row_tiles / hit, 1.0)
    groups = np.ceil(row_tiles / tiles.group)
    few = np.minimum(hit + groups, np.maximum(row_tiles, hit))
    touched = np.where(of_expert <= tiles.group, few, np.ceil(of_expert / tiles.group) * hit)
    touched = np.maximum(touched, hit)
    resident_bytes = step.l2_bytes * c["resident_share"]
    fits = np.minimum(resident_bytes / weight_bytes, 1.0)
    output_bytes = rows * product.columns * (BITS[recipe.output] / 8.0)
    operands = rows * product.depth * a_bytes
    resident = _resident(
        weight_bytes * hit + operands + output_bytes, step.l2_bytes * c["kept_share"]
    )
    weights = weight_bytes * (hit * (1.0 - resident) + (touched - hit) * (1.0 - fits))
    window = np.minimum(tiles.group, row_tiles) * tiles.m * product.depth * a_bytes
    again = 1.0 - np.minimum(resident_bytes / window, 1.0)
    operands = operands * (1.0 + (column_tiles - 1.0) * again * c["reread_share"])
    moved = weights + operands + output_bytes
    on_core = np.minimum(share, step.blocks.resident)
    ahead = np.maximum(tiles.stages - 1.0, 1.0) * step.blocks.step_bytes
    flight = on_core * step.cores * ahead / (step.dram * c["flight_s"])
    # the smaller of what flies and what memory gives, rounded off where they meet
    gives = c["dram_efficiency"]
    fourth = flight * flight * flight * flight + gives * gives * gives * gives
    rate = step.dram * flight * gives / np.sqrt(np.sqrt(fourth))
    return moved / rate, touched / hit, window / step.l2_bytes, flight


def _resident(footprint: F64, capacity: F64 | float) -> F64:
    """Share of the weights that the L2 still holds from the call before: all where a call fits,
    none where it is half as large again, for a cache that drops the oldest goes round once more.

    Tuners time a configuration by calls one after the other on the same weights.
    """
    resident_share: F64 = np.clip((GONE - footprint / capacity) / (GONE - 1.0), 0.0, 1.0)
    return resident_share
