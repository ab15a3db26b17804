"""Times of grouped expert products against plain sums over one tile, one layer at a time."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from silicast.hardware.catalog import find_device
from silicast.kernels.experts.moe import moe_flags, setting_of
from silicast.kernels.experts.moe_model import (
    BusiestRankLayer,
    ExpertRates,
    ExpertSteps,
    estimate,
    grouped_products,
)
from silicast.kernels.products.candidates import expert_sizes
from silicast.workload.graphs.op import Variant

H100 = setting_of(Variant(dtype="bf16", flags=moe_flags()), find_device("H100-SXM-80GB")).rates
CONSTANTS = {
    "smallest_tile": 8.0, "largest_tile": 8.0, "tensor_efficiency": 0.7, "step_s": 5e-8,
    "operand_bytes_per_clock": 200.0, "unpack_per_clock": 50.0, "store_bytes_per_clock": 15.0,
    "l2_efficiency": 0.9, "quantisation": 0.6, "wave_s": 1e-7, "core_dram_bytes_per_s": 5e10,
    "dram_efficiency": 0.8, "overlap_loss": 0.3, "ramp_s": 4e-6, "unaligned": 1.5,
    "resident_share": 0.5, "weight_copies": 2.0, "launch_s": 3e-6, "around_s": 2e-5,
    "foreign_share": 0.25, "gather_passes": 1.25, "middle_passes": 1.75, "sum_passes": 1.5,
    "stream_l2_share": 0.3, "choice_s": 1e-10, "expert_s": 1e-9,
}  # fmt: skip
TILE_M, TILE_N, RESIDENT = 8, 128, 3  # the only candidate of eight tokens


def layer(tiles: float, **sizes: float) -> BusiestRankLayer:
    """A layer whose experts get ``tiles`` tiles of eight tokens in all."""
    table = {
        "tokens": 64.0, "assigned": 100.0, "topk": 2.0, "hit": 4.0, "experts": 6.0,
        "hidden": 512.0, "inner": 256.0, "remote": 0.0,
    } | sizes  # fmt: skip
    rows = {name: np.array([value]) for name, value in table.items()}
    return BusiestRankLayer(tiles=np.full((len(expert_sizes()), 1), tiles), **rows)


def surviving(capacity: float, other_bytes: float) -> float:
    """Share of a buffer that outlives other traffic: all up to its size, none from 1.5 x it."""
    return min(max(3.0 * capacity / other_bytes - 2.0, 0.0), 1.0)


def by_hand_s(
    x: BusiestRankLayer, n: float, k: float, rates: ExpertRates, whole_bytes: float
) -> float:
    """One product, term by term.

    Args:
        whole_bytes: weights that pass between two uses of one of them.
    """
    c = CONSTANTS
    depth = 128.0 / rates.a_bytes
    steps, blocks = math.ceil(k / depth), float(x.tiles[0, 0]) * math.ceil(n / TILE_N)
    step_bytes = (TILE_M * rates.a_bytes + TILE_N * rates.b_bytes) * depth
    step_s = 2 * TILE_M * TILE_N * depth / (rates.core_rate * c["tensor_efficiency"])
    step_s += step_bytes / (c["operand_bytes_per_clock"] * rates.clock_hz)
    if rates.unpacks:
        step_s += TILE_N * depth / (c["unpack_per_clock"] * rates.clock_hz)
    store_s = TILE_M * TILE_N * rates.c_bytes / (c["store_bytes_per_clock"] * rates.clock_hz)

    def partly_rounded(value: float) -> float:
        least = max(value, 1.0)
        return least + c["quantisation"] * (math.ceil(value) - least)

    a_core = blocks / rates.cores
    weights = float(x.hit[0]) * n * k * rates.b_bytes
    rows = float(x.assigned[0]) * (k * rates.a_bytes + n * rates.c_bytes)
    cache = rates.l2_bytes * c["resident_share"]
    passing = 1.0 - surviving(cache, rows)
    between = whole_bytes * c["weight_copies"] + rows
    stay = 0.0 if rates.cache == "cold" else surviving(cache, between)
    dram_rate = min(
        min(blocks, rates.cores) * c["core_dram_bytes_per_s"], rates.dram * c["dram_efficiency"]
    )
    terms = [
        partly_rounded(a_core) * (steps * step_s + store_s),
        partly_rounded(a_core / RESIDENT) * (steps * c["step_s"] + c["wave_s"]),
        blocks * steps * step_bytes / (rates.l2 * c["l2_efficiency"]),
        (weights * (1.0 - stay) + rows * passing) / dram_rate,
    ]
    longest = max(terms)
    time = (1.0 - c["overlap_loss"]) * longest
    time += c["overlap_loss"] * sum(term**2 for term in terms) / longest
    time += c["ramp_s"] * min(a_core, 1.0)
    return time * (c["unaligned"] if k * rates.a_bytes % 16 else 1.0)


CASES: dict[str, tuple[float, float, float, dict[str, Any]]] = {
    "a few blocks": (5.0, 300.0, 512.0, {}),
    "many waves": (700.0, 512.0, 1024.0, {}),
    "weights that stay": (5.0, 512.0, 512.0, {"cache": "warm"}),
    "weights that stay in part": (40.0, 2048.0, 2048.0, {"cache": "warm", "l2_bytes": 1e8}),
    "cold weights": (5.0, 512.0, 512.0, {"cache": "cold"}),
    "rows that pass the cache": (40.0, 4096.0, 4096.0, {"l2_bytes": 2.5e6}),
    "unpacked weights": (700.0, 512.0, 1024.0, {"b_bytes": 0.5, "unpacks": True}),
    "rows not at sixteen bytes": (40.0, 512.0, 515.0, {}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_product_is_the_sum_of_its_terms(case: str) -> None:
    tiles, n, k, changed = CASES[case]
    rates, x = replace(H100, part="w13", **changed), layer(tiles)
    products = grouped_products(
        x,
        np.array([[n]]),
        np.array([[k]]),
        rates,
        CONSTANTS,
        ExpertSteps.from_rates(rates, CONSTANTS),
    )
    whole = float(x.hit[0]) * n * k * rates.b_bytes  # the part's weights alone
    assert float(products.time[0, 0]) == pytest.approx(by_hand_s(x, n, k, rates, whole), rel=1e-12)


@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("assigned", [100.0, 128.0, 1e6])
def test_a_layer_is_both_products_and_what_surrounds_them(gated: bool, assigned: float) -> None:
    rates, c = replace(H100, part="full", gated=gated), CONSTANTS
    x = layer(40.0, assigned=assigned, tokens=assigned / 1.5)
    tokens, hidden, inner = assigned / 1.5, 512.0, 256.0
    first = inner * (2 if gated else 1)
    whole = 4 * inner * hidden * (3 if gated else 2) * rates.b_bytes
    products = by_hand_s(x, first, hidden, rates, whole) + by_hand_s(x, hidden, inner, rates, whole)
    carried = assigned + 0.25 * (tokens * 2 - assigned)
    moved = assigned * hidden * 1.25  # gathered
    moved += carried * (first + inner) * 1.75  # between the products
    moved += (carried + tokens) * hidden * 1.5  # each choice is read, each token written
    moved *= rates.c_bytes
    slow, fast = rates.dram * 0.8, rates.l2 * 0.3
    stays = surviving(rates.l2_bytes * 0.5, moved)
    around = 2 * 3e-6 + 2e-5 + tokens * 2 * 1e-10 + 6 * 1e-9
    around += moved / (slow + stays * max(fast - slow, 0.0))
    answer = estimate(x, rates, c)
    assert float(answer.around[0]) == pytest.approx(around, rel=1e-12)
    assert float(answer.time[0]) == pytest.approx(around + products, rel=1e-12)


@pytest.mark.parametrize(("part", "n", "k"), [("w13", 512.0, 512.0), ("w2", 512.0, 256.0)])
def test_a_part_is_its_product_and_its_launch(part: str, n: float, k: float) -> None:
    rates, x = replace(H100, part=part), layer(40.0)
    product = by_hand_s(x, n, k, rates, 4 * n * k * rates.b_bytes)
    assert float(estimate(x, rates, CONSTANTS).time[0]) == pytest.approx(3e-6 + product, rel=1e-12)
