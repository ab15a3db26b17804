"""Time of every candidate configuration of a matrix product, vectorised over candidates x rows.

All arrays here have the shape (candidates, rows); docs/explanation/gemm.md derives the terms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np

from silicast.core.dtypes import BITS, Recipe
from silicast.core.numerics import F64
from silicast.hardware.device import Device
from silicast.kernels.gemm_tiles import Tiles
from silicast.workload.op import Variant

ROWS_PER_CHUNK = 512
"""Rows evaluated together: their temporaries (12 candidates x 512 x 8 B) stay in a core's cache."""

SPLIT_MIN_STEPS = 4.0
"""A split of k keeps at least so many main-loop steps, or its pipeline never fills."""

COPIES = {"cold": (0.0, 0.0), "warm": (1.0, 1.0)}
"""Cache protocol -> copies of weights and activations that successive calls cycle through."""

CAMPAIGN_COPIES = {"": (6.0, 1.0), "sglang": (6.0, 6.0)}
"""The same for measurement campaigns by library: SGLang's cycle the activations too."""


@final
@dataclass(frozen=True)
class Machine:
    """What the model reads of a device, for one recipe; SI units.

    Attributes:
        core_rate: operations per second of one core in the recipe's compute format.
        cores: number of cores.
        clock_hz: of the cores.
        dram, l2: bandwidths in bytes per second.
        l2_bytes: capacity of the L2 cache.
        a_bytes, b_bytes, c_bytes: bytes per element of activations, weights and result.
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
    weight_copies: float
    activation_copies: float

    @staticmethod
    def of(
        device: Device, recipe: Recipe, pipe: str, variant: Variant, c: Mapping[str, float]
    ) -> Machine:
        """The machine for ``recipe`` on ``device`` under the cache protocol of ``variant``."""
        weights, activations = COPIES.get(variant.cache) or CAMPAIGN_COPIES.get(
            variant.library, CAMPAIGN_COPIES[""]
        )
        assumed_l2 = c["l2_bytes_per_clock_per_core"] * device.cores * device.clocks.boost_hz
        return Machine(
            core_rate=device.rate_per_core(pipe, recipe.compute) * device.clocks.boost_hz,
            cores=float(device.cores),
            clock_hz=device.clocks.boost_hz,
            dram=device.dram.bandwidth_bytes_per_s,
            l2=device.l2.bandwidth_bytes_per_s or assumed_l2,
            l2_bytes=device.l2.capacity_bytes,
            a_bytes=recipe.activation_bits / 8.0,
            b_bytes=recipe.weight_bits / 8.0,
            c_bytes=BITS[recipe.output] / 8.0,
            weight_copies=weights,
            activation_copies=activations,
        )


@final
@dataclass(frozen=True)
class Candidates:
    """What each candidate would do; arrays (candidates, rows), times in seconds.

    Attributes:
        time: the whole kernel at the machine's clock.
        blocks: thread blocks, splits of k counted.
        waves: blocks over resident slots.
        per_core: blocks of the busiest core.
        tensor, l2, dram, chain: time each resource alone would need.
        padded_ops: operations with padding, of the whole device.
        l2_bytes, dram_bytes: traffic of the whole device.
    """

    time: F64
    blocks: F64
    waves: F64
    per_core: F64
    tensor: F64
    l2: F64
    dram: F64
    chain: F64
    padded_ops: F64
    l2_bytes: F64
    dram_bytes: F64


def evaluate(
    m: F64, n: F64, k: F64, batch: F64, tiles: Tiles, machine: Machine, c: Mapping[str, float]
) -> Candidates:
    """All candidates of rows of shape (1, rows)."""
    step_k = tiles.k_bytes / machine.a_bytes
    grid_m = np.ceil(m / tiles.m)
    grid_n = np.ceil(n / tiles.n)
    steps = np.ceil(k / step_k)
    blocks = grid_m * grid_n * batch
    area = tiles.m * tiles.n
    # One main-loop step of one block alone on a core: the multiplications, and operands on the way
    # from shared memory, which overlap with them only in part.
    step_ops = 2.0 * step_k * area
    operand_bytes = (tiles.m * machine.a_bytes + tiles.n * machine.b_bytes) * step_k
    step_tensor = step_ops / (machine.core_rate * c["tensor_efficiency"]) + operand_bytes / (
        c["operand_bytes_per_clock"] * machine.clock_hz
    )
    step_bytes = operand_bytes * tiles.fetched
    step_chain = np.maximum(c["step_s"], step_tensor)

    # Split k when blocks are too few: the cheapest number of splits in closed form.
    result_bytes = m * n * batch
    fold = 8.0 * result_bytes / (machine.l2 * 5.0)
    work = steps * step_chain
    room = np.maximum(np.floor(machine.cores * tiles.resident / blocks), 1.0)
    splits = np.floor(np.minimum(np.sqrt(work / fold), steps / SPLIT_MIN_STEPS))
    splits = np.maximum(np.minimum(splits, room), 1.0)
    folding = c["split_s"] + splits * fold
    split = (work - work / splits) > folding
    splits = np.where(split, splits, 1.0)
    folding = np.where(split, folding, 0.0)

    blocks = blocks * splits
    steps = np.ceil(steps / splits)
    slots = machine.cores * tiles.resident
    share = blocks / machine.cores
    per_core = np.maximum(share, 1.0)
    per_core = per_core + c["quantisation"] * (np.ceil(share) - per_core)
    waves = blocks / slots
    busy_waves = np.maximum(waves, 1.0)
    busy_waves = busy_waves + c["quantisation"] * (np.ceil(waves) - busy_waves)

    tensor = per_core * steps * step_tensor
    l2_bytes = blocks * steps * step_bytes
    l2 = l2_bytes / (machine.l2 * c["l2_efficiency"])
    chain = busy_waves * (steps * c["step_s"] + c["wave_s"])

    dram_bytes = _dram_bytes(m, n, k, batch, tiles, machine, c, np.minimum(blocks, slots))
    active = np.minimum(blocks, machine.cores)
    dram = dram_bytes / np.minimum(
        machine.dram * c["dram_efficiency"], active * c["core_dram_bytes_per_s"]
    )
    store = per_core * area * (machine.c_bytes / (c["store_bytes_per_clock"] * machine.clock_hz))
    core = _combine(tensor, chain, c) + store
    time = _combine(_combine(core, l2, c), dram, c) + (folding + (c["launch_s"] + c["fill_s"] + c["extra_s"]))
    return Candidates(
        time, blocks, waves, per_core, tensor, l2, dram, chain,
        blocks * steps * step_ops, l2_bytes, dram_bytes,
    )  # fmt: skip


def _combine(a: F64, b: F64, c: Mapping[str, float]) -> F64:
    """Two overlapping resources: the larger one, and part of the smaller near a tie."""
    high, low = np.maximum(a, b), np.minimum(a, b)
    ratio = low / high
    return high * (1.0 + c["overlap_loss"] * ratio * ratio)


def _dram_bytes(
    m: F64, n: F64, k: F64, batch: F64,
    tiles: Tiles, machine: Machine, c: Mapping[str, float], concurrent: F64,
) -> F64:  # fmt: skip
    """Bytes from and to DRAM: once each, re-reads of operands that outgrow L2, minus what stays."""
    a = m * k * batch * machine.a_bytes
    b = k * n * batch * machine.b_bytes
    out = m * n * batch * machine.c_bytes
    cache = machine.l2_bytes * c["l2_share"]
    # A square raster of the blocks that run together reads each operand row once.
    grid_m, grid_n = np.ceil(m / tiles.m), np.ceil(n / tiles.n)
    down = np.minimum(np.maximum(np.sqrt(concurrent * tiles.n / tiles.m), 1.0), grid_m)
    across = np.minimum(np.maximum(concurrent / down, 1.0), grid_n)
    down = np.minimum(np.maximum(concurrent / across, 1.0), grid_m)
    reads = a * (grid_n / across) + b * (grid_m / down)
    operands = a + b
    missing = np.maximum(1.0 - cache / operands, 0.0)
    again = np.maximum(reads - operands, 0.0) * missing
    if machine.weight_copies == 0.0:
        return operands + again + out
    # A buffer stays in L2 if what is touched before its next use fits: one call's traffic for a
    # buffer that every call uses, the whole cycle for one of several copies.
    capacity = machine.l2_bytes * c["resident_share"]
    call = operands + out
    a_stays = stays_in_l2(capacity, call + (machine.activation_copies - 1.0) * call)
    b_stays = stays_in_l2(
        capacity, call + (machine.weight_copies - 1.0) * b + (machine.activation_copies - 1.0) * a
    )
    c_stays = stays_in_l2(capacity, call)
    return a * (1.0 - a_stays) + b * (1.0 - b_stays) + out * (1.0 - c_stays) + again


def stays_in_l2(capacity: float, distance: F64) -> F64:
    """Share of a buffer that survives ``distance`` bytes of other traffic: a steep edge."""
    return np.minimum(np.maximum(3.0 * (capacity / distance) - 2.0, 0.0), 1.0)
