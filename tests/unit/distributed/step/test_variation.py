from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from silicast.core.errors import SilicastError
from silicast.distributed.pipeline.pipeline import Durations, pipeline_times
from silicast.distributed.ranks.dispersion import Dispersion, upper_tail
from silicast.distributed.schedules.schedule import schedule
from silicast.distributed.step.variation import WaitingPattern, _relative, step_times

SPREADS = (Dispersion(0.015), Dispersion(0.1), Dispersion(0.05, 0.01, 1.3))


def test_the_tail_of_a_normal_variate() -> None:
    z = np.linspace(-8, 12, 801)
    exact = np.array([0.5 * math.erfc(each / math.sqrt(2)) for each in z])
    assert np.abs(upper_tail(z) / exact - 1).max() < 1e-8


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("count", [1, 2, 8, 64, 1024])
def test_the_slowest_is_that_of_devices_drawn_one_by_one(spread: Dispersion, count: int) -> None:
    random = np.random.default_rng(7)
    trials = max(1000, 400_000 // count)
    each = np.exp(random.normal(0, spread.log_sd, (trials, count)))
    each[random.random(each.shape) < spread.straggler_share] *= spread.straggler_slowdown
    drawn, slowest = each.max(axis=1), spread.slowest(count)
    error = drawn.std() / math.sqrt(trials)
    assert abs(slowest.mean - drawn.mean()) < 4 * error
    for share in (0.05, 0.5, 0.95):
        assert abs((drawn < slowest.quantile(share)).mean() - share) < 4 * math.sqrt(0.25 / trials)
    again = slowest.sampled((trials,), random)
    assert abs(again.mean() - slowest.mean) < 5 * error


@pytest.mark.parametrize("log_sd", [0.005, 0.015, 0.1])
@pytest.mark.parametrize("count", [8, 64, 1024, 16384, 100_000])
def test_extreme_value_theory_agrees(log_sd: float, count: int) -> None:
    slowest = Dispersion(log_sd).slowest(count)
    assert slowest.extreme_mean - 1 == pytest.approx(slowest.mean - 1, rel=0.04)


def test_devices_that_are_alike_take_what_one_takes() -> None:
    assert Dispersion(0.0).slowest(1000).mean == pytest.approx(1.0, rel=1e-12)
    slow = Dispersion(0.0, 0.01, 1.5).slowest(100)
    assert slow.mean == pytest.approx(1.5 - 0.5 * 0.99**100, rel=1e-3)


def test_the_wait_for_the_slower_of_two_is_known() -> None:
    """Two normal variates: the larger is sd / sqrt(pi) above the mean (David and Nagaraja 2003)."""
    wait = Dispersion(0.001).wait_for_slowest(2)
    assert wait == pytest.approx(0.001 / math.sqrt(math.pi), rel=1e-3)
    assert Dispersion(0.1).wait_for_slowest(1) == Dispersion(0.0).wait_for_slowest(1000) == 0.0


def test_more_devices_are_slower() -> None:
    means = [SPREADS[2].slowest(count).mean for count in (1, 2, 7, 50, 1000)]
    assert means == sorted(means)


def test_the_rarest_draw_is_a_time() -> None:
    slowest = Dispersion(0.1).slowest(8)
    most = slowest.quantile(1.0)
    assert slowest.quantile(0.999999) < most < 4.0  # 12 standard deviations at most


def test_spreads_that_are_none_are_refused() -> None:
    with pytest.raises(SilicastError, match="straggler_slowdown: is 0"):
        Dispersion(0.1, 0.1, 0.5)
    with pytest.raises(SilicastError, match="count: is 0"):
        Dispersion(0.1).slowest(0)


def test_a_step_waits_for_its_slowest_pipeline() -> None:
    order = schedule("1f1b").order(4, 16)
    plain = Durations.equal(order.placement, 1.0, 1.0, 1.0)

    def scheduled(factors: np.ndarray) -> np.ndarray:
        slowed = Durations(plain.each[..., None] * factors[:, None])
        return np.asarray(pipeline_times(order, slowed).makespan)

    usual = pipeline_times(order, plain).makespan
    steps = step_times(scheduled, WaitingPattern(4, 8, 4), Dispersion(0.02), trials=200, seed=3)
    assert steps.shape == (200,)
    assert (steps > usual).all()
    one = step_times(scheduled, WaitingPattern(4, 8, 1), Dispersion(0.02), trials=200, seed=3)
    assert one.mean() < steps.mean() < usual * Dispersion(0.02).slowest(4 * 8 * 4).mean
    again = step_times(scheduled, WaitingPattern(4, 8, 4), Dispersion(0.02), trials=200, seed=3)
    assert np.array_equal(steps, again)


def test_a_slow_rank_lengthens_the_pipeline_and_the_slowest_one_the_update() -> None:
    """Two stages of 1 forward and 2 backward, four micro-batches: 5 x 3; an update of 2, messages
    of 3. A first stage of twice the time is busy for 4 x 6 and waits once, for 1.
    """
    order = schedule("1f1b").order(2, 4)
    durations = Durations.equal(order.placement, 1.0, 1.0, 1.0)
    run = SimpleNamespace(order=order, durations=durations, transfer=0.0, makespan=15.0)
    spent = [SimpleNamespace(part=SimpleNamespace(exposed_ps=ps)) for ps in (20, 2)]
    step: Any = SimpleNamespace(run=run, step=spent[0], update=SimpleNamespace(total=spent[1]))
    ranks = np.array([[2.0, 1.0, 2.0, 0.5, 1.0], [2.0, 1.0, 1.0, 0.5, 1.0]])
    expected = [1 + (30 - 15 + 2) / 20, 1.0, 1 + (25 - 15 + 2) / 20, 1.0, 1.0]
    assert _relative(step, ranks).tolist() == pytest.approx(expected)
    assert _relative(None, ranks[:1]).tolist() == ranks[0].tolist()
