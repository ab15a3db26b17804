"""Distributions of lengths: moments, bounds, and how SGLang's client draws a range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from silicast.core.errors import SilicastError
from silicast.serving.traffic.lengths import INPUTS, OUTPUTS, ZIPF_RANKS, in_range, lengths, stream

COUNT = 200_000
CASES: dict[str, tuple[dict[str, Any], float, float]] = {
    "fixed": ({"value": 77}, 77.0, 0.0),
    "uniform": ({"min": 101, "max": 300}, 200.5, (200**2 - 1) ** 0.5 / 12**0.5),
    "normal": ({"mean": 1000.0, "std": 100.0}, 1000.0, 100.0),
    "lognormal": (
        {"median": 1000.0, "sigma": 0.5},
        1000.0 * np.exp(0.125),
        1000.0 * np.exp(0.125) * np.sqrt(np.expm1(0.25)),
    ),
    "gamma": ({"mean": 800.0, "std": 400.0}, 800.0, 400.0),
    "exponential": ({"mean": 5000.0}, 5000.0, 5000.0),
    "values": ({"values": [10, 20, 60]}, 30.0, 21.602),
}


def drawn(kind: str, numbers: dict[str, Any], count: int = COUNT, seed: int = 1) -> Any:
    return lengths(kind, count, numbers, stream(seed, INPUTS))


@pytest.mark.parametrize("kind", CASES)
def test_mean_and_deviation_are_those_asked_for(kind: str) -> None:
    numbers, mean, std = CASES[kind]
    result = drawn(kind, numbers)
    assert result.mean() == pytest.approx(mean, abs=5 * std / COUNT**0.5 + 1e-3)
    assert result.std() == pytest.approx(std, rel=0.02, abs=1e-3)


@pytest.mark.parametrize("kind", [*CASES, "zipf"])
def test_more_lengths_begin_with_the_same_ones(kind: str) -> None:
    numbers = CASES[kind][0] if kind in CASES else {"min": 1, "max": 900, "exponent": 1.1}
    assert (drawn(kind, numbers, 500)[:70] == drawn(kind, numbers, 70)).all()


def test_lengths_beyond_a_bound_count_as_the_bound() -> None:
    result = drawn("lognormal", {"median": 1024.0, "sigma": 0.8, "min": 500, "max": 3584})
    free = drawn("lognormal", {"median": 1024.0, "sigma": 0.8})
    assert (result == np.clip(free, 500, 3584)).all()
    assert (result == 3584).mean() == pytest.approx(0.0587, abs=0.003)


def test_no_length_is_below_one() -> None:
    assert drawn("normal", {"mean": 1.0, "std": 10.0}).min() == 1
    assert drawn("exponential", {"mean": 0.01}).max() == 1


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0, 6.0])
def test_zipf_follows_its_power(exponent: float) -> None:
    result = drawn("zipf", {"min": 10, "max": 10_009, "exponent": exponent})
    weights = np.arange(1.0, 10_001.0) ** -exponent
    weights /= weights.sum()
    expected = (weights * np.arange(10, 10_010)).sum()
    deviation = np.sqrt((weights * (np.arange(10, 10_010) - expected) ** 2).sum() / COUNT)
    assert result.mean() == pytest.approx(expected, abs=5 * deviation)
    assert (result == 10).mean() == pytest.approx(weights[0], abs=0.006)
    assert result.min() >= 10
    assert result.max() <= 10_009


def test_zipf_over_too_many_lengths_is_refused() -> None:
    with pytest.raises(SilicastError, match="at most"):
        drawn("zipf", {"min": 1, "max": ZIPF_RANKS + 1, "exponent": 1.0}, 1)


@pytest.mark.parametrize(("ratio", "low"), [(0.0, 1), (0.8, 819), (0.999, 1022), (1.0, 1024)])
def test_a_range_goes_from_its_share_up_to_the_length(ratio: float, low: int) -> None:
    """``compute_random_lens`` of SGLang's client: randint(max(int(L r), 1), L + 1)."""
    result = in_range(1024, ratio, COUNT, stream(0, INPUTS))
    assert (result.min(), result.max()) == (low, 1024)
    assert result.mean() == pytest.approx((low + 1024) / 2, rel=0.01)


def test_streams_are_apart_and_seeds_tell() -> None:
    same = [stream(seed, use).random(4).tolist() for seed, use in ((0, INPUTS), (0, INPUTS))]
    assert same[0] == same[1]
    others = [stream(seed, use).random(4).tolist() for seed, use in ((1, INPUTS), (0, OUTPUTS))]
    assert same[0] not in others


def test_values_keep_their_order_so_that_pairs_stay_together() -> None:
    assert drawn("values", {"values": [5, 3, 9]}, 7).tolist() == [5, 3, 9, 5, 3, 9, 5]
