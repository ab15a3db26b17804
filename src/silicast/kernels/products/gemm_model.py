"""Time of every candidate configuration of a matrix product, vectorised over candidates x rows.

All arrays here have the shape (candidates, rows); docs/explanation/gemm.md derives the terms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
from msgspec import Struct

from silicast.core import xp
from silicast.core.dtypes import BITS, Recipe
from silicast.core.numerics import F64
from silicast.hardware.device import Device
from silicast.kernels.physics.device_rates import data_rate
from silicast.kernels.physics.power import HEADROOM
from silicast.kernels.products.candidates import CandidateTiles
from silicast.kernels.products.gemm_constants import BATCHED, is_batched_call, widen_ops
from silicast.workload.graphs.op import Variant
from silicast.workload.libraries.catalog import ANY, library

ROWS_PER_CHUNK = 2048
"""Rows evaluated together: temporaries (12 candidates x 2048 x 8 B) stay in the core's cache."""

SPLIT_MIN_STEPS = 4.0
"""A split of k keeps at least so many main-loop steps, or its pipeline never fills."""

FOLD_L2_SHARE = 5.0
"""Partial sums go through L2 in wide bursts that overlap with the main loop's tail: they cost a
fifth of what they would alone."""

LEAST_MOVED = 2.0
"""Bytes that an element counts for on its way to the pipe, whatever its format: operands of 8 and 4
bits gain nothing there (H20 to H800, and bf16, fp8 and nvfp4 of one chip)."""

NOT_TAKEN = 1e6
"""Factor on the time of a kernel that does not take a product: its weight vanishes."""

COPIES = {"cold": (0.0, 0.0), "warm": (1.0, 1.0)}
"""Cache protocol -> copies of weights and activations that successive calls cycle through."""

BATCHED_COPIES = (1.0, 1.0)
"""The same for measurement campaigns of batched calls, which repeat one set of operands."""


@final
@dataclass(frozen=True)
class GemmRates:
    """What the model reads of a device, for one recipe; SI units.

    Attributes:
        core_rate: operations per second of one core in the recipe's compute format.
        cores: number of cores.
        clock_hz: of the cores.
        dram, l2: bandwidths in bytes per second.
        l2_bytes: capacity of the L2 cache.
        a_bytes, b_bytes, c_bytes: bytes per element of activations, weights and result.
        widen_s: seconds of one core to convert one weight in registers; 0 = the tensor cores take
            it as it is stored.
        weight_copies, activation_copies: buffers that successive calls cycle through; 0 = nothing
            is ever in L2.
    """

    core_rate: float
    cores: float
    clock_hz: float
    dram: float
    l2: float
    l2_bytes: float
    a_bytes: float
    b_bytes: float
    c_bytes: float
    widen_s: float
    weight_copies: float
    activation_copies: float

    @staticmethod
    def from_device(
        device: Device, recipe: Recipe, pipe: str, variant: Variant, c: Mapping[str, float]
    ) -> GemmRates:
        """The rates for ``recipe`` on ``device`` under the cache protocol of ``variant``."""
        weights, activations = COPIES.get(variant.cache) or _campaign_copies(variant)
        clock_hz = _held_hz(device, c)
        assumed_l2 = c["l2_bytes_per_clock_per_core"] * device.cores * clock_hz
        return GemmRates(
            core_rate=device.rate_per_core(pipe, recipe.compute) * clock_hz,
            cores=float(device.cores),
            clock_hz=clock_hz,
            dram=data_rate(device),
            l2=device.l2.bandwidth_bytes_per_s or assumed_l2,
            l2_bytes=device.l2.capacity_bytes,
            a_bytes=recipe.activation_bits / 8.0,
            b_bytes=recipe.weight_bits / 8.0,
            c_bytes=BITS[recipe.output] / 8.0,
            widen_s=_widen_s(device, recipe, pipe, c),
            weight_copies=weights,
            activation_copies=activations,
        )


def _held_hz(device: Device, c: Mapping[str, float]) -> float:
    """The clock of long products. Boards whose rated boost is below their largest clock (GeForce)
    run above it while heat and power allow: by ``headroom_share`` of the difference.
    """
    return device.clocks.with_headroom_hz(c.get(HEADROOM, 0.0))


