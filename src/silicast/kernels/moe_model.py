"""Time of grouped expert products: every candidate tile of both products, and what surrounds them.

Arrays have the shape (candidates, rows) or (rows,); docs/explanation/moe.md derives the terms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np

from silicast.core.dtypes import BITS, Recipe
from silicast.core.numerics import F64, I64
from silicast.hardware.device import Device
from silicast.kernels.gemm_model import stays_in_l2
from silicast.kernels.moe_recipes import stored
from silicast.kernels.routing import Loads, folded
from silicast.workload.op import Variant

# (tokens, columns of the weights, blocks resident per core)
TILES = (
    (8, 128, 3), (16, 64, 4), (16, 128, 3), (32, 128, 2), (64, 64, 3), (64, 128, 2),
    (128, 128, 1), (128, 256, 1),
)  # fmt: skip
_M, _N, _RESIDENT = (np.array([[float(row[i])] for row in TILES]) for i in range(3))
SIZES = tuple(sorted({row[0] for row in TILES}))
_WHICH = [SIZES.index(row[0]) for row in TILES]
LABELS = tuple(f"{m}x{n}" for m, n, _ in TILES)

STEP_BYTES = {"tensor": 128.0, "fma": 32.0}
"""Depth of one main-loop step, in bytes of an operand row."""

SHARPNESS = 4
"""Squarings of the closeness of a candidate to the best: its weight is closeness ** 16."""


@final
@dataclass(frozen=True)
class Machine:
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

    @staticmethod
    def of(
        device: Device, recipe: Recipe, pipe: str, style: str, variant: Variant, l2: float
    ) -> Machine:
        """The machine for ``variant`` on ``device``; ``l2``: bytes a clock and core if unknown."""
        part = next((p for p in ("w13", "w2") if variant.flag(p)), "full")
        b_bytes, unpacks = stored(style, recipe)
        assumed_l2 = l2 * device.cores * device.clocks.boost_hz
        return Machine(
            core_rate=device.rate_per_core(pipe, recipe.compute) * device.clocks.boost_hz,
            cores=float(device.cores),
            clock_hz=device.clocks.boost_hz,
            dram=device.dram.bandwidth_bytes_per_s,
            l2=device.l2.bandwidth_bytes_per_s or assumed_l2,
            l2_bytes=device.l2.capacity_bytes,
            step_bytes=STEP_BYTES[pipe],
            a_bytes=recipe.activation_bits / 8.0,
            b_bytes=b_bytes,
            c_bytes=BITS[recipe.output] / 8.0,
            unpacks=unpacks,
            quantizes=recipe.quantizes,
            gated=variant.flag("gated", True),
            part=part,
            cache=variant.cache,
        )


@final
@dataclass(frozen=True)
class Layer:
    """One layer's share of the busiest rank; arrays of shape (rows,) or (sizes, rows).

    Attributes:
        tokens: entering the group; ``assigned``: to experts of this rank.
        topk: choices of a token.
        hit: experts of this rank that get a token at all.
        experts: experts of this rank.
        hidden, inner: widths; ``inner`` on this rank.
        tiles: tiles along the tokens for every size in :data:`SIZES`.
    """

    tokens: F64
    assigned: F64
    topk: F64
    hit: F64
    experts: F64
    hidden: F64
    inner: F64
    tiles: F64

    @staticmethod
    def of(loads: Loads, tokens: I64, topk: I64, hidden: I64, inner: I64) -> Layer:
        """A layer under the loads of its busiest rank."""
        hit = loads.experts_hit()
        return Layer(
            tokens=tokens.astype(np.float64),
            assigned=np.maximum(loads.tokens(), 1.0),
            topk=topk.astype(np.float64),
            hit=np.maximum(hit, 1.0),
            experts=folded(loads.weight + np.zeros_like(loads.tokens_each)),
            hidden=hidden.astype(np.float64),
            inner=inner.astype(np.float64),
            tiles=np.maximum(np.stack([loads.tiles(float(size)) for size in SIZES]), 1.0),
        )


@final
@dataclass(frozen=True)
class Product:
    """Expected time of one grouped product and the columns of its best candidate, shape (rows,).

    Attributes:
        time: seconds at the machine's clock.
        best: index of the fastest candidate.
        columns: "blocks", "per_core", "padded" (operations with padding), "tensor", "l2", "dram",
            "chain" of that candidate, "dram_bytes".
    """

    time: F64
    best: I64
    columns: Mapping[str, F64]


COLUMNS = ("blocks", "per_core", "padded", "tensor", "l2", "dram", "chain", "dram_bytes")


def grouped_product(
    layer: Layer, n: F64, k: F64, machine: Machine, c: Mapping[str, float]
) -> Product:
    """A product of each expert's tokens with its (k, n) weights; see docs/explanation/moe.md."""
    depth = machine.step_bytes / machine.a_bytes
    steps = np.ceil(k / depth)
    blocks = layer.tiles[_WHICH] * np.ceil(n / _N)
    step_ops = 2.0 * depth * _M * _N
    operands = (_M * machine.a_bytes + _N * machine.b_bytes) * depth
    step_s = step_ops / (machine.core_rate * c["tensor_efficiency"])
    step_s = step_s + operands / (c["operand_bytes_per_clock"] * machine.clock_hz)
    if machine.unpacks:
        step_s = step_s + _N * depth / (c["unpack_per_clock"] * machine.clock_hz)
    slots = machine.cores * _RESIDENT

    share = blocks / machine.cores
    per_core = np.maximum(share, 1.0)
    waves = np.maximum(blocks / slots, 1.0)
    per_core = per_core + c["quantisation"] * (np.ceil(share) - per_core)
    waves = waves + c["quantisation"] * (np.ceil(blocks / slots) - waves)
    tensor = per_core * steps * step_s + per_core * (
        _M * _N * (machine.c_bytes / (c["store_bytes_per_clock"] * machine.clock_hz))
    )
    chain = waves * (steps * c["step_s"] + c["wave_s"])
    fetched = blocks * steps * operands
    l2 = fetched / (machine.l2 * c["l2_efficiency"])
    dram_bytes = _dram_bytes(layer, n, k, machine, c)
    rate = np.minimum(np.minimum(blocks, machine.cores) * c["core_dram_bytes_per_s"],
                      machine.dram * c["dram_efficiency"])  # fmt: skip
    dram = dram_bytes / rate
    time = _overlapped((tensor, chain, l2, dram), c["overlap_loss"])
    # rows that do not start at 16 bytes cannot be fetched in wide asynchronous loads
    time = time * np.where((k * machine.a_bytes) % 16.0 != 0.0, c["unaligned"], 1.0)

    closeness = time.min(axis=0) / time * _allowed(c)
    for _ in range(SHARPNESS):
        closeness = closeness * closeness
    expected = folded(closeness * time) / folded(closeness)
    best = np.argmin(np.where(_allowed(c) > 0.0, time, np.inf), axis=0)
    width = np.arange(time.shape[1])
    found = (blocks, per_core, blocks * steps * step_ops, tensor, l2, dram, chain)
    columns = {name: value[best, width] for name, value in zip(COLUMNS, found, strict=False)}
    return Product(expected, best, {**columns, "dram_bytes": dram_bytes})


