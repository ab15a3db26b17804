"""Analytic time of a blocked product on one core of a CPU under a schedule of loops.

Tiles of rows, columns and depth are gone through in an order; inside a tile a kernel holds
``unroll`` rows of ``vector`` columns in registers. Arithmetic, loads of operands, and what each
level of the cache must bring again under the order are counted; the largest counts, the others in
part. Arrays are of shape (schedules,) or (rows,).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from silicast.core.errors import unsupported
from silicast.core.numerics import F64
from silicast.hardware.device import Device
from silicast.kernels.configuration import Configuration

FORMAT = "fp32"
ELEMENT = 4.0
"""Bytes of a number in single precision."""
ORDERS = ("mnk", "mkn", "nmk", "nkm", "kmn", "knm")


@final
@dataclass(frozen=True)
class Schedules:
    """Schedules as columns; ``order`` is an index into :data:`ORDERS`."""

    m: F64
    n: F64
    k: F64
    order: F64
    unroll: F64
    vector: F64


def schedules_of(rows: Sequence[Configuration]) -> Schedules:
    """Columns of configurations of loops."""
    table = [
        [
            *(configuration.number(f"tile_{side}") for side in "mnk"),
            ORDERS.index(configuration.word("order")),
            configuration.number("unroll"),
            configuration.number("vector"),
        ]
        for configuration in rows
    ]
    return Schedules(*np.array(table, dtype=np.float64).T.copy())


@final
@dataclass(frozen=True)
class CoreFacts:
    """What the model reads of a core.

    Attributes:
        vector: numbers of the widest vector; multiplies: fused multiply-adds of vectors a clock.
        loads: vectors a clock; clock_hz; l1_bytes, l2_bytes: capacities.
        l2_bytes_per_clock, beyond_bytes_per_clock: from the L2, and from beyond it.
    """

    vector: float
    multiplies: float
    loads: float
    clock_hz: float
    l1_bytes: float
    l2_bytes: float
    l2_bytes_per_clock: float = 32.0
    beyond_bytes_per_clock: float = 8.0


LOADS = 2.0
"""Vectors that a core loads a clock, on all cores of the catalog."""


def core_facts(device: Device) -> CoreFacts:
    """A core of a CPU: the width of its vectors is what its first cache gives for each load.

    >>> from silicast.hardware.catalog import find_device
    >>> core_facts(find_device("Xeon 8480")).vector
    16.0
    """
    clock = device.clocks.boost_hz
    l1, l2 = device.memory["l1"], device.memory["l2"]
    width = l1.bandwidth_bytes_per_s / clock / LOADS / ELEMENT
    rate = device.rate_per_core(device.matrix_pipe(FORMAT), FORMAT)
    shared = [level for name, level in device.memory.items() if name not in ("l1", "l2", "dram")]
    beyond = max((level.bandwidth_bytes_per_s for level in shared), default=0.0)
    return CoreFacts(
        vector=width,
        multiplies=rate / (2.0 * width),
        loads=LOADS,
        clock_hz=clock,
        l1_bytes=l1.capacity_bytes,
        l2_bytes=l2.capacity_bytes,
        l2_bytes_per_clock=l2.bandwidth_bytes_per_s / clock,
        beyond_bytes_per_clock=(beyond or device.dram.bandwidth_bytes_per_s) / device.cores / clock,
    )


def check_threads(configuration: Configuration, device: Device) -> int:
    """Threads of a schedule.

    Raises:
        SilicastError: more than the device has cores.
    """
    threads = configuration.number("threads")
    if threads > device.cores:
        raise unsupported(
            f"{configuration.label} runs {threads} threads on {device.name}, which has "
            f"{device.cores:g} cores: {threads - device.cores:g} too many",
            "configuration",
            "state fewer threads",
        )
    return threads


def scheduled_s(m: F64, n: F64, k: F64, configuration: Configuration, device: Device) -> F64:
    """Seconds of products of shape (rows,) under one schedule; threads share tiles of the result.

    Raises:
        SilicastError: more threads than cores.
    """
    threads, schedules = (
        check_threads(configuration, device),
        schedules_of([configuration] * len(m)),
    )
    alone, _ = loop_features(m, n, k, schedules, core_facts(device))
    tiles = np.ceil(m / schedules.m) * np.ceil(n / schedules.n)
    scheduled_s: F64 = alone * np.ceil(tiles / threads) / tiles
    return scheduled_s


def loop_features(m: F64, n: F64, k: F64, s: Schedules, core: CoreFacts) -> tuple[F64, F64]:
    """Seconds, and features of shape (features, rows), none negative, of products under schedules.

    Args:
        m, n, k: sizes, of the shape of the schedules.
    """
    tile = {"m": np.minimum(s.m, m), "n": np.minimum(s.n, n), "k": np.minimum(s.k, k)}
    counts = {name: np.ceil(size / tile[name]) for name, size in (("m", m), ("n", n), ("k", k))}
    flops = m * n * k
    lanes = np.minimum(s.vector, core.vector)
    chains = np.minimum(s.unroll / (4.0 * core.multiplies), 1.0)  # a multiply-add takes 4 clocks
    multiply = flops / (lanes * core.multiplies * chains)
    # a vector of B for all unrolled rows, and a broadcast of A for each multiply-add
    load = flops / lanes * (1.0 + 1.0 / s.unroll) / core.loads
    strips = counts["k"] * m / s.unroll * n / lanes
    store = strips * s.unroll * 2.0 / core.loads + strips * 6.0
    fetched = _fetched(tile, counts, s.order)
    area = {"a": tile["m"] * tile["k"], "b": tile["k"] * tile["n"], "c": tile["m"] * tile["n"]}
    inner = (tile["k"] * lanes + s.unroll * tile["k"]) * ELEMENT
    set_bytes = (area["a"] + area["b"] + area["c"]) * ELEMENT
    # B is gone through once for each strip of rows of a tile; from L2 where L1 does not hold it
    again = flops / s.unroll * ELEMENT
    from_l2 = again * np.minimum(np.maximum(area["b"] * ELEMENT / core.l1_bytes - 0.5, 0.0), 1.0)
    moved = sum(fetched[name] * area[name] for name in "abc") * ELEMENT
    whole = (m * k + k * n + m * n) * ELEMENT
    beyond = moved * np.minimum(np.maximum(whole / core.l2_bytes - 0.5, 0.0), 1.0)
    l2 = (from_l2 + moved) / core.l2_bytes_per_clock
    far = beyond / core.beyond_bytes_per_clock
    parts = (multiply, load, store, l2, far)
    high = np.maximum.reduce(parts)
    clocks = high + 0.3 * (sum(parts) - high)
    features = np.stack(
        (
            *(part / clocks for part in parts), chains, lanes / core.vector, s.unroll, s.vector,
            inner / core.l1_bytes, set_bytes / core.l1_bytes, set_bytes / core.l2_bytes,
            area["b"] * ELEMENT / core.l1_bytes, area["a"] * ELEMENT / core.l1_bytes,
            whole / core.l2_bytes, *(counts[name] for name in "mnk"), moved / whole,
            *(tile[name] for name in "mnk"), n * ELEMENT / 4096.0, k * ELEMENT / 4096.0,
            s.order + 1.0, m, n, k, strips / flops * 1e3,
        )
    )  # fmt: skip
    return clocks / core.clock_hz, features


def _fetched(tile: Mapping[str, F64], counts: Mapping[str, F64], order: F64) -> dict[str, F64]:
    """How often a tile of each operand is brought: an operand stays while the innermost loop runs
    over a side that it does not have.
    """
    del tile
    total = counts["m"] * counts["n"] * counts["k"]
    sides = {"a": "mk", "b": "kn", "c": "mn"}
    fetched = dict.fromkeys(sides, total)
    for index, word in enumerate(ORDERS):
        for name, side in sides.items():
            stays = counts[word[2]] if word[2] not in side else 1.0
            fetched[name] = np.where(order == index, total / stays, fetched[name])
    return fetched
