"""Time of grouped expert products: every candidate tile of both products, and what surrounds them.

Arrays have the shape (candidates, rows) or (rows,); docs/explanation/moe.md derives the terms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import cast, final

import numpy as np
from msgspec import Struct

from silicast.core import xp
from silicast.core.dtypes import BITS, Recipe
from silicast.core.numerics import F64, I64, folded
from silicast.hardware.device import Device
from silicast.kernels.experts.moe_recipes import is_gated, stored
from silicast.kernels.experts.routing import ExpertLoads
from silicast.kernels.experts.tuned_tiles import TileChances, tile_choice
from silicast.kernels.products.candidates import (
    ExpertTiles,
    expert_sizes,
    expert_tiles,
    tuned_sides,
)
from silicast.kernels.products.gemm_model import stays_in_l2
from silicast.workload.graphs.op import Variant
from silicast.workload.libraries.catalog import expert_styles

ROWS_AT_ONCE = 1024
"""Rows evaluated together: temporaries (8 candidates x 2 products x 1024 x 8 B) stay in cache."""

STEP_BYTES = {"tensor": 128.0, "fma": 32.0}
"""Depth of one main-loop step, in bytes of an operand row."""

SHARPNESS = 4
"""Squarings of the closeness of a candidate to the best: its weight is closeness ** 16."""
TUNED_SHARPNESS = 2
"""The same where a tuned table is known to choose, whose probabilities then weigh as well."""
LEAST = 1e-3
"""Added to a table's probabilities: no tile is out of the question."""


@cache
def _sizes() -> F64:
    """Tokens of the candidates' tiles, shape (sizes,)."""
    return np.array(expert_sizes(), dtype=np.float64)


@final
@dataclass(frozen=True)
class ExpertRates:
    """What the model reads of a device, for one recipe; SI units.

    Attributes:
        core_rate: operations per second of one core in the compute format.
        cores, clock_hz: number of cores and their clock.
        dram, l2, l2_bytes: bandwidths and the capacity of the L2.
        step_bytes: depth of a main-loop step.
        a_bytes, b_bytes, c_bytes: of an element of activations, weights and results.
        unpacks: weights are converted by the cores.
        quantizes: activations are converted before each product.
        gated: the first product makes gate and up.
        part: "full", "w13" or "w2".
        cache: cache state of the protocol ("cold", "warm", "").
        tuned: format under which a table of tiles is read; "" = the kernel reads none.
    """

    core_rate: float
    cores: float
    clock_hz: float
    dram: float
    l2: float
    l2_bytes: float
    step_bytes: float
    a_bytes: float
    b_bytes: float
    c_bytes: float
    unpacks: bool
    quantizes: bool
    gated: bool
    part: str
    cache: str
    tuned: str

    @staticmethod
    def from_device(
        device: Device, recipe: Recipe, pipe: str, style: str, variant: Variant, l2: float
    ) -> ExpertRates:
        """The rates for ``variant`` on ``device``; ``l2``: bytes a clock and core if unknown."""
        part = next((p for p in ("w13", "w2") if variant.flag(p)), "full")
        b_bytes, unpacks = stored(style, recipe)
        assumed_l2 = l2 * device.cores * device.clocks.boost_hz
        return ExpertRates(
            core_rate=device.rate_per_core(pipe, recipe.compute) * device.clocks.boost_hz,
            cores=float(device.cores), clock_hz=device.clocks.boost_hz,
            dram=device.dram.bandwidth_bytes_per_s,
            l2=device.l2.bandwidth_bytes_per_s or assumed_l2, l2_bytes=device.l2.capacity_bytes,
            step_bytes=STEP_BYTES[pipe], a_bytes=recipe.activation_bits / 8.0, b_bytes=b_bytes,
            c_bytes=BITS[recipe.output] / 8.0, unpacks=unpacks, quantizes=recipe.quantizes,
            gated=is_gated(variant), part=part, cache=variant.cache,
            tuned=recipe.name if expert_styles()[style].tuned else "",
        )  # fmt: skip


