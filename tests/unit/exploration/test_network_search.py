"""A search finds what trying every network finds, keeps the budget, and repeats itself."""

from __future__ import annotations

import numpy as np

from silicast.core.numerics import F64, I64
from silicast.exploration.network_search import search_networks
from silicast.learning.known_latencies import usual_ranks
from silicast.workload.spaces import space_named

FBNET = space_named("fbnet")


def test_a_small_space_is_tried_as_a_whole() -> None:
    space = space_named("nasbench201")
    result = search_networks(
        space,
        lambda choices: usual_ranks(space, choices),
        space.multiplications,
        budget_ms=1.0,
        evaluations=20_000,
        count=5,
        seed=0,
    )
    every = space.every(20_000, 0)
    inside = usual_ranks(space, every) <= 1.0
    assert result.evaluated == 5**6
    assert result.within == inside.sum()
    assert result.values[0] == space.multiplications(every)[inside].max()
    assert (result.latencies <= 1.0).all()


def cost(choices: I64) -> F64:
    """Of a device where each option costs its number."""
    total: F64 = choices.sum(axis=1).astype(np.float64)
    return total


def gain(choices: I64) -> F64:
    """Best where all positions have option 4."""
    away: F64 = np.abs(choices - 4).sum(axis=1).astype(np.float64)
    return -away


def test_generations_beat_random_networks_and_repeat() -> None:
    first, again = (
        search_networks(FBNET, cost, gain, budget_ms=80.0, evaluations=6_000, count=3, seed=7)
        for _ in range(2)
    )
    random = FBNET.every(6_000, 7)
    best_random = gain(random)[cost(random) <= 80.0].max()
    assert first.values[0] > best_random + 5
    assert (first.latencies <= 80.0).all()
    assert (first.choices == again.choices).all()
    assert len(np.unique(first.choices, axis=0)) == 3
