"""Fixed-order numerics: accuracy, and the same bits alone and in any batch."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from silicast.core.numerics import ceil_div, exp_fixed, smooth_max


def test_exponential_is_accurate_over_its_range() -> None:
    x = np.linspace(-20, 20, 4001)
    assert np.max(np.abs(exp_fixed(x) / np.exp(x) - 1)) < 1e-10


@given(st.lists(st.floats(-20, 20), min_size=1, max_size=40))
def test_exponential_has_the_same_bits_alone_and_in_a_batch(values: list[float]) -> None:
    batch = exp_fixed(np.array(values))
    assert [exp_fixed(np.array([v]))[0] for v in values] == batch.tolist()


@given(st.integers(0, 10**12), st.integers(1, 10**6))
def test_ceil_div_is_the_ceiling(a: int, b: int) -> None:
    assert ceil_div(np.array([a]), b)[0] == (a + b - 1) // b


def test_smooth_max_lies_between_the_maximum_and_the_sum() -> None:
    a, b = np.array([1.0, 5.0]), np.array([1.0, 0.1])
    smooth = smooth_max([a, b])
    assert np.all(smooth >= np.maximum(a, b))
    assert np.all(smooth <= a + b)