def _campaign_copies(variant: Variant) -> tuple[float, float]:
    campaign_copies = library(variant.library).campaign_copies
    if is_batched_call(variant.kernel):
        return (
            campaign_copies
            if min(campaign_copies) > 1.0 and variant.kernel == BATCHED
            else BATCHED_COPIES
        )
    return campaign_copies if any(campaign_copies) else library(ANY).campaign_copies


def _widen_s(device: Device, recipe: Recipe, pipe: str, c: Mapping[str, float]) -> float:
    """Of one weight in one core: instructions over lanes of its vector units."""
    if not recipe.widens:
        return 0.0
    mixed = BITS[recipe.activations] < BITS[recipe.output]
    if mixed and device.rate_per_core(pipe, recipe.weights) > 0.0:
        return 0.0  # units for 4 bits multiply them with 8 (UMMA's f8f6f4)
    flops = device.rate_per_core("fma", "fp32") or device.rate_per_core("fma", recipe.compute)
    lanes = max(flops / 2.0, 1.0)  # an FMA counts 2
    operations = c["widen_ops"] if "widen_ops" in c else widen_ops(recipe)
    return operations / (lanes * _held_hz(device, c))


@final
@dataclass(frozen=True)
class GemmSteps:
    """What does not depend on the shape: one main-loop step of each tile, columns (candidates, 1).

    Attributes:
        depth: elements of k in one step.
        operations, tensor_s, bytes_s: of one step of one block: operations with padding, time on
            the matrix pipe with operands on their way, and time of its operands through L2 alone.
        alone_s: time of a step of a block that has its core to itself.
        slots: blocks that the device holds at once.
        store_s: time of one core to write one tile of the result.
        aspect: columns over rows of the tile.
        step_s, split_s: latency of a step and cost of splitting k: one for all, or columns.
        slow_dram, l2: achievable bandwidths.
    """

    depth: float | F64
    operations: F64
    tensor_s: F64
    bytes: F64
    alone_s: F64
    slots: F64
    store_s: F64
    aspect: F64
    slow_dram: float
    l2: float
    step_s: float | F64
    split_s: float | F64

    @staticmethod
    def from_rates(tiles: CandidateTiles, rates: GemmRates, c: Mapping[str, float]) -> GemmSteps:
        """Steps of all tiles. Operands on their way to the pipe overlap with it only in part."""
        depth = tiles.k_bytes / rates.a_bytes
        area = tiles.m * tiles.n
        operations = 2.0 * depth * area
        operands = (tiles.m * rates.a_bytes + tiles.n * rates.b_bytes) * depth
        moved = (
            tiles.m * max(rates.a_bytes, LEAST_MOVED) + tiles.n * max(rates.b_bytes, LEAST_MOVED)
        ) * depth
        efficiency, step_s, split_s = _own_constants(tiles, c)
        tensor_s = operations / (rates.core_rate * efficiency) + moved / (
            c["operand_bytes_per_clock"] * rates.clock_hz
        )
        if rates.widen_s > 0.0:
            tensor_s = tensor_s + tiles.n * (depth * rates.widen_s)
        return GemmSteps(
            depth=depth, operations=operations, tensor_s=tensor_s, bytes=operands * tiles.fetched,
            alone_s=np.maximum(step_s, tensor_s), slots=rates.cores * tiles.resident,
            store_s=area * (rates.c_bytes / (c["store_bytes_per_clock"] * rates.clock_hz)),
            aspect=tiles.n / tiles.m, slow_dram=rates.dram * c["dram_efficiency"],
            l2=rates.l2 * c["l2_efficiency"], step_s=step_s, split_s=split_s,
        )  # fmt: skip


def _own_constants(
    tiles: CandidateTiles, c: Mapping[str, float]
) -> tuple[float | F64, float | F64, float | F64]:
    """Efficiency, latency of a step, cost of a split; columns where some kernels are narrow."""
    plain = c["tensor_efficiency"], c["step_s"], c["split_s"]
    if tiles.narrow is None:
        return plain
    narrow = c["narrow_share"] * c["tensor_efficiency"], c["narrow_step_s"], c["narrow_split_s"]
    efficiency, step_s, split_s = (
        np.where(tiles.narrow > 0.0, x, y) for x, y in zip(narrow, plain, strict=True)
    )
    return efficiency, step_s, split_s


