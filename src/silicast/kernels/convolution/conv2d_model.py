"""How long each algorithm takes for a convolution, vectorised over tiles x rows.

implicit: the sum as one matrix product per group, gathered on the way: results x channels out x
(channels in x taps). Gradients of the input spread the result's gradient over the stride, so that
zeros are multiplied; gradients of filters sum over all results.
fused Winograd: F(2x2): 16 products in place of 36, transforms inside the kernel.
Winograd: F(4x4) in three steps, transformed images and results through memory.
fft: tiles of 32 x 32 in the frequency domain, likewise.
direct: one thread a result on the FMA pipe, for groups of few channels (depthwise). Where cuDNN has
no kernel for a depthwise gradient of filters, PyTorch's own gives each tap of a channel a block.

Each is a batch of matrix products with other traffic, so that the candidates, waves and splits are
those of :mod:`silicast.kernels.products.gemm_model`. See docs/explanation/convolution.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import final

import numpy as np
from numpy.typing import NDArray

from silicast.core.dtypes import RECIPES, Recipe
from silicast.core.numerics import F64, I64, smooth_max
from silicast.hardware.device import Device
from silicast.kernels.convolution.conv2d_shapes import ConvolutionShape
from silicast.kernels.movement.streaming_rates import memory_latency_s
from silicast.kernels.physics.constants import load_physics
from silicast.kernels.physics.device_rates import cache_rate, data_rate
from silicast.kernels.products.candidates import CandidateTiles, product_tiles
from silicast.kernels.products.gemm_model import GemmRates, GemmSteps, evaluate, stays_in_l2
from silicast.workload.graphs.op import Variant

PHYSICS = "conv2d"

ALWAYS = ("implicit", "direct")
ALGORITHMS = ("implicit", "winograd-fused", "winograd", "fft", "direct")
"""All; matrix units outrun the transforms of the fast ones, and transformed integers need more bits
than 8, so that those run :data:`ALWAYS` only."""

FORWARD, DATA, WEIGHTS = "forward", "data", "weights"

ALIGNMENT = 8.0
"""Channels of a tap that tensor cores take together: fewer are padded."""

FFT_TILE = 32.0
WARPS_OF_TAP, BLOCKS_OF_TAP = 8.0, 6.0
"""Warps in a block of PyTorch's depthwise gradient of filters, and such blocks on a core."""
NEVER_S = 1e30
"""Time of an algorithm that does not apply."""


def pass_of(variant: Variant) -> str:
    """Which of the three products of a layer a variant asks for.

    >>> pass_of(Variant(flags=(("backward_data", True),)))
    'data'
    """
    if variant.flag("backward_data"):
        return DATA
    return WEIGHTS if variant.flag("backward_weights") else FORWARD


@final
@dataclass(frozen=True)
class ConvolutionSetting:
    """All that rows of one batch share.

    Attributes:
        recipe, pipe: formats and the pipe that multiplies.
        direction: forward, data or weights.
        c: constants of the architecture, those of the pipe and the direction put over the others.
        tiles: candidates.
        rates: rates; its memory is infinite, for traffic is counted here.
        steps: of the plain product; ``fast_steps`` of products between transforms.
        dram, l2: bytes per second achieved; l2_bytes: what stays from call to call.
        fma: operations per second of the FMA pipe.
        layout_share: of images and results, how much is written and read once more because tensor
            cores take channels beside each other, and these lie otherwise.
        latency_s: a read of memory by one thread.
        last: channels lie beside each other in memory.
        looped_share: of ``fma``, what direct kernels reach with filters that they do not unroll:
            those wider than ``widest_unrolled``.
    """

    recipe: Recipe
    pipe: str
    direction: str
    c: Mapping[str, float]
    tiles: CandidateTiles
    rates: GemmRates
    steps: GemmSteps
    fast_steps: GemmSteps
    dram: float
    l2: float
    l2_bytes: float
    fma: float
    cold: bool
    latency_s: float
    last: bool
    layout_share: float
    looped_share: float
    widest_unrolled: float