@final
class BusiestRankLayer(Struct, frozen=True):
    """One layer's share of the busiest rank; arrays of shape (rows,) or (sizes, rows).

    Attributes:
        tokens: on the rank: all that enter the group, or those that were dispatched to it;
            ``assigned``: to experts of this rank.
        topk: choices of a token.
        hit: experts of this rank that get a token at all.
        experts: experts of this rank.
        hidden, inner: widths; ``inner`` on this rank.
        tiles: tiles along the tokens for every size in
            :func:`~silicast.kernels.products.candidates.expert_sizes`.
        remote: share of the assignments that come from other ranks.
    """

    tokens: F64
    assigned: F64
    topk: F64
    hit: F64
    experts: F64
    hidden: F64
    inner: F64
    tiles: F64
    remote: F64

    @staticmethod
    def from_loads(
        loads: ExpertLoads,
        tokens: I64,
        topk: I64,
        hidden: I64,
        inner: I64,
        ep: I64,
        *,
        dispatched: bool = False,
    ) -> BusiestRankLayer:
        """A layer under the loads of its busiest rank.

        Args:
            tokens: entering the group.
            dispatched: the rank holds those alone that chose any of its experts, each once.
        """
        sums = (loads.tokens(), loads.experts_hit(), loads.experts())
        assigned, hit, experts = (xp.like(tokens, total) for total in sums)
        assigned = xp.maximum(assigned, 1.0)
        held, choices = xp.float64(tokens), xp.float64(topk)
        if dispatched:
            elsewhere = 1.0 - xp.minimum(assigned / (held * choices), 1.0)
            held = held * (1.0 - elsewhere**choices)
        return BusiestRankLayer(
            tokens=held,
            assigned=assigned,
            topk=choices,
            hit=xp.maximum(hit, 1.0),
            experts=experts,
            hidden=xp.float64(hidden),
            inner=xp.float64(inner),
            tiles=xp.maximum(loads.tiles(_sizes()), 1.0),
            remote=1.0 - 1.0 / ep,
        )


COLUMNS = ("blocks", "per_core", "padded", "tensor", "l2", "dram", "chain")


@final
class Products(Struct, frozen=True):
    """Expected times of the grouped products of a layer, arrays of shape (products, rows).

    Attributes:
        time: seconds at the rates's clock.
        best: index of the fastest candidate.
        columns: :data:`COLUMNS` of that candidate, and "dram_bytes".
        is_scalar: whether the sizes were numbers, not arrays.
    """

    time: F64
    best: I64
    columns: Mapping[str, F64]
    is_scalar: bool

    def total(self, values: F64) -> F64:
        """Sum over the products, shape (rows,); a number where rows are numbers."""
        result = folded(values)
        return cast("F64", result.item()) if self.is_scalar else result


@final
@dataclass(frozen=True)
class ExpertSteps:
    """What does not depend on the shape: one main-loop step of each tile, shape (candidates, 1, 1).

    Attributes:
        tile: the candidates.
        depth: elements of k in one step.
        operations: of one step, padding included.
        tensor_s, l2_s: time of a step on the matrix pipe with operands on their way, and of its
            operands through the L2.
        store_s: time of one core to write one tile of the result.
    """

    tile: ExpertTiles
    depth: float
    operations: F64
    tensor_s: F64
    l2_s: F64
    store_s: F64

    @staticmethod
    def from_rates(rates: ExpertRates, c: Mapping[str, float]) -> ExpertSteps:
        """Steps of all tiles that the constants allow."""
        tile = expert_tiles(c["smallest_tile"], c["largest_tile"])
        depth = rates.step_bytes / rates.a_bytes
        operations = 2.0 * depth * tile.m * tile.n
        operands = (tile.m * rates.a_bytes + tile.n * rates.b_bytes) * depth
        tensor_s = operations / (rates.core_rate * c["tensor_efficiency"])
        tensor_s = tensor_s + operands / (c["operand_bytes_per_clock"] * rates.clock_hz)
        if rates.unpacks:
            tensor_s = tensor_s + tile.n * depth / (c["unpack_per_clock"] * rates.clock_hz)
        store_rate = c["store_bytes_per_clock"] * rates.clock_hz
        return ExpertSteps(
            tile=tile,
            depth=depth,
            operations=operations,
            tensor_s=tensor_s,
            l2_s=operands / (rates.l2 * c["l2_efficiency"]),
            store_s=tile.m * tile.n * (rates.c_bytes / store_rate),
        )


