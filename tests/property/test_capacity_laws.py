"""Laws of the search for capacity and of the intervals of simulations, on random traffic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.composition.prices.stepper import Pace
from silicast.core.monotone import bracketed
from silicast.core.prediction import Z90, ErrorFactors
from silicast.serving.capacity.capacity import Simulate, TrafficLoads, enough_requests
from silicast.serving.capacity.objective import LatencyObjective
from silicast.serving.kv.kv_pool import KvLayout
from silicast.serving.simulation.event_loop import ReplicaSpec, Simulation
from silicast.serving.simulation.scheduler import Limits, scheduler_named
from silicast.serving.statistics.metrics import rates, statistics_ms
from silicast.serving.statistics.records import Records
from silicast.serving.statistics.step_mix import KINDS, Spent, columns, mix_of
from silicast.serving.statistics.uncertainty import (
    Consists,
    PaceError,
    intervals,
    paced,
    seed_spread,
)
from silicast.serving.traffic.requests import Requests
from tests.property.serving_cases import PlainPrices, random_case
from tests.sampling import seeds

SEEDS = range(8)


def spec(gap_s: float = 5e-5) -> ReplicaSpec:
    return ReplicaSpec(
        PlainPrices(gap_s=gap_s), scheduler_named("vllm-v1"), Limits(64, 2048, 4000),
        KvLayout.plain(16),
    )  # fmt: skip


def poisson(seed: int, count: int = 300) -> Requests:
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.exponential(1e9, count)).astype(np.int64)
    return Requests.from_arrays(times, rng.integers(50, 500, count), rng.integers(10, 60, count))


def on(replicas: int = 1, replica_spec: ReplicaSpec | None = None) -> Simulate:
    def simulation(requests: Requests, specs: Sequence[ReplicaSpec] | None) -> Simulation:
        return Simulation(requests, specs or [replica_spec or spec()] * replicas)

    return simulation


def loads(seed: int, limit_ms: float = 120.0, replicas: int = 1) -> TrafficLoads:
    return TrafficLoads(
        poisson(seed), on(replicas), LatencyObjective.from_fields({"ttft_p99_ms": limit_ms})
    )


def highest_rate(case: TrafficLoads) -> float:
    return case.most(case.at_rate, 10.0, least=1e-3, most=1e5).carried


@pytest.mark.parametrize("seed", seeds(8, quick=3))
def test_a_wider_objective_carries_as_much_and_more(seed: int) -> None:
    items = [highest_rate(loads(seed, limit)) for limit in (60.0, 120.0, 240.0)]
    assert items[0] > 0.0
    for tight, wide in pairwise(items):
        assert tight <= wide * 1.021


@pytest.mark.parametrize("seed", range(2))
def test_more_replicas_carry_as_much_and_more(seed: int) -> None:
    items = [highest_rate(loads(seed, replicas=count)) for count in (1, 2, 4)]
    for fewer, more in pairwise(items):
        assert fewer <= more * 1.021


def test_what_was_found_is_carried_and_five_per_cent_more_is_not() -> None:
    """The latter in most cases: p99 of 300 requests is no smooth function of the rate."""
    over = 0
    for seed in SEEDS:
        case = loads(seed)
        bracket = case.most(case.at_rate, 10.0, least=1e-3, most=1e5)
        assert bracket.carried < bracket.broken <= 1.0201 * bracket.carried
        assert case.carries(case.at_rate(bracket.carried))
        assert not case.carries(case.at_rate(bracket.broken))
        over += case.carries(case.at_rate(1.05 * bracket.carried))
    assert over <= len(SEEDS) // 4


def test_a_slower_machine_carries_less() -> None:
    case = loads(0)
    slow = replace(case, simulation=on(1, paced(spec(), Pace(1.2, 1.2))))
    assert highest_rate(slow) < highest_rate(case)


@pytest.mark.parametrize("seed", seeds(8, quick=3))
def test_a_run_is_given_up_only_where_it_breaks_the_objective(seed: int) -> None:
    rng = np.random.default_rng(seed)
    fields = {
        "ttft_p50_ms": 30.0, "ttft_mean_ms": 40.0, "e2e_p90_ms": 600.0, "ttft_ms": 60.0,
        "tpot_ms": 9.0, "e2e_ms": 900.0, "quantile": 0.9,
    }  # fmt: skip
    names = [name for name in fields if name != "quantile"]
    chosen = {str(n) for n in rng.choice(names, 2, replace=False)} | {"quantile"}
    objective = LatencyObjective.from_fields({name: fields[name] for name in chosen})
    case = TrafficLoads(poisson(seed), on(), objective)
    stopped = 0
    for rate in (5.0, 20.0, 80.0, 320.0):
        requests = case.at_rate(rate)
        if (case.run(requests).done_ns < 0).any():
            stopped += 1
            assert objective.broken(case.run_whole(requests)), (seed, rate)
    assert stopped, "no run was given up: the test shows nothing"


def test_a_queue_that_only_grows_is_not_carried() -> None:
    """Though TPOT alone is kept: what runs together is limited."""
    case = TrafficLoads(poisson(1, 600), on(), LatencyObjective.from_fields({"tpot_p99_ms": 1e4}))
    served = case.served_per_s()
    assert case.carries(case.at_rate(0.8 * served))
    assert "queue" in case.objective.broken(case.run(case.at_rate(1.5 * served)))


@given(
    st.integers(0, 300), st.integers(1, 300), st.floats(1.01, 4.0), st.integers(1, 5),
    st.integers(200, 400),
)  # fmt: skip
def test_whole_loads_are_bracketed_by_neighbours_whatever_the_factor(
    threshold: int, start: int, factor: float, least: int, most: int
) -> None:
    tried: list[float] = []

    def carries(load: float) -> bool:
        tried.append(load)
        assert len(tried) < 1000
        return load <= threshold

    result = bracketed(
        carries, start, least=least, most=most, whole=True, factor=factor, tolerance=0.0
    )
    assert all(least <= load <= most and load == int(load) for load in tried)
    if threshold < least:
        assert (result.carried, result.broken) == (0.0, least)
    elif threshold >= most:
        assert (result.carried, result.broken) == (most, np.inf)
    else:
        assert (result.carried, result.broken) == (threshold, threshold + 1)


@pytest.mark.parametrize("threshold", [0.003, 1.0, 17.3, 900.0])
def test_bisection_finds_a_threshold(threshold: float) -> None:
    result = bracketed(lambda load: load <= threshold, 4.0, least=1e-3, most=1e4)
    assert result.carried <= threshold < result.broken <= result.carried * 1.0201


def test_without_error_every_interval_is_a_point() -> None:
    quantities = believed(random_case(3).requests, 0.0)
    assert all(each.p05 == each.estimate == each.p95 for each in quantities.values())


@pytest.mark.parametrize("seed", seeds(30))
def test_intervals_hold_their_estimates_and_are_ordered(seed: int) -> None:
    result = believed(random_case(seed).requests, 0.05)
    for name, one in result.items():
        assert one.p05 <= one.estimate <= one.p95, name
    for latency in ("ttft", "tpot", "itl", "e2e"):
        row = [result.get(f"{latency}_{s}_ms") for s in ("p50", "p90", "p95", "p99")]
        for low, high in pairwise(row):
            assert low is None or high is None or (low.p05 <= high.p05 and low.p95 <= high.p95)


def test_where_all_clients_wait_latencies_stretch_with_the_steps() -> None:
    requests = Requests.closed(8, [100] * 64, [20] * 64)
    spread = math.exp(Z90 * 0.05)
    for name, one in believed(requests, 0.05).items():
        assert one.p95 / one.estimate == pytest.approx(spread, rel=1e-3), name
        assert one.estimate / one.p05 == pytest.approx(spread, rel=1e-3), name


def test_near_saturation_latencies_stretch_more_than_steps() -> None:
    case = loads(2)
    requests = case.at_rate(0.97 * case.served_per_s())
    result = believed(requests, 0.05)["ttft_p90_ms"]
    assert math.log(result.p95 / result.estimate) > 2.0 * Z90 * 0.05


@pytest.mark.parametrize("seed", seeds(20))
def test_states_stand_for_all_steps_and_times_are_shared_out(seed: int) -> None:
    records = random_case(seed).run()
    table = records.log.table()
    (steps,) = columns(table, "steps")
    mixes = [mix for kind in KINDS if (mix := mix_of(table, kind)) is not None]
    if all(len(mix.weights) < 6 for mix in mixes):  # nothing was left out
        assert sum(float(mix.weights.sum()) for mix in mixes) == pytest.approx(float(steps.sum()))
    rows = records.finished
    spent = Spent(table).between(
        records.replica[rows], records.sent_ns[rows], records.done_ns[rows]
    )
    assert (spent >= -1e-6).all()
    assert (spent.sum(axis=0) <= records.done_ns[rows] - records.sent_ns[rows] + 1e-3).all()


def test_the_spread_by_seed_is_that_of_other_seeds() -> None:
    """Far from saturation, where requests hardly see each other."""
    runs = []
    for seed in range(24):
        requests = poisson(seed)
        requests = replace(requests, arrival_ns=requests.arrival_ns // 8)
        runs.append(Simulation(requests, [spec()]).run())
    for name in ("ttft_mean_ms", "ttft_p99_ms", "e2e_mean_ms", "requests_per_s"):
        seen = np.std(np.log([{**statistics_ms(r), **rates(r)}[name] for r in runs]), ddof=1)
        remark = np.sqrt(np.mean([seed_spread(run)[name] ** 2 for run in runs]))
        assert 0.5 * seen < remark < 2.0 * seen, name


def believed(requests: Requests, log_sd: float) -> dict:
    """Intervals where all steps have one error."""
    one = spec(gap_s=0.0)

    def again(pace: Pace) -> Records:
        return Simulation(requests, [paced(one, pace)]).run()

    records = again(Pace())
    consists = Consists(records, one)
    error = ErrorFactors({"device": log_sd})
    weights = consists.weights()
    return intervals(
        records, consists, PaceError(dict.fromkeys(weights, error), weights),
        lambda run: {**statistics_ms(run), **rates(run)}, again, {},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "requests"),
    [
        ({}, 1000),  # twenty answers of two seconds, three a second: 120, and more are taken
        ({"ttft_mean_ms": 100.0}, 4000),
        ({"ttft_p99_ms": 100.0}, 8000),  # eighty beyond the 99th percentile
        ({"ttft_p50_ms": 100.0, "tpot_mean_ms": 9.0}, 8000),
        ({"e2e_ms": 9.0, "quantile": 0.9999}, 8000),
    ],
)
def test_runs_have_requests_enough_for_their_objective(
    fields: dict[str, float], requests: int
) -> None:
    alone: Any = SimpleNamespace(e2e_s=lambda: np.array([1.0, 3.0]))
    assert enough_requests(alone, 3.0, LatencyObjective.from_fields(fields)) == requests
    assert enough_requests(alone, 3000.0) == 8000