@lru_cache(maxsize=1024)
def setting_of(variant: Variant, device: Device) -> ConvolutionSetting:
    """The setting of one variant on one device.

    Raises:
        SilicastError: the device does not multiply in the format.
    """
    return setting_with(variant, device, load_physics(PHYSICS).constants(device.architecture))


def setting_with(
    variant: Variant, device: Device, table: Mapping[str, float]
) -> ConvolutionSetting:
    """The setting under a flat table of constants ("tensor.share" entries included)."""
    recipe = RECIPES[variant.dtype]
    pipe = device.matrix_pipe(recipe.compute)
    direction = pass_of(variant)
    c = selected(table, pipe, recipe.name, direction)
    tiles = product_tiles(
        device.architecture,
        pipe,
        c["smallest_tile_m"],
        c["smallest_tile_n"],
        compute=recipe.compute,
    )
    rates = replace(GemmRates.from_device(device, recipe, pipe, variant, c), dram=float("inf"))
    plain = {**c, "tensor_efficiency": c["efficiency"] * c["share"]}
    fast = {**c, "tensor_efficiency": c["efficiency"] * c["fast_share"]}
    return ConvolutionSetting(
        recipe=recipe,
        pipe=pipe,
        direction=direction,
        c=c,
        tiles=tiles,
        rates=rates,
        steps=GemmSteps.from_rates(tiles, rates, plain),
        fast_steps=GemmSteps.from_rates(tiles, rates, fast),
        dram=data_rate(device) * c["dram_efficiency"],
        l2=cache_rate(device) * c["l2_efficiency"],
        l2_bytes=device.l2.capacity_bytes * c["resident_share"],
        fma=device.peak_per_s("fma", "fp32") * c["direct_share"],
        cold=variant.cache == "cold",
        latency_s=memory_latency_s(device, device.clocks.boost_hz),
        last=variant.flag("channels_last"),
        layout_share=0.0 if variant.flag("channels_last") else c["layout_share"],
        looped_share=c["looped_last_share" if variant.flag("channels_last") else "looped_share"],
        widest_unrolled=7.0 if variant.flag("channels_last") else 5.0,
    )


UNUSED = {
    "page_miss_share": 0.0, "page_reach_bytes": 1.0, "fill_s": 0.0, "extra_s": 0.0, "l2_share": 1.0,
    "narrow_taps_per_clock": 0.0, "smallest_tile_m": 0.0, "smallest_tile_n": 0.0,
    "core_dram_bytes_per_s": float("inf"), "l2_bytes_per_clock_per_core": 32.0,
    "layout_share": 0.0, "looped_share": 1.0, "looped_last_share": 1.0,
}  # fmt: skip
"""What the model of plain products asks for and is counted here, or not at all."""


def selected(table: Mapping[str, float], pipe: str, dtype: str, direction: str) -> dict[str, float]:
    """Constants under plain names: those of the pipe, the format, then the direction win.

    >>> selected({"a": 1.0, "tensor.a": 2.0, "data.a": 3.0}, "tensor", "fp16", "data")["a"]
    3.0
    """
    selected = dict(UNUSED)
    for prefix in ("", f"{pipe}.", f"{dtype}.", f"{direction}.", f"{pipe}.{direction}."):
        for name, value in table.items():
            head, dot, plain = name.rpartition(".")
            if head + dot == prefix:
                selected[plain] = value
    return selected


@final
@dataclass(frozen=True)
class AlgorithmTimes:
    """What one algorithm would do; arrays of shape (rows,), seconds.

    Attributes:
        time: without the launch protocol's share.
        busy_s, dram_s: of the products with their operands, and of main memory.
        issued: operations on the matrix pipe, padding included.
        dram_bytes: traffic with main memory.
        blocks: thread blocks of the products.
    """

    time: F64
    busy_s: F64
    dram_s: F64
    issued: F64
    dram_bytes: F64
    blocks: F64