def grouped_products(
    layer: BusiestRankLayer,
    n: F64,
    k: F64,
    rates: ExpertRates,
    c: Mapping[str, float],
    step: ExpertSteps,
    tiles: TileChances | None = None,
) -> Products:
    """Products of each expert's tokens with its (k, n) weights; n, k: shape (products, rows).

    ``tiles``: what a tuned table would choose, where the kernel reads one.
    """
    tile = step.tile
    steps = xp.ceil(k / step.depth)
    blocks = layer.tiles[tile.which, None, :] * xp.ceil(n / tile.n)

    share = blocks / rates.cores
    waves = share / tile.resident
    rounding = c["quantisation"]
    per_core = xp.maximum(share, 1.0)
    per_core = per_core + rounding * (xp.ceil(share) - per_core)
    rounded = xp.maximum(waves, 1.0)
    rounded = rounded + rounding * (xp.ceil(waves) - rounded)
    tensor = per_core * (steps * step.tensor_s + step.store_s)
    chain = rounded * (steps * c["step_s"] + c["wave_s"])
    deep = blocks * steps
    l2 = deep * step.l2_s
    dram_bytes = _dram_bytes(layer, n, k, rates, c)
    rate = xp.minimum(blocks, rates.cores) * c["core_dram_bytes_per_s"]
    dram = dram_bytes / xp.minimum(rate, rates.dram * c["dram_efficiency"])
    time = _overlapped((tensor, chain, l2, dram), c["overlap_loss"])
    # a grid that fills the device takes longer to start than a few blocks
    time = time + c["ramp_s"] * xp.minimum(share, 1.0)
    # rows that do not start at 16 bytes cannot be fetched in wide asynchronous loads
    time = time * xp.where((k * rates.a_bytes) % 16.0 != 0.0, c["unaligned"], 1.0)

    closeness = time.min(axis=0) / time
    for _ in range(SHARPNESS if tiles is None else TUNED_SHARPNESS):
        closeness = closeness * closeness
    if tiles is not None:
        closeness = closeness * _chances(step.tile, tiles)
    expected = folded(closeness * time) / folded(closeness)
    best = np.argmin(time, axis=0)
    position = best * best.size + np.arange(best.size).reshape(best.shape)
    costs = (blocks, per_core, deep * step.operations, tensor, l2, dram, chain)
    columns = {name: value.take(position) for name, value in zip(COLUMNS, costs, strict=True)}
    is_scalar = not isinstance(layer.tokens, np.ndarray)
    return Products(expected, best, {**columns, "dram_bytes": dram_bytes}, is_scalar)


def _chances(tile: ExpertTiles, tiles: TileChances) -> F64:
    """The probability of each candidate, shape (candidates, 1, rows); those of sizes that are no
    candidate's go to the nearest.
    """
    m, n = dict(zip(tuned_sides()["m"], tiles.m, strict=True)), dict(_columns(tiles))
    none = np.zeros_like(tiles.m[0])
    sides = zip(tile.m[:, 0, 0].tolist(), tile.n[:, 0, 0].tolist(), strict=True)
    return np.stack([m.get(int(a), none) * n[int(b)] + LEAST for a, b in sides])[:, None, :]


def _columns(tiles: TileChances) -> Iterator[tuple[int, F64]]:
    """Probabilities of the columns that candidates have."""
    _, second, *others = tuned_sides()["n"]
    narrow, *wider = tiles.n
    yield second, narrow + wider[0]
    yield from zip(others, wider[1:], strict=True)


