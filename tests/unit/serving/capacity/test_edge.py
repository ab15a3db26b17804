"""The edge of an objective from draws on both sides of it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import numpy as np
import pytest

from silicast.serving.capacity.edge import CLIP, NARROW, WIDE, crossing, edge_rate

DRAWS = len(WIDE) + len(NARROW)


def noisy(
    edge: float, slope: float, noise: float, seed: int
) -> Callable[[float], dict[str, float]]:
    """Draws whose excess is a power law of the rate, with noise of its logarithm."""
    draw = random.Random(seed)
    return lambda rate: {"p99": slope * math.log(rate / edge) + draw.gauss(0.0, noise)}


@pytest.mark.parametrize("guess", [0.8, 0.95, 1.0, 1.1])
def test_without_noise_the_edge_is_exact_from_any_near_guess(guess: float) -> None:
    assert edge_rate(50.0 * guess, noisy(50.0, 1.5, 0.0, 0)) == pytest.approx(50.0, rel=1e-9)


def test_the_error_is_that_of_all_draws_together() -> None:
    """The standard error of a line's zero is noise / slope / sqrt(draws); one draw alone has
    sqrt(10) = 3.2 times as much.
    """
    errors = [math.log(edge_rate(1.0, noisy(1.0, 2.0, 0.04, seed))) for seed in range(300)]
    assert abs(np.mean(errors)) < 0.003
    assert np.std(errors) == pytest.approx(0.04 / 2.0 / math.sqrt(DRAWS), rel=0.25)


def test_the_first_statistic_to_cross_is_the_edge() -> None:
    def excess(rate: float) -> dict[str, float]:
        return {"ttft": math.log(rate / 9.0), "tpot": 0.3 * math.log(rate / 8.0), "e2e": -0.01}

    assert edge_rate(8.5, excess) == pytest.approx(8.0)


def test_a_cliff_far_above_the_limit_counts_as_past_it_alone() -> None:
    def cliff(rate: float) -> dict[str, float]:
        return {"ttft": -CLIP if rate < 1.0 else 50.0}

    assert edge_rate(1.03, cliff) == pytest.approx(1.0, rel=0.02)


def test_what_falls_with_the_rate_limits_nothing_unless_it_is_above() -> None:
    rates = [1.0, 2.0]
    assert crossing(rates, [{"a": -0.1}, {"a": -0.2}]) > 2.0
    assert crossing(rates, [{"a": 0.2}, {"a": 0.1}]) < 1.0


def test_a_statistic_that_some_draws_lack_is_read_from_the_others() -> None:
    draws = [{"a": math.log(rate / 2.0)} if rate != 3.0 else {} for rate in (1.0, 3.0, 4.0)]
    assert crossing([1.0, 3.0, 4.0], draws) != 1.0
    near = [{"a": math.log(rate / 2.0)} if rate != 2.1 else {} for rate in (1.9, 2.1, 2.2)]
    assert crossing([1.9, 2.1, 2.2], near) == pytest.approx(2.0)