def algorithms(setting: ConvolutionSetting) -> tuple[str, ...]:
    """Those that a format runs on its pipe, in the order of :func:`every_algorithm`."""
    transforms = setting.pipe == "fma" and not setting.recipe.compute.startswith("int")
    return ALGORITHMS if transforms else ALWAYS


def every_algorithm(setting: ConvolutionSetting, shape: ConvolutionShape) -> list[AlgorithmTimes]:
    """All of :func:`algorithms`, in that order."""
    f = shape.floats(columns=True)
    always = [_implicit(setting, f), _direct(setting, f)]
    if algorithms(setting) == ALWAYS:
        return always
    unit = (f.stride_h * f.stride_w == 1.0)[0]
    square = unit & (f.r == f.s)[0]
    three, five = square & (f.r == 3.0)[0], square & (f.r == 5.0)[0]
    small = unit & (np.maximum(f.r, f.s) <= FFT_TILE / 2.0)[0]
    return [
        always[0],
        _where(three, f, lambda shapes: _winograd(setting, shapes, 2.0, fused=True)),
        _where(three | five, f, lambda shapes: _winograd(setting, shapes, 4.0, fused=False)),
        _where(small, f, lambda shapes: _fft(setting, shapes)),
        always[1],
    ]


def _where(
    fits: NDArray[np.bool_], f: ConvolutionShape, run: Callable[[ConvolutionShape], AlgorithmTimes]
) -> AlgorithmTimes:
    """An algorithm on the rows that it applies to; on the others it takes forever."""
    rows = np.flatnonzero(fits)
    if len(rows) == len(fits):
        return run(f)
    none = np.zeros(len(fits))
    where = AlgorithmTimes(np.full(len(fits), NEVER_S), none, none, none, none, none)
    if not len(rows):
        return where
    part = run(ConvolutionShape(**{name: sizes[:, rows] for name, sizes in vars(f).items()}))
    spread = {name: values.copy() for name, values in vars(where).items()}
    for name, values in vars(part).items():
        spread[name][rows] = values
    return AlgorithmTimes(**spread)


def expected(founds: list[AlgorithmTimes]) -> tuple[F64, I64]:
    """Expected time over algorithms, by how close each is to the fastest; and which that is."""
    times = np.stack([algorithm.time for algorithm in founds])
    return closest(times), times.argmin(axis=0)


def called(time: F64, c: Mapping[str, float]) -> F64:
    """Calls one by one: where kernels are short, the host's time for a call sets the pace."""
    return smooth_max((time, np.full_like(time, c["stream_call_s"])))


def closest(times: F64) -> F64:
    """Mean of alternatives (first axis), weighted by the 16th power of fastest over own time."""
    weight = times.min(axis=0) / times
    for _ in range(4):
        weight = weight * weight
    total, norm = weight[0] * times[0], weight[0]
    for time, item in zip(times[1:], weight[1:], strict=True):
        total, norm = total + item * time, norm + item
    mean: F64 = total / norm
    return mean


def _product(
    setting: ConvolutionSetting, steps: GemmSteps, m: F64, n: F64, k: F64, batch: F64
) -> tuple[F64, F64, F64]:
    """Expected time, operations issued and blocks of matrix products; each of shape (rows,)."""
    c = {**setting.c, "launch_s": 0.0}
    result = evaluate(m, n, k, batch, setting.tiles, steps, setting.rates, c)
    best = result.time.argmin(axis=0)
    position = best * m.shape[1] + np.arange(m.shape[1])
    blocks, block_steps = result.blocks.take(position), result.block_steps.take(position)
    return closest(result.time), blocks * block_steps * steps.operations.take(best), blocks


