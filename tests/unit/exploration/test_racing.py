"""Races keep what they state: how often the best is dropped, and what they save."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from silicast.core.numerics import F64
from silicast.exploration.racing import _better, race


def noisy(means: F64, together: float, alone: float, salt: int) -> object:
    """Values with noise that all candidates share in a seed, and noise of their own."""

    def simulate(candidates: Sequence[int], seeds: Sequence[int]) -> F64:
        shared = np.array([np.random.default_rng([salt, seed]).normal() for seed in seeds])
        table = np.empty((len(candidates), len(seeds)))
        for row, each in enumerate(candidates):
            random = np.random.default_rng([salt, each + 1, seeds[0]])
            own = random.normal(size=len(seeds))
            table[row] = means[each] + together * shared + alone * own
        return table

    return simulate


def test_the_best_is_dropped_as_often_as_is_stated() -> None:
    missed, stated, saved = 0, [], []
    for salt in range(60):
        random = np.random.default_rng(salt)
        means = random.lognormal(0.0, 0.3, 100)
        result = race(100, noisy(means, 0.3, 0.1, salt))  # type: ignore[arg-type]
        missed += result.order[0] != int(np.argmin(means))
        stated.append(result.lost)
        saved.append(result.simulations / result.exhaustive)
    expected = sum(stated)
    band = 2.6 * math.sqrt(sum(p * (1.0 - p) for p in stated))
    assert abs(missed - expected) <= band
    assert 0.0 < np.mean(stated) < 0.2
    assert max(saved) < 0.1


def test_noise_that_all_share_costs_nothing() -> None:
    """Without common random numbers a spread of 0.5 would hide differences of 0.01."""
    means = np.linspace(1.0, 1.5, 50)
    result = race(50, noisy(means, 0.5, 1e-9, 3))  # type: ignore[arg-type]
    assert result.order[0] == 0
    assert result.lost < 1e-3


def test_what_cannot_be_is_dropped_first_and_costs_no_doubt() -> None:
    def simulate(candidates: Sequence[int], seeds: Sequence[int]) -> F64:
        table = np.array([[float(each) for _ in seeds] for each in candidates])
        table[table == 0.0] = np.inf
        return table

    result = race(4, simulate)
    assert (result.order[0], result.order[-1], result.lost) == (1, 0, 0.0)
    assert result.simulations == 4 * 4 + 2 * 4  # 4 candidates with 4 seeds, 2 with 8
    assert result.exhaustive == 4 * 8


def test_one_candidate_wins() -> None:
    assert race(1, lambda _, seeds: np.ones((1, len(seeds)))).order == (0,)
    with pytest.raises(ValueError, match="one candidate"):
        race(0, lambda _, seeds: np.ones((0, len(seeds))))


@pytest.mark.parametrize(("quantile", "chance"), [(1.363, 0.1), (0.697, 0.25), (0.0, 0.5)])
def test_a_mean_of_a_few_differences_has_a_student_distribution(
    quantile: float, chance: float
) -> None:
    """Quantiles of a table, 11 degrees of freedom: 4 differences and 8 of moderation. One candidate
    is the middle one itself, so that its spread stays what it is.
    """
    apart = np.array([-1.0, 1.0, -1.0, 1.0])
    error = float(apart.std(ddof=1)) / 2.0
    (better,) = _better((apart + quantile * error)[None, :])
    assert better == pytest.approx(chance, abs=0.004)
