"""Statistics at other paces, from the first requests or from all."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from silicast.composition.prices.stepper import Pace
from silicast.serving.simulation.event_loop import Simulation
from silicast.serving.simulation.scheduler import Limits
from silicast.serving.statistics.metrics import rates, statistics_ms
from silicast.serving.statistics.other_paces import FIRST, at_paces, drift, with_ratios
from silicast.serving.statistics.records import Records
from silicast.serving.statistics.uncertainty import paced
from silicast.serving.traffic.requests import Requests
from tests.property.serving_cases import PlainPrices, ServingCase

SLOW, QUICK = Pace(1.2, 1.2, 1.1), Pace(1 / 1.2, 1 / 1.2, 1 / 1.1)
CARRIED_PER_S = 16.0 / (100 * 5e-3)
"""Requests that sixteen sequences at once carry, each for a hundred steps of five milliseconds;
less for what prompts and tokens take."""


class Counted:
    """A case at several paces; notes what was run.

    Args:
        load: requests a second, over what is carried.
    """

    def __init__(self, load: float, count: int = 3 * FIRST) -> None:
        rng = np.random.default_rng(5)
        at = np.cumsum(rng.exponential(1e9 / (load * CARRIED_PER_S), count)).astype(np.int64)
        prompts, outputs = rng.integers(100, 400, count), rng.integers(50, 150, count)
        self.requests = Requests.from_arrays(at, prompts, outputs)
        limits = Limits(16, 2048, 1 << 14)
        self._case = ServingCase(self.requests, PlainPrices(), limits)
        self.all_again: list[Pace] = []
        self.first_again: list[tuple[Pace, int]] = []
        self.records = self._run(self.requests, Pace())

    def _run(self, requests: Requests, pace: Pace) -> Records:
        specs = [paced(spec, pace) for spec in replace(self._case, requests=requests).specs()]
        return Simulation(requests, specs).run()

    def again(self, pace: Pace) -> Records:
        self.all_again.append(pace)
        return self._run(self.requests, pace)

    def begin(self, pace: Pace, count: int) -> Records:
        self.first_again.append((pace, count))
        return self._run(self.requests.first(count), pace)

    def at_paces(
        self, statistics: Callable[[Records], dict[str, float]] | None = None
    ) -> list[dict[str, float]]:
        known = statistics or metrics
        ends = at_paces(
            self.records, known(self.records), (SLOW, QUICK), known, self.again, self.begin
        )
        return [dict(end) for end in ends]


def metrics(records: Records) -> dict[str, float]:
    return {**statistics_ms(records), **rates(records)}


def test_the_first_requests_tell_where_queues_are_short() -> None:
    case = Counted(0.3)
    ends = case.at_paces()
    few = [(pace, FIRST) for pace in (Pace(), SLOW, QUICK)]
    assert (case.all_again, case.first_again) == ([], few)
    for pace, end in zip((SLOW, QUICK), ends, strict=True):
        exact = metrics(case.again(pace))
        for name in ("ttft_mean_ms", "tpot_mean_ms", "e2e_mean_ms", "e2e_p90_ms"):
            assert end[name] == pytest.approx(exact[name], rel=0.02), name
        # arrivals set the rate of a server that keeps up, whatever the pace
        assert end["requests_per_s"] == pytest.approx(exact["requests_per_s"], rel=0.01)


def test_a_pace_that_saturates_runs_all_requests() -> None:
    case = Counted(0.85)
    slow, _ = case.at_paces()
    assert SLOW in case.all_again
    assert slow == metrics(case.again(SLOW))
    assert slow["ttft_p99_ms"] > 3.0 * metrics(case.records)["ttft_p99_ms"]


def test_a_queue_that_only_grows_runs_all_requests() -> None:
    case = Counted(1.5)
    case.at_paces()
    assert (case.all_again, case.first_again) == ([SLOW, QUICK], [])


def test_more_first_requests_run_until_they_are_served_as_all_are() -> None:
    case = Counted(0.3, 9 * FIRST)

    def filling(records: Records) -> dict[str, float]:
        table = metrics(records)
        full = 1.0 - 40.0 / len(records.requests)
        return {**table, "tpot_mean_ms": table["tpot_mean_ms"] * full}

    case.at_paces(filling)
    assert case.all_again == []
    assert [count for _, count in case.first_again] == [400, 800, 800, 800]


def test_a_quarter_runs_where_waits_move_by_much_and_all_where_by_more() -> None:
    case = Counted(0.3, 9 * FIRST)

    def waiting(records: Records, grown: float) -> dict[str, float]:
        slower = case.first_again[-1][0] == SLOW if case.first_again else False
        wait_ms = 100.0 * math.exp(grown if slower and not case.all_again else 0.0)
        return {**metrics(records), "ttft_p99_ms": wait_ms}

    case.at_paces(partial(waiting, grown=0.7))
    assert case.all_again == []
    quarter = 9 * FIRST // 4
    assert case.first_again[1:4] == [(SLOW, FIRST), (Pace(), quarter), (SLOW, quarter)]
    case.first_again.clear()
    case.at_paces(partial(waiting, grown=1.3))
    assert case.all_again == [SLOW]


def test_few_requests_all_run() -> None:
    case = Counted(0.5, 2 * FIRST - 1)
    case.at_paces()
    assert (case.all_again, case.first_again) == ([SLOW, QUICK], [])


def test_what_happens_at_one_pace_alone_runs_all_requests() -> None:
    case = Counted(0.3)

    def counted(records: Records) -> dict[str, float]:
        slower = len(records.requests) == FIRST and case.first_again[-1] == (SLOW, FIRST)
        return {**metrics(records), "preemptions": float(slower)}

    case.at_paces(counted)
    assert case.all_again == [SLOW]


def test_largest_values_do_not_move_as_those_of_few_requests() -> None:
    base = {"kv_utilisation": 0.3, "kv_utilisation_max": 0.5, "queue_depth_max": 4.0}
    known = {"kv_utilisation": 0.2, "kv_utilisation_max": 0.4, "queue_depth_max": 3.0}
    changed = {"kv_utilisation": 0.24, "kv_utilisation_max": 0.4, "queue_depth_max": 2.0}
    end = with_ratios(base, known, changed)
    assert end["kv_utilisation_max"] == pytest.approx(0.6)
    assert end["queue_depth_max"] == 2.0  # a whole number


def test_drift_is_of_thirds() -> None:
    def run(spent: list[int]) -> Any:
        sent = np.arange(len(spent))[::-1] * 5  # the last is sent first
        return SimpleNamespace(
            finished=np.arange(len(spent)), sent_ns=sent, done_ns=sent + np.array(spent)
        )

    one, other = run([10, 20, 10, 10, 30, 50]), run([11, 22, 11, 11, 36, 60])
    assert drift(one, other) == pytest.approx(math.log(1.2 / 1.1))
    assert drift(one, one) == 0.0
    assert math.isinf(drift(run([10, 20]), run([10, 20])))


def test_shares_stay_shares() -> None:
    base = {"kv_utilisation": 0.9, "e2e_mean_ms": 50.0, "swaps": 0.0}
    known = {**base, "kv_utilisation": 0.5, "e2e_mean_ms": 40.0}
    changed = {**base, "kv_utilisation": 0.8, "e2e_mean_ms": 44.0}
    expected = {"kv_utilisation": 1.0, "e2e_mean_ms": pytest.approx(55.0), "swaps": 0.0}
    assert with_ratios(base, known, changed) == expected
