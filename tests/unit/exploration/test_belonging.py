"""Probabilities of being on a front, against closed forms of two normal errors."""

from __future__ import annotations

import math

import numpy as np
import pytest

from silicast.core.prediction import Quantity
from silicast.exploration.belonging import (
    UncertainPoint,
    belonging,
    best_probability,
    drawn_metrics,
    expected_worth,
    meeting,
)

DRAWN = 0.05
"""Three standard deviations of a share of 1,000 draws."""


def normal(z: float) -> float:
    return 0.5 * (1.0 + math.erf(z / math.sqrt(2.0)))


def point(ms: float, log_sd: float, **shared: float) -> UncertainPoint:
    return UncertainPoint({"ttft_p99_ms": Quantity.around(ms, log_sd)}, shared)


@pytest.mark.parametrize("log_sd", [0.05, 0.2])
def test_of_two_points_the_ratio_of_their_errors_decides(log_sd: float) -> None:
    first, second = belonging([point(100.0, log_sd), point(110.0, log_sd)], ["ttft_p99_ms"])
    expected = normal(math.log(1.1) / (math.sqrt(2.0) * log_sd))
    assert first == pytest.approx(expected, abs=DRAWN)
    assert first + second == pytest.approx(1.0)


def test_a_common_error_does_not_change_who_is_better() -> None:
    points = [point(100.0, 0.2, device=1.0), point(101.0, 0.2, device=1.0)]
    assert belonging(points, ["ttft_p99_ms"]).tolist() == [1.0, 0.0]


def test_confidence_is_the_share_of_the_belief_below_the_limit() -> None:
    meets = meeting([point(100.0, 0.1), point(100.0, 0.3)], {"ttft_p99_ms": 115.0})
    expected = [normal(math.log(1.15) / sd) for sd in (0.1, 0.3)]
    assert meets.mean(axis=0) == pytest.approx(expected, abs=DRAWN)
    assert not meeting([point(100.0, 0.1)], {"tpot_p99_ms": 1e9}).any()
    rate = UncertainPoint({"output_tokens_per_s": Quantity.around(100.0, 0.1)})
    meets = meeting([rate], {"output_tokens_per_s": 115.0})
    assert meets.mean() == pytest.approx(1.0 - expected[0], abs=DRAWN)


def test_a_rate_falls_where_a_time_grows() -> None:
    beliefs = {
        "tpot_p50_ms": Quantity.around(10.0, 0.2),
        "output_tokens_per_s": Quantity.around(100.0, 0.2),
    }
    # the error of one point moves both: whoever is slower by the clock also answers less
    points = [UncertainPoint(beliefs), UncertainPoint(beliefs)]
    assert belonging(points, list(beliefs)).sum() == pytest.approx(1.0)


def test_the_best_is_chosen_among_those_that_count() -> None:
    points = [
        UncertainPoint({"gpus": Quantity.exact(2.0)}),
        UncertainPoint({"gpus": Quantity.exact(4.0)}),
    ]
    meets = np.array([[True, True]] * 300 + [[False, True]] * 600 + [[False, False]] * 100)
    assert best_probability(points, "gpus", meets).tolist() == [0.3, 0.6]


def test_a_point_is_worth_its_rate_in_the_share_of_draws_that_keep_the_limit() -> None:
    """By hand: a rate of 100 that surely counts, one of 120 that counts in 3 of 4 draws: 90."""
    points = [
        UncertainPoint({"output_tokens_per_s": Quantity.exact(rate)}) for rate in (100.0, 120.0)
    ]
    meets = np.array([[True, row % 4 != 0] for row in range(1000)])
    worth = expected_worth(points, "output_tokens_per_s", meets)
    assert worth.tolist() == pytest.approx([100.0, 90.0])
    times = [UncertainPoint({"ttft_p99_ms": Quantity.exact(ms)}) for ms in (4.0, 5.0)]
    worth = expected_worth(times, "ttft_p99_ms", meets)
    assert worth.tolist() == pytest.approx([0.25, 0.15])


@pytest.mark.parametrize("share", [0.0, 0.6])
@pytest.mark.parametrize("metric", ["ttft_p99_ms", "output_tokens_per_s"])
def test_draws_of_a_metric_have_its_interval(metric: str, share: float) -> None:
    """Whatever points have in common; a rate's lower end is that of a slower machine."""
    beliefs = {metric: Quantity(100.0, 80.0, 105.0)}
    points = [UncertainPoint(beliefs, {"device": share}) for _ in range(40)]
    drawn = drawn_metrics(points, [metric])
    low, middle, high = np.quantile(drawn, [0.05, 0.5, 0.95])
    assert low == pytest.approx(80.0, rel=0.03)
    assert middle == pytest.approx(100.0, rel=0.01)
    assert high == pytest.approx(105.0, rel=0.01)


def test_points_with_a_common_cause_move_together_by_its_share() -> None:
    points = [point(100.0, 0.1, device=0.6), point(50.0, 0.1, device=0.6)]
    logs = np.log(drawn_metrics(points, ["ttft_p99_ms"])[:, :, 0])
    assert np.corrcoef(logs.T)[0, 1] == pytest.approx(0.36, abs=0.09)
