"""Fleets in time by hand: a replica of which everything is known, and laws of what follows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.core.errors import SilicastError
from silicast.serving.autoscaling.demand import PeriodDemand, smoothed
from silicast.serving.autoscaling.fleet_in_time import (
    FleetRun,
    ReplicaKind,
    TimedFleet,
    emptied,
    fewest_static,
    filled,
    foreseen,
    run_alone,
    run_fleets,
)
from silicast.serving.autoscaling.load_curve import (
    LoadPoint,
    ReplicaCurve,
    RequestLimit,
    request_limits,
)
from silicast.serving.autoscaling.policies import (
    POLICIES,
    FleetView,
    PredictedPolicy,
    ScalingPolicy,
    policies_named,
)
from silicast.serving.capacity.objective import LatencyObjective
from silicast.serving.traffic.requests import Requests

LIMITS = (RequestLimit("ttft", 150.0, 0.9),)


def point(rate: float, late: int) -> LoadPoint:
    """Ten requests, so many of which take 200 ms and the others 100."""
    taken = np.array([100.0] * (10 - late) + [200.0] * late)
    return LoadPoint(rate, {"ttft": taken, "tpot": taken, "e2e": 10.0 * taken}, rate, rate / 20.0)


CURVE = ReplicaCurve([point(1.0, 0), point(8.0, 0), point(10.0, 2)], 10.0, LIMITS)
"""Keeps 90 % up to 9 requests a second, and does 10."""
DAY = [3.0 + 40.0 * math.sin(math.pi * i / 240) ** 4 for i in range(240)]


def demand(rates: Sequence[float], period_s: float = 60.0) -> PeriodDemand:
    """Requests that come evenly in each period, and take half their time for their prompts."""
    work = np.array(rates) * period_s
    counts = np.ceil(work).astype(int)
    times = [period_s * np.arange(count) / count for count in counts.tolist()]
    weights = np.repeat(work / np.maximum(counts, 1), counts)
    arrivals = counts.astype(np.float64)
    at_s = np.concatenate(times)
    return PeriodDemand(period_s, arrivals, work, work, 1, at_s, weights, 0.5 * weights)


def kind(gpus: int = 1, start_s: float = 0.0, most: int = 1000, price: float = 1.0) -> ReplicaKind:
    return ReplicaKind(CURVE, gpus, start_s, most, price)


@final
class Scripted(ScalingPolicy):
    """Wants what a list says."""

    name: ClassVar[str] = "scripted"

    def __init__(self, wanted: Sequence[float]) -> None:
        super().__init__(0.0)
        self._wanted = list(wanted)

    def wanted_per_s(self, view: FleetView) -> float:
        return self._wanted[len(view.rates) - 1]


def test_a_replica_carries_what_keeps_its_limit() -> None:
    assert CURVE.carried_per_s == pytest.approx(9.0)
    assert CURVE.late(9.0)[0] == pytest.approx(0.1)
    assert CURVE.late(0.5).tolist() == [0.0, 0.0]
    assert CURVE.in_flight(9.0) == pytest.approx(9.0)


def test_requests_behind_others() -> None:
    """100 ms of 150 are taken in an idle replica, and a fifth is late in a full one anyway."""

    def late(prompts_s: float, work_s: float) -> list[float]:
        shares = CURVE.late_behind(np.array([prompts_s]), np.array([work_s]))
        return [float(share) for share in shares]

    assert late(0.0, 0.0) == late(0.049, 0.1) == [0.0, 0.0]
    assert late(0.051, 0.1) == [1.0, 1.0]
    assert late(0.049, 0.9) == pytest.approx([0.1, 0.1])  # nine run beside it
    assert late(0.049, 1.049) == pytest.approx([0.2, 0.2])  # ten run, and it waits 49 ms for room
    assert late(0.049, 1.051) == [1.0, 1.0]
    both = CURVE.late_behind(np.array([0.0, 0.051]), np.array([0.0, 0.051]))
    assert both.tolist() == [0.5, 0.5]


def test_a_burst_waits_whatever_the_mean_rate_is() -> None:
    """100 requests at once on one replica that does 20 prompts a second: two are in time."""
    times = np.array([0.0] * 100 + [15.0])
    count, ones = np.array([100.0, 1.0]), np.ones(101)
    burst = PeriodDemand(30.0, count, count, np.full(2, 50.5) / 10.0, 2, times, ones, 0.5 * ones)
    run = run_alone(TimedFleet(burst, (kind(),), counts=(1,)))
    assert run.late[:, 0].tolist() == pytest.approx([0.98, 0.0])
    many = run_alone(TimedFleet(burst, (kind(),), counts=(100,)))
    assert many.late[:, 0].tolist() == [0.0, 0.0]  # 5 s of prompts over a hundred: 50 ms


def test_a_slower_machine_does_less_and_is_later() -> None:
    slower = CURVE.at_pace(1.25, {})
    assert (slower.carried_per_s, slower.most_per_s) == pytest.approx((7.2, 8.0))
    assert CURVE.at_pace(1.6, {}).carried_per_s == 0.0  # 160 ms at any load
    assert CURVE.at_pace(1.0, {"ttft": 1.6}).carried_per_s == 0.0
    assert CURVE.at_pace(1.0, {"tpot": 9.0}).carried_per_s == pytest.approx(9.0)  # not limited


def test_limits_of_requests() -> None:
    objective = LatencyObjective({"ttft_p90_ms": 150.0}, {"e2e": 2000.0}, 0.99)
    assert request_limits(objective) == (LIMITS[0], RequestLimit("e2e", 2000.0, 0.99))
    for named, each in (({"ttft_mean_ms": 1.0}, {}), ({"itl_p99_ms": 1.0}, {}), ({}, {"itl": 1.0})):
        with pytest.raises(SilicastError, match="share of late requests"):
            request_limits(LatencyObjective(named, each))
    with pytest.raises(SilicastError, match="limits nothing"):
        request_limits(LatencyObjective({}, {}))


def test_kinds_that_carry_most_for_their_cost_come_first() -> None:
    dear, cheap = kind(price=3.0), kind(price=1.0, most=2)
    assert filled((dear, cheap), 18.0) == (0, 2)
    assert filled((dear, cheap), 18.1) == (1, 2)
    assert filled((dear, cheap), 0.0) == (0, 1)
    assert filled((dear, cheap), 0.0, least=3) == (1, 2)


def test_kinds_that_carry_least_for_their_cost_go_first() -> None:
    dear, cheap = kind(price=3.0), kind(price=1.0, most=2)
    assert emptied((dear, cheap), (2, 2), 27.0) == (1, 2)
    assert emptied((dear, cheap), (2, 2), 9.0) == (0, 1)
    assert emptied((dear, cheap), (2, 0), 9.0) == (1, 0)  # none of another kind would come
    assert emptied((dear, cheap), (2, 2), 0.0, least=3) == (1, 2)


def test_the_first_period_has_no_more_than_there_is() -> None:
    fleets = [
        TimedFleet(demand([30.0]), (kind(gpus=gpus),), POLICIES["queue"](0.0)) for gpus in (2, 4)
    ]
    one, two = run_fleets(fleets, devices=11)
    assert (one.gpus.tolist(), two.gpus.tolist()) == ([6.0], [4.0])  # of 8 and 16 that they need
    one, two = run_fleets(fleets, devices=6)
    assert (one.gpus.tolist(), two.gpus.tolist()) == ([2.0], [4.0])


def test_replicas_over_time_by_hand() -> None:
    """Cold start of two periods, one period to drain, down after three without need."""
    wanted = [18.0, 18.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0]
    fleet = TimedFleet(
        demand([8.0] * 10), (kind(gpus=4, start_s=120.0),), Scripted(wanted), down_after_s=180.0
    )
    run = run_alone(fleet)
    # one at first; a second costs from period 1 on, is wanted no more from period 2, so stops at
    # the end of period 4, and drains in period 5
    assert run.replicas[:, 0].tolist() == [1, 2, 2, 2, 2, 2, 1, 1, 1, 1]
    assert run.gpu_hours == pytest.approx(4 * 15 / 60)
    assert (run.started, run.refused) == (1, 0)
    # it serves from period 3 to 4: with 8 a second on one replica nobody is late anyway
    assert run.late_share == 0.0


def test_replicas_double_or_four_more_come_at_a_time() -> None:
    fleet = TimedFleet(demand([8.0] * 5), (kind(),), Scripted([900.0] * 5))
    assert run_alone(fleet).replicas[:, 0].tolist() == [1, 5, 10, 20, 40]
    fleet = TimedFleet(demand([8.0] * 3), (kind(),), Scripted([27.0] * 3))
    assert run_alone(fleet).replicas[:, 0].tolist() == [1, 3, 3]


def test_more_than_a_fleet_does_waits() -> None:
    run = run_alone(TimedFleet(demand([20.0, 0.0, 0.0, 1.0], 10.0), (kind(),), counts=(1,)))
    # 200 come in 10 s; half of a request is left by each. Behind 17 to 21 run 8.5 to 10 others and
    # some are late, behind more they wait for more than 50 ms. The last 100 wait in the next 10 s.
    late = (0.05 + 0.1 + 0.15 + 0.2 + 0.2 + 178) / 200
    assert run.late[:, 0].tolist() == pytest.approx([late, 0.0, 0.0, 0.0], abs=0.005)
    assert not run.keeps_objective
    two = run_alone(TimedFleet(demand([20.0, 0.0, 0.0], 10.0), (kind(),), counts=(2,)))
    assert two.late_share == pytest.approx(0.2)  # each at 10 a second
    assert run_alone(TimedFleet(demand([18.0]), (kind(),), counts=(2,))).keeps_objective


def test_the_fewest_that_stay() -> None:
    kinds = (kind(gpus=2),)
    run = fewest_static(demand([10.0, 40.0, 10.0]), kinds, lambda counts: True)
    assert run is not None
    # with four, 10 a second each, a fifth of the middle's two thirds is late: 13 %, with five none
    assert run.gpus.tolist() == [10.0, 10.0, 10.0]
    assert run.gpu_hours == pytest.approx(0.5)
    assert fewest_static(demand([10.0, 40.0, 10.0]), kinds, lambda counts: counts[0] < 5) is None


def test_who_knows_all() -> None:
    (run,) = foreseen([TimedFleet(demand([9.0, 18.0, 18.5, 0.0]), (kind(gpus=2),))])
    assert run.gpus.tolist() == [2.0, 4.0, 6.0, 2.0]
    assert run.gpu_hours == pytest.approx(14.0 / 60)
    assert run.late_time_share == 0.0
    (run,) = foreseen([TimedFleet(demand([9.0, 18.0, 18.5]), (kind(gpus=2),), least=2)], devices=5)
    assert run.gpus.tolist() == [4.0, 4.0, 4.0]
    pair = [TimedFleet(demand([rate]), (kind(),)) for rate in (90.0, 45.0)]
    assert [run.gpus.tolist() for run in foreseen(pair, devices=9)] == [[6.0], [3.0]]


@pytest.mark.parametrize("name", POLICIES)
def test_constant_load_is_the_fleet_that_stays(name: str) -> None:
    for rate, count in ((40.0, 5), (9.0, 1), (0.5, 1)):
        steady = demand([rate] * 100)
        run = run_alone(TimedFleet(steady, (kind(start_s=300.0),), POLICIES[name](0.0)))
        still = fewest_static(steady, (kind(),), lambda counts: True)
        assert still is not None
        assert run.replicas[:, 0].tolist() == [count] * 100 == still.replicas[:, 0].tolist()
        assert (
            run.gpu_hours
            == still.gpu_hours
            == foreseen([TimedFleet(steady, (kind(),))])[0].gpu_hours
        )


NO_LATE, LATE = point(1.0, 0).taken_ms, point(1.0, 2).taken_ms
STEEP = ReplicaCurve(
    [
        point(1.0, 0),
        LoadPoint(20.0, NO_LATE, 24.0, 0.3),
        LoadPoint(29.0, NO_LATE, 90.0, 0.8),
        LoadPoint(30.0, LATE, 120.0, 0.9),
    ],
    30.0,
    LIMITS,
)
"""Requests in flight grow the faster the nearer the most is."""


@pytest.mark.parametrize("name", POLICIES)
def test_constant_load_on_replicas_of_a_steep_curve_keeps_its_fleet(name: str) -> None:
    """Three do 60 a second with headroom; two would not."""
    fleet = TimedFleet(
        demand([60.0] * 240, 15.0), (ReplicaKind(STEEP, 1, 116.0),), POLICIES[name](0.2)
    )
    run = run_alone(fleet)
    assert run.replicas[:, 0].tolist() == [3] * 240
    assert (run.late_share, run.started) == (0.0, 0)


def test_a_fleet_that_is_too_large_shrinks_only_after_a_while() -> None:
    """Two are needed at first; one from then on, after three periods."""
    fleet = TimedFleet(demand([18.0, *[4.0] * 6]), (kind(),), Scripted([9.0] * 7), down_after_s=180)
    assert run_alone(fleet).replicas[:, 0].tolist() == [2, 2, 2, 2, 1, 1, 1]


@pytest.mark.parametrize("name", POLICIES)
def test_risk_falls_with_headroom_and_grows_with_cold_starts(name: str) -> None:
    def late(headroom: float, start_s: float) -> float:
        policy = POLICIES[name](headroom)
        return run_alone(TimedFleet(demand(DAY), (kind(start_s=start_s),), policy)).late_share

    by_headroom = [late(headroom, 240.0) for headroom in (0.0, 0.2, 0.4, 0.6)]
    assert by_headroom == sorted(by_headroom, reverse=True)
    assert by_headroom[0] > by_headroom[-1]
    if name != "predicted":  # which looks further ahead
        assert late(0.2, 0.0) <= late(0.2, 240.0) <= late(0.2, 480.0)


def test_a_forecast_by_hand() -> None:
    """A load that grows by two each period grows by six over a period and a cold start of two."""
    rates = [1.0 + 2.0 * i for i in range(30)]
    view = FleetView(60.0, 120.0, rates=rates)
    assert PredictedPolicy(0.0).wanted_per_s(view) == pytest.approx(rates[-1] + 6.0)
    assert PredictedPolicy(0.5).wanted_per_s(view) == pytest.approx(2.0 * (rates[-1] + 6.0))
    falling = FleetView(60.0, 120.0, rates=rates[::-1], backlog=240.0)
    assert PredictedPolicy(0.0).wanted_per_s(falling) == pytest.approx(1.0 + 2.0)


def test_fleets_share_devices() -> None:
    fleets = [
        TimedFleet(demand(DAY), (kind(gpus=gpus, start_s=120.0),), POLICIES["queue"](0.2))
        for gpus in (2, 4)
    ]
    alone = run_fleets(fleets)
    both = run_fleets(fleets, devices=20)
    assert max(alone[0].gpus + alone[1].gpus) > 20
    assert max(both[0].gpus + both[1].gpus) <= 20
    assert sum(run.refused for run in both) > 0 == sum(run.refused for run in alone)
    assert sum(run.late_share for run in both) > sum(run.late_share for run in alone)
    apart = [run_alone(fleet) for fleet in fleets]
    assert [run.gpu_hours for run in alone] == [run.gpu_hours for run in apart]


@given(
    rates=st.lists(st.floats(0.0, 100.0), min_size=1, max_size=40),
    start_s=st.floats(0.0, 600.0),
    headroom=st.floats(0.0, 0.5),
    name=st.sampled_from(sorted(POLICIES)),
)
def test_laws(rates: list[float], start_s: float, headroom: float, name: str) -> None:
    demanded, kinds = demand(rates), (kind(gpus=2, start_s=start_s),)
    fleet = TimedFleet(demanded, kinds, POLICIES[name](headroom))
    run, again = run_alone(fleet), run_alone(fleet)
    assert run.replicas.tobytes() == again.replicas.tobytes()
    assert run.late.tobytes() == again.late.tobytes()
    assert run.gpu_hours == pytest.approx(float(run.replicas.sum()) * 2 / 60)
    assert 0.0 <= run.late_share <= 1.0
    assert run.late.min() >= 0.0
    assert run.late.max() <= 1.0
    _below(run, foreseen([fleet])[0])


def _below(run: FleetRun, least: FleetRun) -> None:
    """Periods in which no more are late than may have at least as many devices as needed."""
    in_time = (run.late[:, :-1] <= run.allowed).all(axis=1)
    assert (run.gpus[in_time] >= least.gpus[in_time]).all()
    assert least.late_time_share == 0.0


def test_demand_of_requests() -> None:
    times = np.array([0, 1, 2, 70], dtype=np.int64) * 10**9
    prompts, outputs = np.array([100, 100, 100, 300]), np.array([10, 30, 10, 10])
    requests = Requests.from_arrays(times, prompts, outputs)
    demanded = PeriodDemand.of_requests(requests, 60.0, prompt_share=0.5)
    assert demanded.arrivals.tolist() == [3.0, 1.0]
    # weights: half by the prompt over 150, half by the output over 15
    assert demanded.work.tolist() == pytest.approx([1.0 + 50 / 30, 1.0 + 10 / 30])
    assert demanded.work.sum() == pytest.approx(4.0)
    assert demanded.hours == pytest.approx(2 / 60)
    with pytest.raises(SilicastError, match="periods"):
        PeriodDemand.of_requests(requests, 1e-4, 0.5)
    assert smoothed(np.arange(5.0), 1).tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_an_unknown_policy() -> None:
    with pytest.raises(SilicastError, match="no policy"):
        policies_named(["often"], "workload.autoscale.policy")
