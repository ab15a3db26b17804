"""The edge of an objective from draws on both sides of it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import numpy as np
import pytest

from silicast.serving.capacity.edge import (
    CLIP,
    FARTHEST,
    FEW,
    MARGINS,
    NARROW,
    ROUNDS,
    RUNS,
    SURE,
    WIDE,
    ObjectiveEdge,
    crossing,
    edge_rate,
    kept_by_fresh,
)


def noisy(
    edge: float, slope: float, noise: float, seed: int
) -> Callable[[float], dict[str, float]]:
    """Draws whose excess is a power law of the rate, with noise of its logarithm."""
    draw = random.Random(seed)
    return lambda rate: {"p99": slope * math.log(rate / edge) + draw.gauss(0.0, noise)}


@pytest.mark.parametrize("guess", [0.8, 0.95, 1.0, 1.1])
def test_without_noise_the_edge_is_exact_from_any_near_guess(guess: float) -> None:
    edge = edge_rate(50.0 * guess, noisy(50.0, 1.5, 0.0, 0))
    assert edge.rate_per_s == pytest.approx(50.0, rel=1e-9)
    assert edge.draws == len(WIDE) + len(NARROW)  # sure at once
    assert edge.margin == MARGINS[0]


def test_the_error_is_that_of_all_draws_together() -> None:
    """The standard error of a line's zero is noise / slope / sqrt(draws): 12 draws have 0.29 of
    what one has; both are known from how far the draws are off the line.
    """
    edges = [edge_rate(1.0, noisy(1.0, 2.0, 0.1, seed)) for seed in range(300)]
    draws = len(WIDE) + ROUNDS * len(NARROW)
    errors = [math.log(edge.rate_per_s) for edge in edges if edge.draws == draws]
    assert len(errors) > 200
    assert abs(np.mean(errors)) < 0.003
    assert np.std(errors) == pytest.approx(0.1 / 2.0 / math.sqrt(draws), rel=0.25)
    assert np.mean([edge.error for edge in edges]) == pytest.approx(np.std(errors), rel=0.25)
    assert np.mean([edge.spread for edge in edges]) == pytest.approx(0.05, rel=0.2)


@pytest.mark.parametrize("slope", [0.4, 2.0, 15.0])
def test_steep_statistics_bias_nothing(slope: float) -> None:
    """A draw counts by its rate, not by what it came to: those far above their limit are as many
    as those far below.
    """
    edges = [edge_rate(1.05, noisy(1.0, slope, 0.02 * slope, seed)) for seed in range(300)]
    errors = [math.log(edge.rate_per_s) for edge in edges]
    assert abs(np.mean(errors)) < 0.004
    assert np.std(errors) < 0.016


def test_draws_go_on_until_the_edge_is_sure() -> None:
    edges = [edge_rate(1.0, noisy(1.0, 1.0, noise, 3)) for noise in (0.01, 0.12)]
    assert edges[0].error <= SURE < edges[1].error
    assert edges[0].draws < edges[1].draws == len(WIDE) + ROUNDS * len(NARROW)


def test_the_margin_is_that_of_fresh_runs_together() -> None:
    """At the margin below the edge, runs taken together break the limit in one case of twenty."""
    edge = ObjectiveEdge(1.0, spread=0.02, error=0.01)
    draw = random.Random(1)
    broken = [
        sum(draw.gauss(0.0, edge.spread) for _ in range(RUNS)) / RUNS + draw.gauss(0.0, edge.error)
        > edge.margin
        for _ in range(20_000)
    ]
    assert np.mean(broken) == pytest.approx(0.05, abs=0.006)


def test_the_first_statistic_to_cross_is_the_edge() -> None:
    def excess(rate: float) -> dict[str, float]:
        return {"ttft": math.log(rate / 9.0), "tpot": 0.3 * math.log(rate / 8.0), "e2e": -0.01}

    assert edge_rate(8.5, excess).rate_per_s == pytest.approx(8.0)


@pytest.mark.parametrize("guess", [1.7, 0.55])
def test_a_guess_that_is_far_off_is_left_behind(guess: float) -> None:
    """Of 1.7 times the edge the first eight draws are all far above it: they say that it is lower,
    and no more.
    """
    edges = [edge_rate(guess, noisy(1.0, 9.0, 0.1, seed)) for seed in range(50)]
    assert max(abs(math.log(edge.rate_per_s)) for edge in edges) < 0.02
    assert all(0.0 < edge.error < 0.02 for edge in edges)


def test_an_edge_beyond_all_draws_is_unsure() -> None:
    rates = [1.0, 1.1, 1.2, 1.3]
    for excess in (-0.5, 0.5):
        edge = crossing(rates, [{"a": excess}] * 4)
        assert not min(rates) <= edge.rate_per_s <= max(rates)
        assert edge.error == pytest.approx(FARTHEST - 1.0)


def test_how_far_above_what_is_carried_an_edge_is_matters_not() -> None:
    drawn: list[float] = []

    def kept(rate: float) -> dict[str, float]:
        drawn.append(rate)
        return {"a": -0.5}

    assert edge_rate(1.0, kept, most_per_s=1.05).rate_per_s > 1.05
    assert len(drawn) == len(WIDE) + len(NARROW)


def test_fresh_draws_keep_what_is_surely_kept() -> None:
    """Of loads that are just surely kept by eight draws, three fresh ones keep 19 of 20."""
    draw = random.Random(5)
    broken = asked = 0
    while asked < 400:
        mean = draw.uniform(-0.3, 0.05)
        if kept_by_fresh([{"a": draw.gauss(mean, 0.1)} for _ in range(8)]):
            broken += sum(draw.gauss(mean, 0.1) for _ in range(RUNS)) > 0.0
            asked += 1
    assert broken / asked < 0.05


def test_a_cliff_far_above_the_limit_counts_as_past_it_alone() -> None:
    def cliff(rate: float) -> dict[str, float]:
        return {"ttft": -CLIP if rate < 1.0 else 50.0}

    assert edge_rate(1.03, cliff).rate_per_s == pytest.approx(1.0, rel=0.02)


def test_what_falls_with_the_rate_limits_nothing_unless_it_is_above() -> None:
    rates = [1.0, 2.0]
    assert crossing(rates, [{"a": -0.1}, {"a": -0.2}]).rate_per_s > 2.0
    assert crossing(rates, [{"a": 0.2}, {"a": 0.1}]).rate_per_s < 1.0


def test_what_hardly_grows_is_no_edge_within_reach() -> None:
    flat = [{"queue": -0.9 + 1e-7 * rate, "a": math.log(rate / 1.5)} for rate in (1.4, 1.7)]
    assert crossing([1.4, 1.7], flat).rate_per_s == pytest.approx(1.5)
    queue = [{"queue": draw["queue"]} for draw in flat]
    assert crossing([1.4, 1.7], queue).rate_per_s == pytest.approx(1.7 * FARTHEST)


def test_a_statistic_that_some_draws_lack_is_read_from_the_others() -> None:
    draws = [{"a": math.log(rate / 2.0)} if rate != 3.0 else {} for rate in (1.0, 3.0, 4.0)]
    assert crossing([1.0, 3.0, 4.0], draws).rate_per_s != 1.0
    near = [{"a": math.log(rate / 2.0)} if rate != 2.1 else {} for rate in (1.9, 2.1, 2.2)]
    assert crossing([1.9, 2.1, 2.2], near).rate_per_s == pytest.approx(2.0)


def test_a_steep_statistic_hides_no_spread() -> None:
    """Of a steep tail nearly all draws are far above or far below the limit. What single runs
    differ by is 0.3 / 12 = 2.5 %; cut to a small size they would all lie on two steps, and the edge
    seem sure.
    """
    edges = [edge_rate(1.04, noisy(1.0, 12.0, 0.3, seed)) for seed in range(200)]
    assert np.mean([edge.spread for edge in edges]) == pytest.approx(0.03, rel=0.25)
    assert np.mean([edge.error < 0.005 for edge in edges]) < 0.15
    off = [abs(math.log(edge.rate_per_s)) / edge.error for edge in edges]
    assert np.mean([each < 2.0 for each in off]) > 0.85


def test_draws_come_nearer_where_a_statistic_is_steep() -> None:
    gentle, steep = (edge_rate(1.0, noisy(1.0, slope, 0.0, 0)) for slope in (1.5, 10.0))
    assert gentle.reach > 3.0 * steep.reach
    assert steep.reach == pytest.approx(CLIP / 10.0, rel=0.01)


@pytest.mark.parametrize(
    ("draws", "student", "short"), [(3, 2.920, 0.80), (8, 1.8946, 0.98), (20, 1.7291, 0.98)]
)
def test_fresh_runs_are_kept_by_students_t(draws: int, student: float, short: float) -> None:
    """The mean of three more of a normal variate stays below zero with 95 % where that of n draws
    is t(0.95, n - 1) s sqrt(1/3 + 1/n) below it; two terms of t are less by 18 % of 3 draws and by
    2 % of 8. With the normal variate's 1.645 nearer means would be kept.
    """
    off = student * math.sqrt(1 / 3 + 1 / draws)
    values = np.arange(draws) - (draws - 1) / 2
    values /= values.std(ddof=1)
    kept, lost = ([{"a": value - far * off} for value in values] for far in (1.0, short))
    assert kept_by_fresh(kept)
    assert not kept_by_fresh(lost)


def test_few_draws_tell_a_wider_spread() -> None:
    """Four draws off a line of slope 2 by 0.01, two above and two below: residuals of 0.01 x
    sqrt(4 / 2), told (1 + FEW / 2) times as large.
    """
    x = np.array([-0.03, -0.01, 0.01, 0.03])
    off = np.array([0.01, -0.01, -0.01, 0.01])
    edge = crossing(np.exp(x).tolist(), [{"a": float(y)} for y in 2.0 * x + off])
    spread = 0.01 * math.sqrt(2.0) / 2.0 * (1.0 + FEW / 2.0)
    assert edge.spread == pytest.approx(spread, rel=1e-9)
    assert edge.error == pytest.approx(spread / 2.0, rel=1e-9)


def test_longer_runs_than_draws_differ_less() -> None:
    """Draws with a quarter of a run's requests: the spread of runs is half of theirs."""
    draws, runs = (edge_rate(1.0, noisy(1.0, 2.0, 0.05, 7), share) for share in (1.0, 0.25))
    assert runs.spread == pytest.approx(draws.spread / 2.0)
    assert runs.rate_per_s == draws.rate_per_s
