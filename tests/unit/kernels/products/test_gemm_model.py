"""Time of one tile's product against plain sums, term by term."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from silicast.kernels.products.candidates import CandidateTiles
from silicast.kernels.products.gemm_model import GemmRates, GemmSteps, evaluate, stays_in_l2

RATES = GemmRates(
    core_rate=6e12, cores=100.0, clock_hz=1.5e9, dram=2e12, l2=6e12, l2_bytes=40e6, a_bytes=2.0,
    b_bytes=2.0, c_bytes=2.0, widen_s=0.0, weight_copies=1.0, activation_copies=1.0,
)  # fmt: skip
CONSTANTS = {
    "tensor_efficiency": 0.7, "step_s": 4e-8, "split_s": 2e-6, "operand_bytes_per_clock": 150.0,
    "store_bytes_per_clock": 20.0, "dram_efficiency": 0.9, "l2_efficiency": 0.8,
    "quantisation": 0.6, "page_miss_share": 0.4, "page_reach_bytes": 3e6, "wave_s": 3e-7,
    "core_dram_bytes_per_s": 4e10, "overlap_loss": 0.25, "launch_s": 2e-6, "fill_s": 1e-6,
    "extra_s": 5e-7, "resident_share": 0.6, "l2_share": 0.5, "narrow_share": 0.5,
    "narrow_step_s": 3e-8, "narrow_split_s": 1e-6,
}  # fmt: skip
TILE = {"m": 128.0, "n": 64.0, "k_bytes": 128.0, "resident": 2.0, "fetched": 0.75}


def tile(**other: Any) -> CandidateTiles:
    columns: dict[str, Any] = {
        name: np.array([[value]]) for name, value in (TILE | other).items() if name != "k_bytes"
    }
    return CandidateTiles("one", k_bytes=TILE["k_bytes"], labels=("one",), **columns)


def survives(capacity: float, other: float) -> float:
    return min(max(3.0 * capacity / other - 2.0, 0.0), 1.0)


def dram_bytes(m: float, n: float, k: float, batch: float, at_once: float, r: GemmRates) -> float:
    """Each operand and the result once, less what stays in L2, and operand rows read again where
    they outgrow it.
    """
    a, b, out = m * k * batch * r.a_bytes, k * n * batch * r.b_bytes, m * n * batch * r.c_bytes
    once, call, capacity = a + b + out, a + b + out, r.l2_bytes * 0.6
    if r.weight_copies:
        next_use = call + (r.weight_copies - 1) * b + (max(r.activation_copies, 1.0) - 1) * a
        a_next = call * max(r.activation_copies, 1.0)
        once = a * (1 - survives(capacity, a_next)) + b * (1 - survives(capacity, next_use))
        once += out * (1 - survives(capacity, call))
    missing = max(1 - r.l2_bytes * 0.5 / (a + b), 0.0)
    grid_m, grid_n = math.ceil(m / 128), math.ceil(n / 64)
    down = min(max(math.sqrt(at_once * 64 / 128), 1.0), grid_m)
    across = min(max(at_once / down, 1.0), grid_n)
    down = min(max(at_once / across, 1.0), grid_m)
    return once + missing * max(a * grid_n / across + b * grid_m / down - a - b, 0.0)


def by_hand_s(m: float, n: float, k: float, batch: float, r: GemmRates, narrow: bool) -> float:
    c = CONSTANTS
    depth, area = 128.0 / r.a_bytes, 128 * 64
    efficiency = 0.7 * (0.5 if narrow else 1.0)
    step_s, split_s = (3e-8, 1e-6) if narrow else (4e-8, 2e-6)
    moved = (128 * max(r.a_bytes, 2.0) + 64 * max(r.b_bytes, 2.0)) * depth
    tensor_s = 2 * depth * area / (r.core_rate * efficiency) + moved / (150.0 * r.clock_hz)
    tensor_s += 64 * depth * r.widen_s
    store_s = area * r.c_bytes / (20.0 * r.clock_hz)
    slots, deep = r.cores * 2, math.ceil(k / depth)
    grid = math.ceil(m / 128) * math.ceil(n / 64)
    blocks, folding, block_steps = grid * batch, 0.0, float(deep)
    # k is split where blocks are too few and adding up costs less than it saves
    fold = m * n * batch * 8.0 / (r.l2 * 5.0)
    work = deep * max(step_s, tensor_s)
    splits = math.floor(min(math.sqrt(work / fold + 0.25) + 0.5, deep / 4, slots / blocks))
    if splits >= 2 and work - work / splits > splits * fold + split_s:
        folding = splits * fold + split_s
        blocks, block_steps = blocks * splits, deep / splits

    def rounded(value: float, least: float) -> float:
        return least + c["quantisation"] * (math.ceil(value) - least)

    share, waves = blocks / r.cores, max(blocks / slots, 1.0)
    per_core, at_once = rounded(share, max(share, 1.0)), min(blocks, slots)
    rows = min(2 * math.sqrt(at_once * area), m + n)
    missed = 1 + 0.4 * max(1 - 3e6 / (rows * k * r.a_bytes), 0.0)
    tensor = per_core * block_steps * tensor_s * missed
    chain = (block_steps * step_s + c["wave_s"]) * rounded(waves, waves)
    operands = (128 * r.a_bytes + 64 * r.b_bytes) * depth
    l2 = blocks * block_steps * operands * 0.75 / (r.l2 * 0.8)
    whole = max(m / 128, 1.0) * max(n / 64, 1.0) * blocks / grid
    rate = min(min(whole, r.cores) * 4e10, r.dram * 0.9)
    dram = dram_bytes(m, n, k, batch, at_once, r) / rate
    core = max(tensor, chain) + 0.25 * min(tensor, chain) ** 2 / max(tensor, chain)
    core += per_core * store_s
    longest = max(core, l2, dram)
    together = 0.75 * longest + 0.25 * (core**2 + l2**2 + dram**2) / longest
    return together + folding + 2e-6 + 1e-6 + 5e-7


CASES: dict[str, tuple[float, float, float, float, dict[str, Any]]] = {
    "one block": (100, 60, 64, 1, {}),
    "few rows, k split": (16, 1024, 16384, 1, {}),
    "few rows of eight products": (16, 512, 4096, 8, {}),
    "a wave and a half": (128 * 15, 64 * 20, 1000, 1, {}),
    "a square": (4096, 4096, 4096, 1, {}),
    "operands that outgrow the L2": (16384, 16384, 2048, 1, {"l2_bytes": 10e6}),
    "a tall product": (20000, 64, 8192, 1, {"l2_bytes": 10e6}),
    "nothing stays": (512, 512, 512, 1, {"weight_copies": 0.0}),
    "all stays": (512, 512, 512, 1, {}),
    "weights cycle": (512, 2048, 2048, 1, {"weight_copies": 4.0}),
    "weights stay in part": (64, 4096, 4096, 1, {"weight_copies": 2.0, "l2_bytes": 90e6}),
    "both cycle": (2048, 1024, 1024, 1, {"weight_copies": 3.0, "activation_copies": 4.0,
                                         "l2_bytes": 60e6}),
    "narrow weights": (512, 1024, 2048, 1, {"b_bytes": 0.5, "widen_s": 3e-12}),
    "narrow operands": (512, 1024, 2048, 1, {"a_bytes": 1.0, "b_bytes": 1.0}),
}  # fmt: skip


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_a_product_is_the_sum_of_its_terms(case: str, narrow: bool) -> None:
    m, n, k, batch, changed = CASES[case]
    rates = replace(RATES, **changed)
    tiles = tile(narrow=1.0) if narrow else tile()
    row = [np.array([[float(size)]]) for size in (m, n, k, batch)]
    steps = GemmSteps.from_rates(tiles, rates, CONSTANTS)
    result = evaluate(row[0], row[1], row[2], row[3], tiles, steps, rates, CONSTANTS)
    wanted = by_hand_s(m, n, k, batch, rates, narrow)
    assert float(result.time[0, 0]) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize(
    ("limits", "taken"),
    [
        ({"most_side": 64.0, "most_batch": 2.0}, True),
        ({"most_side": 63.0, "most_batch": 2.0}, False),
        ({"most_side": 64.0, "most_batch": 1.0}, False),
        ({"most_rows": 64.0}, True),
        ({"most_rows": 63.0}, False),
    ],
)
def test_kernels_that_do_not_take_a_product_never_win(
    limits: dict[str, float], taken: bool
) -> None:
    m, n, k, batch = (np.array([[x]]) for x in (64.0, 512.0, 512.0, 2.0))
    steps = GemmSteps.from_rates(tile(), RATES, CONSTANTS)
    free, limited = (
        evaluate(m, n, k, batch, tiles, steps, RATES, CONSTANTS).time[0, 0]
        for tiles in (tile(), tile(**limits))
    )
    assert limited / free == pytest.approx(1.0 if taken else 1e6)


@pytest.mark.parametrize(
    ("other", "share"), [(5.0, 1.0), (10.0, 1.0), (12.0, 0.5), (15.0, 0.0), (40.0, 0.0)]
)
def test_a_buffer_is_lost_between_its_size_and_half_as_much_again(
    other: float, share: float
) -> None:
    assert float(stays_in_l2(10.0, np.array([other]))[0]) == pytest.approx(share)