def _implicit(setting: ConvolutionSetting, f: ConvolutionShape) -> AlgorithmTimes:
    """One product a group, its operands gathered on the way."""
    c, taps = setting.c, f.r * f.s
    inner, outer = f.c_of_group, f.k_of_group
    if setting.pipe == "tensor":
        inner = np.ceil(inner / ALIGNMENT) * ALIGNMENT
    if setting.direction == FORWARD:
        m, n, k = f.n * f.p * f.q, outer, inner * taps
    elif setting.direction == DATA:
        spread = f.stride_h * f.stride_w
        waste = (1.0 + c["spread_share"] * (spread - 1.0)) / spread
        m, n, k = f.n * f.h * f.w, inner, np.ceil(outer * taps * waste)
    else:
        m, n, k = outer, inner * taps, f.n * f.p * f.q
    busy, issued, blocks = _product(setting, setting.steps, m, n, k, f.groups)
    busy = busy * (1.0 + np.where(taps > 1.0, c["gather_share"], 0.0)[0])
    if c["narrow_taps_per_clock"] > 0.0:
        narrow = (f.c_of_group < ALIGNMENT) & (taps > 1.0)
        rate = setting.rates.cores * setting.rates.clock_hz * c["narrow_taps_per_clock"]
        busy = busy + np.where(narrow, f.n * f.p * f.q * taps * f.groups / rate, 0.0)[0]
    if setting.pipe == "tensor" and setting.layout_share:
        images = (f.elements_in * setting.rates.a_bytes + f.elements_out * setting.rates.c_bytes)[0]
        busy = busy + setting.layout_share * images / setting.dram
    return _with_memory(setting, f, busy, issued, blocks, 0.0, c["kernels"])


def _winograd(
    setting: ConvolutionSetting, f: ConvolutionShape, tile: float, *, fused: bool
) -> AlgorithmTimes:
    """Products of transformed tiles: ``tile`` x ``tile`` results from overlapping inputs."""
    side = tile + f.r - 1.0
    points = side * side
    down, across = (f.h, f.w) if setting.direction == DATA else (f.p, f.q)
    tiles = f.n * np.ceil(down / tile) * np.ceil(across / tile)
    sizes = (tiles, f.k_of_group, f.c_of_group)
    between = 0.0 if fused else 2.0 * 4.0 * points * tiles * (f.c + f.k)
    between = between + 4.0 * points * f.k * f.c_of_group
    name = "fused" if fused else "unfused"
    return _transformed(setting, f, sizes, points * f.groups, between, name)


def _fft(setting: ConvolutionSetting, f: ConvolutionShape) -> AlgorithmTimes:
    """Tiles of 32 x 32 in the frequency domain: half the spectrum, four real products each."""
    down, across = (f.h, f.w) if setting.direction == DATA else (f.p, f.q)
    results_h = np.maximum(FFT_TILE + 1.0 - f.r, 1.0)
    results_w = np.maximum(FFT_TILE + 1.0 - f.s, 1.0)
    tiles = f.n * np.ceil(down / results_h) * np.ceil(across / results_w)
    points = FFT_TILE * (FFT_TILE / 2.0 + 1.0)
    sizes = (tiles, f.k_of_group, f.c_of_group)
    between = 2.0 * 8.0 * points * (tiles * (f.c + f.k) + f.k * f.c_of_group)
    return _transformed(setting, f, sizes, 4.0 * points * f.groups, between, "fft")


def _transformed(
    setting: ConvolutionSetting,
    f: ConvolutionShape,
    sizes: tuple[F64, F64, F64],
    batch: F64,
    between: F64,
    name: str,
) -> AlgorithmTimes:
    """Products between transforms: tiles x channels out x channels in, many small ones.

    A gradient of filters sums over tiles, one of the input swaps the channels.
    """
    tiles, outer, inner = sizes
    m, n, k = tiles, outer, inner
    if setting.direction == DATA:
        m, n, k = tiles, inner, outer
    elif setting.direction == WEIGHTS:
        m, n, k = outer, inner, tiles
    busy, issued, blocks = _product(setting, setting.fast_steps, m, n, k, batch)
    busy = busy * setting.c[f"{name}_cost"]
    kernels = setting.c["kernels"] * (1.0 if name == "fused" else 3.0)
    return _with_memory(setting, f, busy, issued, blocks, between, kernels)