def _overlapped(terms: tuple[F64, ...], loss: float) -> F64:
    """Overlapping resources: the largest, and ``loss`` times the others' squares over it."""
    high, squares = terms[0], terms[0] * terms[0]
    for term in terms[1:]:
        high = xp.maximum(high, term)
        squares = squares + term * term
    total: F64 = high * (1.0 - loss) + squares / high * loss
    return total


def _dram_bytes(
    layer: BusiestRankLayer, n: F64, k: F64, rates: ExpertRates, c: Mapping[str, float]
) -> F64:
    """Weights of the experts hit once; tokens and results as far as they miss the L2."""
    weights = layer.hit * n * k * rates.b_bytes
    rows = layer.assigned * (k * rates.a_bytes + n * rates.c_bytes)
    capacity = rates.l2_bytes * c["resident_share"]
    passing = 1.0 - stays_in_l2(capacity, rows)
    if rates.cache == "cold":
        return weights + rows * passing
    # the whole layer's weights pass between two uses of one of them
    layers = weights if rates.part != "full" else _all_weights(layer, rates)
    stays = stays_in_l2(capacity, layers * c["weight_copies"] + rows)
    return weights * (1.0 - stays) + rows * passing


def _all_weights(layer: BusiestRankLayer, rates: ExpertRates) -> F64:
    parts = 3.0 if rates.gated else 2.0
    return layer.hit * layer.inner * layer.hidden * (parts * rates.b_bytes)


@final
class ExpertTimes(Struct, frozen=True):
    """Time of a layer, shape (rows,): the products and everything between and around them.

    ``tiles``: what a tuned table would choose, where the kernel reads one.
    """

    time: F64
    products: Products
    around: F64
    tiles: TileChances | None


def estimate(
    layer: BusiestRankLayer,
    rates: ExpertRates,
    c: Mapping[str, float],
    step: ExpertSteps | None = None,
) -> ExpertTimes:
    """Products that belong to the part, and the kernels around them; ``step`` saves its making."""
    step = ExpertSteps.from_rates(rates, c) if step is None else step
    first = layer.inner * (2.0 if rates.gated else 1.0)
    which = {"full": slice(0, 2), "w13": slice(0, 1), "w2": slice(1, 2)}[rates.part]
    n = xp.stack(first, layer.hidden)[which]
    k = xp.stack(layer.hidden, layer.inner)[which]
    tiles = None
    if rates.tuned:
        tokens, experts, inner = np.atleast_1d(layer.tokens, layer.experts, layer.inner)
        tiles = tile_choice(tokens, experts, inner, rates.tuned)
    products = grouped_products(layer, n, k, rates, c, step, tiles)
    around = xp.full_like(layer.tokens, c["launch_s"] * len(products.time))
    if rates.part == "full":
        around = around + c["around_s"] + _streams(layer, first, rates, c)
    return ExpertTimes(around + products.total(products.time), products, around, tiles)


def _streams(
    layer: BusiestRankLayer, first: F64, rates: ExpertRates, c: Mapping[str, float]
) -> F64:
    """Sorting, gathering, activation between the products and the sum over choices."""
    wide = rates.c_bytes
    # Triton's kernels carry the choices that other ranks serve along, as rows of zeros
    rows = layer.assigned + c["foreign_share"] * (layer.tokens * layer.topk - layer.assigned)
    gathered = layer.assigned * layer.hidden * (wide * c["gather_passes"])
    middle = rows * (first + layer.inner) * (wide * c["middle_passes"])
    summed = (rows + layer.tokens) * layer.hidden * (wide * c["sum_passes"])
    size = gathered + middle + summed
    slow = rates.dram * c["dram_efficiency"]
    stays = stays_in_l2(rates.l2_bytes * c["resident_share"], size)
    rate = slow + stays * xp.maximum(rates.l2 * c["stream_l2_share"] - slow, 0.0)
    counted = layer.tokens * layer.topk * c["choice_s"] + layer.experts * c["expert_s"]
    total: F64 = counted + size / rate
    return total