def _allowed(c: Mapping[str, float]) -> F64:
    small, large = c["smallest_tile"], c["largest_tile"]
    return np.array([[float(small <= row[0] <= large)] for row in TILES])


def _overlapped(terms: tuple[F64, ...], loss: float) -> F64:
    """Overlapping resources: the largest, and ``loss`` times the others' squares over it."""
    high, squares = terms[0], terms[0] * terms[0]
    for term in terms[1:]:
        high = np.maximum(high, term)
        squares = squares + term * term
    total: F64 = high * (1.0 - loss) + squares / high * loss
    return total


def _dram_bytes(layer: Layer, n: F64, k: F64, machine: Machine, c: Mapping[str, float]) -> F64:
    """Weights of the experts hit once; tokens and results as far as they miss the L2."""
    weights = layer.hit * n * k * machine.b_bytes
    rows = layer.assigned * (k * machine.a_bytes + n * machine.c_bytes)
    capacity = machine.l2_bytes * c["resident_share"]
    passing = 1.0 - stays_in_l2(capacity, rows)
    if machine.cache == "cold":
        return weights + rows * passing
    # the whole layer's weights pass between two uses of one of them
    layers = weights if machine.part != "full" else _all_weights(layer, machine)
    stays = stays_in_l2(capacity, layers * c["weight_copies"] + rows)
    return weights * (1.0 - stays) + rows * passing


def _all_weights(layer: Layer, machine: Machine) -> F64:
    parts = 3.0 if machine.gated else 2.0
    return layer.hit * layer.inner * layer.hidden * (parts * machine.b_bytes)


@final
@dataclass(frozen=True)
class Estimate:
    """Time of a layer, shape (rows,): the products and everything between and around them."""

    time: F64
    products: tuple[Product, ...]
    around: F64


def estimate(layer: Layer, machine: Machine, c: Mapping[str, float]) -> Estimate:
    """Products that belong to the part, and the kernels around them."""
    first = layer.inner * (2.0 if machine.gated else 1.0)
    products = []
    if machine.part != "w2":
        products.append(grouped_product(layer, first, layer.hidden, machine, c))
    if machine.part != "w13":
        products.append(grouped_product(layer, layer.hidden, layer.inner, machine, c))
    around = np.zeros_like(layer.tokens) + c["launch_s"] * len(products)
    if machine.part == "full":
        around = around + c["around_s"] + _streams(layer, first, machine, c)
    total = around
    for product in products:
        total = total + product.time
    return Estimate(total, tuple(products), around)


def _streams(layer: Layer, first: F64, machine: Machine, c: Mapping[str, float]) -> F64:
    """Sorting, gathering, activation between the products and the sum over choices."""
    wide = machine.c_bytes
    # Triton's kernels carry the choices that other ranks serve along, as rows of zeros
    rows = layer.assigned + c["foreign_share"] * (layer.tokens * layer.topk - layer.assigned)
    gathered = layer.assigned * layer.hidden * (wide * c["gather_passes"])
    middle = rows * (first + layer.inner) * (wide * c["middle_passes"])
    summed = (rows + layer.tokens) * layer.hidden * (wide * c["sum_passes"])
    size = gathered + middle + summed
    slow = machine.dram * c["dram_efficiency"]
    stays = stays_in_l2(machine.l2_bytes * c["resident_share"], size)
    rate = slow + stays * np.maximum(machine.l2 * c["stream_l2_share"] - slow, 0.0)
    return size / rate + layer.tokens * layer.topk * c["choice_s"] + layer.experts * c["expert_s"]