@final
class CandidateTimes(Struct, frozen=True):
    """What each candidate would do; arrays (candidates, rows), times in seconds.

    Attributes:
        time: the whole kernel at the rates's clock.
        blocks: thread blocks, splits of k counted.
        block_steps: main-loop steps of one block.
        per_core: blocks of the busiest core.
        tensor, l2, dram, chain: time each resource alone would need.
        dram_bytes: traffic of the whole device.
    """

    time: F64
    blocks: F64
    block_steps: F64
    per_core: F64
    tensor: F64
    l2: F64
    dram: F64
    chain: F64
    dram_bytes: F64


def evaluate(
    m: F64,
    n: F64,
    k: F64,
    batch: F64,
    tiles: CandidateTiles,
    steps: GemmSteps,
    rates: GemmRates,
    c: Mapping[str, float],
    chosen: CandidateTimes | None = None,
) -> CandidateTimes:
    """All candidates of rows of shape (1, rows), or of one row of numbers.

    Args:
        chosen: the same at the clock that libraries choose splits of k for; None = at this one.
    """
    grid_m = np.ceil(m / tiles.m)
    grid_n = np.ceil(n / tiles.n)
    deep: F64 = xp.ceil(k / steps.depth)
    blocks = grid_m * grid_n
    blocks *= batch
    if chosen is None:
        blocks, block_steps, folding = _split(blocks, deep, m * n * batch, steps, rates)
    else:
        folding = _folding(chosen.blocks / blocks, m * n * batch, steps, rates)
        blocks, block_steps = chosen.blocks, chosen.block_steps

    share = blocks / rates.cores
    per_core = np.maximum(share, 1.0)
    waves = np.maximum(blocks / steps.slots, 1.0)
    rounding = c["quantisation"]
    if rounding > 0.0:
        per_core += rounding * (np.ceil(share) - per_core)
        waves += rounding * (np.ceil(waves) - waves)

    tensor = per_core * block_steps
    tensor *= steps.tensor_s
    concurrent = np.minimum(blocks, steps.slots)
    if c["page_miss_share"] > 0.0:
        tensor *= _page_misses(m, n, k, concurrent, tiles, rates, c)
    chain = block_steps * steps.step_s
    chain += c["wave_s"]
    chain *= waves
    l2 = blocks * block_steps
    l2 *= steps.bytes / steps.l2
    dram_bytes = _dram_bytes(m, n, k, batch, grid_m, grid_n, concurrent, steps, rates, c)
    # a sliver of one more tile draws little: more columns never raise the rate in a leap
    rate = np.maximum(m / tiles.m, 1.0) * np.maximum(n / tiles.n, 1.0)
    rate *= blocks / (grid_m * grid_n)
    np.minimum(rate, rates.cores, out=rate)
    rate *= c["core_dram_bytes_per_s"]
    dram = dram_bytes / np.minimum(rate, steps.slow_dram)

    loss = c["overlap_loss"]
    core = np.maximum(tensor, chain)
    low = np.minimum(tensor, chain)
    low *= low
    low /= core
    low *= loss
    core += low
    core += _stored(per_core, steps.store_s, c.get("store_hidden", 0.0))
    time = _overlapped(core, l2, dram, loss)
    time += folding + (c["launch_s"] + c["fill_s"] + c["extra_s"])
    if tiles.most_side is not None and tiles.most_batch is not None:
        taken = (xp.minimum(m, n) <= tiles.most_side) & (batch <= tiles.most_batch)
        time = np.where(taken, time, time * NOT_TAKEN)
    if tiles.most_rows is not None:
        time = np.where(m <= tiles.most_rows, time, time * NOT_TAKEN)
    return CandidateTimes(time, blocks, block_steps, per_core, tensor, l2, dram, chain, dram_bytes)


def _split(
    blocks: F64, deep: F64, results: F64, steps: GemmSteps, rates: GemmRates
) -> tuple[F64, F64, F64]:
    """Blocks, their steps and the cost of adding up, with k split where blocks are too few.

    The cheapest number of splits in closed form: work / s + fold * s is least at sqrt(work / fold).
    """
    fold = _fold_s(results, rates)
    work = deep * steps.alone_s
    splits = work / fold
    splits += 0.25
    np.sqrt(splits, out=splits)
    splits += 0.5
    np.minimum(splits, deep / SPLIT_MIN_STEPS, out=splits)
    np.minimum(splits, steps.slots / blocks, out=splits)
    np.floor(splits, out=splits)
    if not (splits >= 2.0).any():
        return blocks, np.zeros(blocks.shape) + deep, fold * 0.0
    np.maximum(splits, 1.0, out=splits)
    folding = splits * fold
    folding = folding + steps.split_s
    gain = work - work / splits
    split = gain > folding
    splits = np.where(split, splits, 1.0)
    return blocks * splits, deep / splits, np.where(split, folding, 0.0)


