"""Candidate kernels: even, different, within their ranges."""

from __future__ import annotations

import math

import pytest

from silicast.measurement.benches.ranges import Ranges, Size
from silicast.measurement.design.candidates import candidates_from
from silicast.scenario.kernels.kernel_case import kernel_case

PRODUCTS = Ranges(
    "gemm",
    {"m": Size(1, 8192), "n": Size(64, 16_384, multiple=64), "k": Size(64, 16_384, multiple=64)},
    {"dtype": ("bf16", "fp32"), "library": (None, "torch")},
)


@pytest.mark.parametrize("seed", [0, 7])
def test_they_are_different_understood_and_within_the_ranges(seed: int) -> None:
    candidates = candidates_from(PRODUCTS, 200, seed)
    assert len(candidates) == 200
    assert len({kernel_case(kernel).op for kernel in candidates}) == 200
    for kernel in candidates:
        assert 1 <= kernel["m"] <= 8192
        assert kernel["n"] % 64 == 0
        assert kernel["k"] % 64 == 0
        assert kernel.get("library", "torch") == "torch"
    assert candidates == candidates_from(PRODUCTS, 200, seed)
    assert candidates != candidates_from(PRODUCTS, 200, seed + 1)


def test_every_first_part_fills_every_octave_and_choice() -> None:
    result = candidates_from(PRODUCTS, 400, 0)[:65]
    octaves = [math.floor(math.log2(kernel["m"])) for kernel in result]
    # 13 octaves: five each if perfectly even
    assert all(2 <= octaves.count(octave) <= 9 for octave in range(13)), octaves
    assert 24 <= sum(kernel["dtype"] == "bf16" for kernel in result) <= 41


def test_sizes_are_usual_ones_and_odd_ones() -> None:
    sizes = [kernel["m"] for kernel in candidates_from(PRODUCTS, 400, 0)]
    large = [size for size in sizes if size > 64]
    odd = [size for size in large if size % 32]
    assert 0.05 * len(large) < len(odd) < 0.5 * len(large)


def test_ranges_that_hold_few_kernels_give_those() -> None:
    few = Ranges("softmax", {"rows": Size(1, 3, scale="linear"), "cols": Size(8, 8)},
                 {"dtype": ("fp32",)})  # fmt: skip
    candidates = candidates_from(few, 50, 0)
    assert sorted(kernel["rows"] for kernel in candidates) == [1, 2, 3]
