"""Each algorithm of a convolution as a product of stated sizes and traffic of stated bytes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from silicast.core.numerics import F64
from silicast.hardware.catalog import find_device
from silicast.kernels.convolution.conv2d_model import (
    NEVER_S,
    AlgorithmTimes,
    ConvolutionSetting,
    _by_taps,
    _taps_s,
    algorithms,
    every_algorithm,
    setting_of,
)
from silicast.kernels.convolution.conv2d_shapes import ConvolutionShape
from silicast.kernels.products.gemm_model import GemmSteps, evaluate
from silicast.workload.graphs.op import Variant

V100, H100 = find_device("V100-SXM2-16GB"), find_device("H100")
FLAGS = {
    "forward": (),
    "data": (("backward_data", True),),
    "weights": (("backward_weights", True),),
}
SIZES = {"batch": 4, "in_channels": 24, "out_channels": 64, "height": 30, "width": 26}


def setting(dtype: str, direction: str = "forward", **changed: Any) -> ConvolutionSetting:
    setting = setting_of(Variant(dtype, flags=FLAGS[direction]), V100 if dtype == "fp32" else H100)
    c = {**setting.c, "gather_share": 0.2, "overlap_loss": 0.3, "spread_share": 0.4, "kernels": 2.0,
         "launch_s": 3e-6, "fused_cost": 1.1, "unfused_cost": 1.3, "fft_cost": 1.6,
         "narrow_taps_per_clock": 8.0}  # fmt: skip
    return replace(setting, c=c, layout_share=0.5, **changed)


def shape(**other: int) -> ConvolutionShape:
    return ConvolutionShape.from_dims(
        {name: np.array([size]) for name, size in (SIZES | other).items()}
    )


def product_s(
    s: ConvolutionSetting, steps: GemmSteps, m: float, n: float, k: float, batch: float
) -> float:
    """Expected over tiles, by the 16th power of how close each is to the fastest."""
    rows: list[F64] = [np.array([[x]]) for x in (m, n, k, batch)]
    c = {**s.c, "launch_s": 0.0}
    times = evaluate(rows[0], rows[1], rows[2], rows[3], s.tiles, steps, s.rates, c).time[:, 0]
    weights = (times.min() / times) ** 16
    return float((weights * times).sum() / weights.sum())


def survives(capacity: float, other: float) -> float:
    return min(max(3.0 * capacity / other - 2.0, 0.0), 1.0)


def with_memory_s(
    s: ConvolutionSetting, x: ConvolutionShape, busy: float, between: float, kernels: float
) -> float:
    """Images, filters and results once, and what lies between kernels written and read."""
    moved = float((x.elements_in * s.rates.a_bytes + x.elements_filter * s.rates.b_bytes
                   + x.elements_out * s.rates.c_bytes)[0])  # fmt: skip
    remaining = 0.0 if s.cold else survives(s.l2_bytes, moved + between)
    outside = moved * (1 - remaining) + between * (1 - survives(s.l2_bytes, between / 2 + moved))
    memory = outside / s.dram + (moved + between - outside) / s.l2
    high, low = max(busy, memory), min(busy, memory)
    lost = 1.0 if between else 0.3
    return high + lost * low * low / high + 3e-6 * kernels


def runs(s: ConvolutionSetting, x: ConvolutionShape) -> dict[str, AlgorithmTimes]:
    return dict(zip(algorithms(s), every_algorithm(s, x), strict=True))


@pytest.mark.parametrize("l2_bytes", [1e3, 1.2e6, 1e9])
@pytest.mark.parametrize("direction", list(FLAGS))
@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_the_plain_sum_is_one_product_a_group(dtype: str, direction: str, l2_bytes: float) -> None:
    """Of 12 channels a group, padded to 16 on matrix units, and 9 taps; 15 x 13 results."""
    s = setting(dtype, direction, l2_bytes=l2_bytes)
    x = shape(groups=2, kernel=3, stride=2, padding=1)
    units = dtype == "fp16"
    inner, results = 16 if units else 12, 4 * 15 * 13
    waste = (1 + 0.4 * (4 - 1)) / 4  # of four phases of the stride
    m, n, k = {
        "forward": (results, 32, inner * 9),
        "data": (4 * 30 * 26, inner, math.ceil(32 * 9 * waste)),
        "weights": (32, inner * 9, results),
    }[direction]
    busy = product_s(s, s.steps, m, n, k, 2) * 1.2
    if units:
        copied = 4 * 24 * 30 * 26 * 2 + 4 * 64 * 15 * 13 * 2
        busy += 0.5 * copied / s.dram
    run = runs(s, x)["implicit"]
    assert float(run.time[0]) == pytest.approx(with_memory_s(s, x, busy, 0.0, 2.0), rel=1e-12)
    assert float(run.busy_s[0]) == pytest.approx(busy, rel=1e-12)


def test_few_channels_are_gathered_tap_by_tap() -> None:
    s = setting("fp16")
    thin, wide, point = (
        shape(in_channels=c, kernel=r, padding=r // 2) for c, r in ((3, 3), (8, 3), (3, 1))
    )
    results = 4 * 30 * 26
    for x, taps, extra in ((thin, 9, results * 9), (wide, 9, 0), (point, 1, 0)):
        busy = product_s(s, s.steps, results, 64, 8 * taps, 1) * (1.2 if taps > 1 else 1.0)
        busy += extra / (s.rates.cores * s.rates.clock_hz * 8.0)
        busy += 0.5 * float((x.elements_in + x.elements_out)[0]) * 2 / s.dram
        assert float(runs(s, x)["implicit"].busy_s[0]) == pytest.approx(busy, rel=1e-12)


@pytest.mark.parametrize("direction", list(FLAGS))
@pytest.mark.parametrize(("name", "taps", "tile"), [
    ("winograd-fused", 3, 2), ("winograd", 3, 4), ("winograd", 5, 4), ("fft", 3, 30),
    ("fft", 7, 26),
])  # fmt: skip
def test_transforms_make_many_small_products(
    direction: str, name: str, taps: int, tile: int
) -> None:
    """Tiles of results that overlap in their inputs; 36 points for 4 x 4 results of 3 x 3 taps."""
    s, x = setting("fp32", direction, l2_bytes=1.5e6), shape(kernel=taps, padding=taps // 2)
    tiles = 4 * math.ceil(30 / tile) * math.ceil(26 / tile)
    points = (tile + taps - 1) ** 2
    if name == "fft":
        points = 32 * 17  # half of a real signal's spectrum
        between, batch, cost = 16 * points * (tiles * (24 + 64) + 64 * 24), 4 * points, 1.6
    else:
        fused = name == "winograd-fused"
        between = (0 if fused else 8 * points * tiles * (24 + 64)) + 4 * points * 64 * 24
        batch, cost = points, 1.1 if fused else 1.3
    m, n, k = {
        "forward": (tiles, 64, 24), "data": (tiles, 24, 64), "weights": (64, 24, tiles)
    }[direction]  # fmt: skip
    busy = product_s(s, s.fast_steps, m, n, k, batch) * cost
    kernels = 2.0 if name == "winograd-fused" else 6.0
    run = runs(s, x)[name]
    assert float(run.time[0]) == pytest.approx(
        with_memory_s(s, x, busy, between, kernels), rel=1e-12
    )


@pytest.mark.parametrize(
    ("sizes", "apply"),
    [
        ({"kernel": 3}, {"winograd-fused", "winograd", "fft"}),
        ({"kernel": 5}, {"winograd", "fft"}),
        ({"kernel": 3, "stride_h": 2}, set()),
        ({"kernel_h": 3, "kernel_w": 5}, {"fft"}),
        ({"kernel": 16}, {"fft"}),
        ({"kernel_h": 3, "kernel_w": 17}, set()),
        ({"stride_w": 2}, set()),
        ({"kernel": 17}, set()),
    ],
)
def test_transforms_apply_to_filters_that_move_in_unit_steps(
    sizes: dict[str, int], apply: set[str]
) -> None:
    result = runs(setting("fp32"), shape(**sizes))
    quick = {name for name, each in result.items() if each.time[0] < NEVER_S}
    assert quick == {"implicit", "direct"} | apply


@pytest.mark.parametrize(("taps", "looped"), [(5, False), (7, True)])
def test_a_thread_a_result_runs_on_the_vector_units(taps: int, looped: bool) -> None:
    s, x = setting("fp32", looped_share=0.5), shape(kernel=taps, padding=taps // 2)
    operations = 2 * 4 * 30 * 26 * 64 * 24 * taps * taps
    blocks = min(math.ceil(operations / 2048), s.rates.cores)
    busy = operations / (s.fma * (0.5 if looped else 1.0)) * s.rates.cores / blocks
    run = runs(s, x)["direct"]
    assert float(run.time[0]) == pytest.approx(with_memory_s(s, x, busy, 0.0, 1.0), rel=1e-12)
    small = shape(batch=1, in_channels=1, out_channels=1, height=40, width=40, kernel=3)
    few = 2 * 38 * 38 * 9  # thirteen blocks of 1,024 threads
    busy = few / s.fma * s.rates.cores / 13
    assert float(runs(s, small)["direct"].busy_s[0]) == pytest.approx(busy, rel=1e-12)


DEPTHWISE = {"batch": 20, "in_channels": 256, "out_channels": 256, "groups": 256, "height": 28,
             "width": 28, "kernel": 3, "padding": 1}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "taken"),
    [
        ({}, True),
        ({"kernel": 7}, False),
        ({"kernel_h": 3, "kernel_w": 5}, False),
        ({"stride": 2}, True),
        ({"stride": 2, "width": 27}, False),  # 512 channels there
        ({"stride": 2, "kernel": 1}, False),
        ({"width": 7, "height": 7}, True),
        ({"width": 6}, False),
        ({"in_channels": 32, "out_channels": 32, "groups": 32}, True),
        ({"in_channels": 31, "out_channels": 31, "groups": 31}, False),
        ({"stride": 3}, False),
    ],
)
def test_which_gradients_of_depthwise_filters_a_library_takes(
    changed: dict[str, int], taken: bool
) -> None:
    half, single = setting("fp16", "weights"), setting("fp32", "weights")
    x = shape(**(DEPTHWISE | changed)).floats(columns=True)
    assert bool(_by_taps(half, x)[0]) is not taken
    assert bool(_by_taps(single, x)[0])
    dense = shape(kernel=7).floats(columns=True)
    assert not _by_taps(half, dense)[0]


def test_a_block_a_tap_by_hand() -> None:
    """20 images by eight warps: three rounds each; 784 results by 32 lanes: 25 steps."""
    s = setting("fp32", "weights")
    x = shape(**DEPTHWISE).floats(columns=True)
    rounds = math.ceil(256 * 9 / (s.rates.cores * 6))
    assert float(_taps_s(s, x)[0]) == pytest.approx(rounds * 3 * 25 * s.latency_s)