def _fold_s(results: F64, rates: GemmRates) -> F64:
    """Time to add up the partial sums of one split."""
    return results * (8.0 / (rates.l2 * FOLD_L2_SHARE))


def _folding(splits: F64, results: F64, steps: GemmSteps, rates: GemmRates) -> F64:
    """The cost of adding up, of splits that are chosen."""
    folding: F64 = np.where(splits > 1.0, splits * _fold_s(results, rates) + steps.split_s, 0.0)
    return folding


def _stored(per_core: F64, store_s: F64, hidden: float) -> F64:
    """Time in which the busiest core writes its tiles: the last one's, and of those before as much
    as the next block's main loop does not hide.
    """
    exposed = per_core if hidden == 0.0 else 1.0 + (1.0 - hidden) * (per_core - 1.0)
    return exposed * store_s


def _page_misses(
    m: F64,
    n: F64,
    k: F64,
    concurrent: F64,
    tiles: CandidateTiles,
    rates: GemmRates,
    c: Mapping[str, float],
) -> F64:
    """Slow-down where the rows in use at once span more memory than address translation covers.

    Rows of k elements lie k apart: blocks side by side walk through all of them in step.
    """
    rows = np.minimum(2.0 * np.sqrt(concurrent * (tiles.m * tiles.n)), m + n)
    span = rows * k * rates.a_bytes
    return 1.0 + c["page_miss_share"] * np.maximum(1.0 - c["page_reach_bytes"] / span, 0.0)


def _overlapped(a: F64, b: F64, c: F64, loss: float) -> F64:
    """Overlapping resources: the largest, and ``loss`` times the others' squares over it."""
    high = np.maximum(a, b)
    np.maximum(high, c, out=high)
    total = a * a
    total += b * b
    total += c * c
    total /= high
    total *= loss
    high *= 1.0 - loss
    high += total
    return high


def _dram_bytes(
    m: F64,
    n: F64,
    k: F64,
    batch: F64,
    grid_m: F64,
    grid_n: F64,
    concurrent: F64,
    steps: GemmSteps,
    rates: GemmRates,
    c: Mapping[str, float],
) -> F64:
    """Bytes from and to DRAM: once each, re-reads of operands that outgrow L2, minus what stays."""
    a = m * k * batch * rates.a_bytes
    b = k * n * batch * rates.b_bytes
    out = m * n * batch * rates.c_bytes
    operands = a + b
    call = operands + out
    if rates.weight_copies == 0.0:
        once = call
    else:
        # A buffer stays in L2 if what is touched before its next use fits: one call's traffic for
        # a buffer that every call uses, the whole cycle for one of several copies.
        capacity = rates.l2_bytes * c["resident_share"]
        out_kept = stays_in_l2(capacity, call)
        again_after = call + (rates.weight_copies - 1.0) * b
        a_kept = out_kept
        if rates.activation_copies > 1.0:
            again_after = again_after + (rates.activation_copies - 1.0) * a
            a_kept = stays_in_l2(capacity, rates.activation_copies * call)
        b_kept = stays_in_l2(capacity, again_after)
        once = a * (1.0 - a_kept) + b * (1.0 - b_kept) + out * (1.0 - out_kept)
    missing = xp.maximum(1.0 - rates.l2_bytes * c["l2_share"] / operands, 0.0)
    if not xp.any_of(missing):
        return np.zeros(concurrent.shape) + once
    # A square raster of the blocks that run together reads each operand row once.
    down = np.sqrt(concurrent * steps.aspect)
    np.minimum(np.maximum(down, 1.0, out=down), grid_m, out=down)
    across = np.minimum(np.maximum(concurrent / down, 1.0), grid_n)
    down = np.minimum(np.maximum(concurrent / across, 1.0), grid_m)
    again = a * (grid_n / across)
    again += b * (grid_m / down)
    again -= operands
    np.maximum(again, 0.0, out=again)
    again *= missing
    again += once
    return again


def stays_in_l2(capacity: float, distance: F64) -> F64:
    """Share of a buffer that survives ``distance`` bytes of other traffic: a steep edge."""
    share: F64 = xp.minimum(xp.maximum(3.0 * (capacity / distance) - 2.0, 0.0), 1.0)
    return share
