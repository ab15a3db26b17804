"""What runs together say of an objective, and by how much one exceeds it."""

from __future__ import annotations

import math

import pytest

from silicast.serving.capacity.capacity import COUNTS, enough_requests
from silicast.serving.capacity.objective import ODDS, LatencyObjective
from silicast.serving.statistics.records import Records
from tests.unit.serving.statistics.test_metrics import records_of


def taking(*first_ms: int) -> Records:
    """A run of requests with these times to the first token, 10 ms a further token of ten."""
    return records_of([(0, 0, 0, each, each + 90, 10) for each in first_ms])


def test_statistics_of_runs_together_are_over_their_requests() -> None:
    """Nine requests of 10 ms and three of 100: p90 of the second run alone, 100 ms, counts only as
    far as its requests are among all.
    """
    objective = LatencyObjective({"ttft_p50_ms": 20.0, "ttft_mean_ms": 31.0}, {})
    quick, slow = taking(*[10] * 9), taking(100, 100, 100)
    values = objective.values(quick, slow)
    assert values["ttft_p50_ms"] == pytest.approx(10.0)
    assert values["ttft_mean_ms"] == pytest.approx((9 * 10 + 3 * 100) / 12)
    assert objective.broken(slow).keys() == {"ttft_p50_ms", "ttft_mean_ms"}
    assert objective.broken(quick, slow).keys() == {"ttft_mean_ms"}


def test_the_excess_of_a_quantile_is_that_of_its_odds() -> None:
    """20 of 100 are later than the limit of p90: odds of 20.5 / 80.5, where 1 / 9 are allowed. How
    much later says nothing.
    """
    objective = LatencyObjective({"ttft_p90_ms": 50.0}, {})
    expected = math.log(20.5 / 80.5 * 9.0) / ODDS
    for late in (51, 5000):
        excess = objective.excess(taking(*[10] * 80, *[late] * 20))
        assert excess["ttft_p90_ms"] == pytest.approx(expected)
    assert objective.excess(taking(*[10] * 95, *[60] * 5))["ttft_p90_ms"] < 0.0


@pytest.mark.parametrize("late", range(0, 40, 3))
def test_an_excess_has_the_sign_of_its_verdict(late: int) -> None:
    named = LatencyObjective({"ttft_p90_ms": 50.0, "ttft_mean_ms": 30.0}, {})
    each = LatencyObjective({}, {"ttft": 50.0}, 0.9)
    run = taking(*[80 if i * late % 200 < late else 10 for i in range(200)])  # spread: none grows
    broken, excess = named.broken(run), named.excess(run)
    assert {name for name in named.named if excess[name] > 0.0} == set(broken)
    assert (each.excess(run)["late"] > 0.0) == bool(each.broken(run))


def test_of_two_limits_alike_one_is_idle() -> None:
    alike = LatencyObjective({"ttft_p99_ms": 50.0}, {"ttft": 50.0}, 0.99)
    assert alike.idle() == {"ttft_p99_ms": "ttft_ms"}
    apart = LatencyObjective({"ttft_p99_ms": 50.0, "tpot_p50_ms": 9.0}, {"e2e": 60.0}, 0.99)
    assert apart.idle() == {}


def test_requests_of_a_steady_state_are_one_of_few_numbers() -> None:
    """Quantiles take the most; more than the last number are never simulated."""
    alone = taking(*[910] * 10)  # a second each
    assert enough_requests(alone, 1.0) == COUNTS[0]
    assert enough_requests(alone, 51.0) == 2_000
    assert enough_requests(alone, 1e6) == COUNTS[-1]
    means = LatencyObjective({"ttft_mean_ms": 1.0}, {})
    assert enough_requests(alone, 1.0, means) == 4_000
    assert enough_requests(alone, 300.0, means) == 8_000
    assert enough_requests(alone, 1.0, LatencyObjective({"ttft_p90_ms": 1.0}, {})) == 8_000