def _direct(setting: ConvolutionSetting, f: ConvolutionShape) -> AlgorithmTimes:
    """One thread a result: no padding of channels, no reuse beyond registers."""
    operations = (2.0 * f.n * f.p * f.q * f.k * f.c_of_group * f.r * f.s)[0]
    cores = setting.rates.cores
    blocks = np.ceil(operations / (2.0 * 1024.0))
    looped = (np.maximum(f.r, f.s) > setting.widest_unrolled)[0]
    rate = setting.fma * np.where(looped, setting.looped_share, 1.0)
    busy = operations / rate * (cores / np.minimum(blocks, cores))
    if setting.direction == WEIGHTS and not setting.last:
        busy = np.maximum(busy, np.where(_by_taps(setting, f), _taps_s(setting, f), 0.0))
    return _with_memory(setting, f, busy, operations, blocks, 0.0, 1.0)


def _by_taps(setting: ConvolutionSetting, f: ConvolutionShape) -> NDArray[np.bool_]:
    """Whether PyTorch computes a depthwise gradient itself (ATen's use_cudnn_depthwise)."""
    depthwise = (f.groups == f.c) & (f.c > 1.0)
    square = (f.r == f.s) & ((f.r == 1.0) | (f.r == 3.0) | (f.r == 5.0))
    strided = (f.stride_h == 2.0) & (f.r > 1.0) & (f.c >= np.where(f.w >= 28.0, 256.0, 512.0))
    covered = square & (f.c >= 32.0) & (f.w >= 7.0) & ((f.stride_h == 1.0) | strided)
    if setting.recipe.compute not in ("fp16", "bf16"):
        covered = np.zeros_like(covered)
    taps: NDArray[np.bool_] = (depthwise & ~covered)[0]
    return taps


def _taps_s(setting: ConvolutionSetting, f: ConvolutionShape) -> F64:
    """Its blocks: each warp takes every eighth image, its lanes walk over the image's results."""
    steps = np.ceil(f.n / WARPS_OF_TAP) * np.ceil(f.p * f.q / 32.0)
    rounds = np.ceil(f.k * f.r * f.s / (setting.rates.cores * BLOCKS_OF_TAP))
    seconds: F64 = (rounds * steps)[0] * setting.latency_s
    return seconds


def _with_memory(
    setting: ConvolutionSetting,
    f: ConvolutionShape,
    busy: F64,
    issued: F64,
    blocks: F64,
    between: F64 | float,
    kernels: float,
) -> AlgorithmTimes:
    """Products with traffic of images, filters and what is kept between kernels."""
    c, rates = setting.c, setting.rates
    images = (f.elements_in * rates.a_bytes)[0]
    results = (f.elements_out * rates.c_bytes)[0]
    moved = images + results + (f.elements_filter * rates.b_bytes)[0]
    extra = np.zeros_like(moved) + np.asarray(between).reshape(-1)
    resident = 0.0 if setting.cold else stays_in_l2(setting.l2_bytes, moved + extra)
    missing = 1.0 - stays_in_l2(setting.l2_bytes, 0.5 * extra + moved)
    outside = moved * (1.0 - resident) + extra * missing
    memory = outside / setting.dram + (moved + extra - outside) / setting.l2
    high, low = np.maximum(busy, memory), np.minimum(busy, memory)
    # kernels of an algorithm in steps do not overlap with each other
    lost = np.where(extra > 0.0, 1.0, c["overlap_loss"])
    time = high + lost * low * low / np.maximum(high, 1e-30) + c["launch_s"] * kernels
    return AlgorithmTimes(time, busy, outside / setting.dram, issued, outside, blocks)
