"""Bounds leave out what cannot be the best, and never the best."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.exploration.racing import prune
from tests.sampling import seeds


@pytest.mark.parametrize("seed", seeds(50))
def test_fifty_spaces_keep_the_exhaustive_optimum(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 2001))
    values = np.exp(rng.normal(0.0, 1.0, count))
    values[rng.random(count) < 0.1] = math.inf  # refused points
    bounds = np.where(np.isinf(values), 1.0, values) * rng.uniform(0.3, 1.0, count)
    bounds[rng.random(count) < 0.05] = -math.inf  # nothing is known
    asked: list[int] = []

    def evaluate(some: Sequence[int]) -> list[float]:
        asked.extend(some)
        return [float(values[each]) for each in some]

    result = prune(bounds.tolist(), evaluate, together=int(rng.integers(1, 9)))
    if np.isinf(values).all():
        assert len(asked) == count
        return
    assert values[result.order[0]] == values.min()
    assert sorted([*asked, *result.pruned]) == list(range(count))  # each once, or left out
    assert all(bounds[each] >= values.min() for each in result.pruned)
    if count > 100:
        assert len(asked) < count / 2


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12))
def test_ties_and_tight_bounds(pairs: list[tuple[int, int]]) -> None:
    values = [float(bound + more) for bound, more in pairs]
    result = prune([float(bound) for bound, _ in pairs], lambda some: [values[i] for i in some])
    assert values[result.order[0]] == min(values)


def test_bounds_that_are_the_values_take_one_evaluation() -> None:
    values = [3.0, 1.0, 2.0]
    result = prune(values, lambda some: [values[each] for each in some])
    assert result.values == {1: 1.0}
    assert result.pruned == (0, 2)


def test_nothing_that_can_be() -> None:
    result = prune([1.0, 2.0], lambda some: [math.inf for _ in some])
    assert result.values == {0: math.inf, 1: math.inf}
    assert result.pruned == ()
