"""The event core against queueing theory: waits of queues that have closed forms.

An engine that runs one sequence at a time, whose steps all take the same time, is a queue with one
server; one that runs c sequences in steps of a constant time is a queue with c servers.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from silicast.core.numerics import I64
from silicast.serving.kv.kv_pool import KvLayout
from silicast.serving.simulation.event_loop import ReplicaSpec, Simulation
from silicast.serving.simulation.scheduler import Limits, scheduler_named
from silicast.serving.statistics.records import Records
from silicast.serving.traffic.requests import Requests
from tests.property.serving_cases import PlainPrices

FEW, MANY = 2_000, 400_000
STEP_NS = 1_000_000


def served(arrival_ns: I64, steps: I64, servers: int) -> Records:
    """Requests of one token of prompt that need so many steps each."""
    prices = PlainPrices(STEP_NS * 1e-9, 0.0, 0.0, 0.0, 0.0, asynchronous=False)
    limits = Limits(servers, 1 << 20, 1 << 40)
    spec = ReplicaSpec(prices, scheduler_named("vllm-v1"), limits, KvLayout.plain(16))
    requests = Requests.from_arrays(arrival_ns, np.ones(len(steps), dtype=np.int64), steps)
    return Simulation(requests, [spec]).run()


def poisson(rng: np.random.Generator, count: int, per_s: float) -> I64:
    return np.cumsum(rng.exponential(1e9 / per_s, count)).astype(np.int64)


def lindley(arrival_ns: I64, service_ns: I64) -> I64:
    """Waits of a queue with one server: each starts when it comes and the last one is done."""
    waits, free = [], 0
    for came, takes in zip(arrival_ns.tolist(), service_ns.tolist(), strict=True):
        start = max(came, free)
        waits.append(start - came)
        free = start + takes
    return np.array(waits)


def constant(rng: np.random.Generator, count: int) -> I64:
    return np.ones(count, dtype=np.int64)


def exponential(rng: np.random.Generator, count: int) -> I64:
    return np.maximum(np.rint(rng.exponential(1000.0, count)), 1).astype(np.int64)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("lengths", [constant, exponential])
def test_one_server_waits_as_lindley_says(
    load: float, lengths: Callable[[np.random.Generator, int], I64]
) -> None:
    """To the nanosecond, on the same arrivals."""
    rng = np.random.default_rng(3)
    steps = lengths(rng, FEW)
    arrival = poisson(rng, FEW, load / (float(steps.mean()) * STEP_NS * 1e-9))
    records = served(arrival, steps, 1)
    assert (records.scheduled_ns - arrival == lindley(arrival, steps * STEP_NS)).all()


def mean_wait_steps(load: float, servers: int, exponential_lengths: bool) -> float:
    """Mean wait in mean service times: M/D/1, M/M/1, M/M/c (Erlang C)."""
    if not exponential_lengths:
        return load / (2.0 * (1.0 - load))
    offered = load * servers
    last = offered**servers / math.factorial(servers) / (1.0 - load)
    waiting = last / (sum(offered**k / math.factorial(k) for k in range(servers)) + last)
    return waiting / (servers * (1.0 - load))


def off(count: int, load: float, servers: int, exponential_lengths: bool, seed: int) -> float:
    """Relative error of the mean wait; a control variate takes most of the noise of load."""
    rng = np.random.default_rng(seed)
    steps = (exponential if exponential_lengths else constant)(rng, count)
    mean_s = (1000.0 if exponential_lengths else 1.0) * STEP_NS * 1e-9
    arrival = poisson(rng, count, load * servers / mean_s)
    records = served(arrival, steps, servers)
    waits = (records.scheduled_ns - arrival) * 1e-9 / mean_s
    return float(waits.mean()) / mean_wait_steps(load, servers, exponential_lengths) - 1.0


@pytest.mark.full
@pytest.mark.parametrize("load", [0.3, 0.6, 0.9])
@pytest.mark.parametrize(("servers", "exponential_lengths"), [(1, False), (1, True), (4, True)])
def test_mean_waits_are_the_closed_forms(
    load: float, servers: int, exponential_lengths: bool
) -> None:
    """The mean over independent runs; a run at a load of 0.9 alone is within several percent."""
    runs = [off(MANY // 8, load, servers, exponential_lengths, seed) for seed in range(8)]
    noise = float(np.std(runs, ddof=1)) / math.sqrt(len(runs))
    assert abs(float(np.mean(runs))) < 0.02 + 2.0 * noise


@pytest.mark.parametrize("load", [0.4, 0.7])
def test_several_servers_wait_about_as_erlang_says(load: float) -> None:
    assert abs(off(FEW * 3, load, 4, True, 5)) < 0.25


def test_littles_law() -> None:
    """Requests in the system are arrivals a second times the time each spends, within 1 %."""
    rng = np.random.default_rng(8)
    steps = exponential(rng, FEW)
    arrival = poisson(rng, FEW, 0.8 * 4 / 1.0)
    records = served(arrival, steps, 4)
    span_s = records.end_ns * 1e-9
    moments = np.concatenate((records.sent_ns, records.done_ns))
    change = np.concatenate((np.ones(FEW), -np.ones(FEW)))
    order = np.argsort(moments, kind="stable")
    held = np.cumsum(change[order])[:-1]
    inside = float((held * np.diff(moments[order])).sum()) * 1e-9 / span_s
    spent_s = float((records.done_ns - records.sent_ns).mean()) * 1e-9
    assert inside == pytest.approx(FEW / span_s * spent_s, rel=0.01)
