"""Fleets whose replicas come and go, period by period.

Requests of a period spread over the ready replicas by what each carries. They are as late as at a
steady rate, or later when they come behind others: work waits as it comes, first come, first
served, and what a period leaves the next one begins with. A replica that is started costs from then
on and serves when it is ready; one that is stopped costs until its requests have ended. Several
fleets may share devices: what one holds another cannot start on.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from silicast.core.monotone import largest
from silicast.core.numerics import F64
from silicast.serving.autoscaling.demand import PeriodDemand, work_ahead
from silicast.serving.autoscaling.load_curve import ReplicaCurve
from silicast.serving.autoscaling.policies import SMOOTH_S, FleetView, ScalingPolicy

MOST_REPLICAS = 100_000
TIMES, MORE = 2.0, 4
"""A period at most doubles the replicas or adds so many, as Kubernetes' autoscaler does unless told
otherwise.
"""
SHARES = 256
"""Steps in which a load is cut where devices are missing."""
LOADS = np.linspace(0.0, 1.0, 65)
"""Loads, over what replicas carry, at which metrics are known."""
Counts = tuple[int, ...]
"""Replicas of each kind."""


@final
@dataclass(frozen=True)
class ReplicaKind:
    """Replicas alike of a fleet.

    Attributes:
        curve: as predicted; gpus: of one.
        start_s: until a new one is ready; most: of them.
        price: of a device for an hour; 1 where none is stated.
    """

    curve: ReplicaCurve
    gpus: int
    start_s: float = 0.0
    most: int = MOST_REPLICAS
    price: float = 1.0
    name: str = ""

    @property
    def hourly(self) -> float:
        """Cost of one replica for an hour."""
        return self.gpus * self.price


def filled(kinds: Sequence[ReplicaKind], rate_per_s: float, least: int = 1) -> Counts:
    """The replicas that carry a rate: the kinds that carry most for their cost first, each up to
    its most.
    """
    counts, remaining = [0] * len(kinds), rate_per_s
    for index in _by_worth(kinds):
        kind = kinds[index]
        wanted = math.ceil(remaining / kind.curve.carried_per_s - 1e-9)
        counts[index] = min(max(wanted, least - sum(counts), 0), kind.most)
        remaining -= counts[index] * kind.curve.carried_per_s
    return tuple(counts)


def emptied(
    kinds: Sequence[ReplicaKind], counts: Sequence[int], rate_per_s: float, least: int = 1
) -> Counts:
    """Those of so many replicas that still carry a rate: the kinds that carry least for their cost
    go first.
    """
    remaining = list(counts)
    for index in reversed(_by_worth(kinds)):
        carried = sum(
            n * kind.curve.carried_per_s for n, kind in zip(remaining, kinds, strict=True)
        )
        spare = math.floor((carried - rate_per_s) / kinds[index].curve.carried_per_s + 1e-9)
        remaining[index] -= max(min(spare, remaining[index], sum(remaining) - least), 0)
    return tuple(remaining)


def _by_worth(kinds: Sequence[ReplicaKind]) -> list[int]:
    """Kinds by what they cost for what they carry."""
    return sorted(range(len(kinds)), key=lambda i: kinds[i].hourly / kinds[i].curve.carried_per_s)


@final
@dataclass(frozen=True)
class FleetRun:
    """What became of a traffic; arrays by period.

    Attributes:
        replicas: that cost, of each kind, shape (periods, kinds).
        late: share of the requests beyond each limit, and beyond any, shape (periods, limits + 1).
        allowed: share of them that may be beyond each limit.
        started: replicas, after the first period; refused: wished for, without free devices.
    """

    demand: PeriodDemand
    kinds: tuple[ReplicaKind, ...]
    replicas: F64
    late: F64
    allowed: F64
    started: int
    refused: int

    @property
    def gpus(self) -> F64:
        """Devices that cost in each period."""
        gpus: F64 = self.replicas @ np.array([float(kind.gpus) for kind in self.kinds])
        return gpus

    @property
    def gpu_hours(self) -> float:
        return float(self.gpus.sum()) * self.demand.period_s / 3600.0

    @property
    def cost(self) -> float:
        """Of all devices, in the currency of their prices."""
        hourly = self.replicas @ np.array([kind.hourly for kind in self.kinds])
        return float(hourly.sum()) * self.demand.period_s / 3600.0

    @property
    def late_shares(self) -> F64:
        """Share of all requests beyond each limit, and beyond any."""
        weights = self.demand.arrivals
        shares: F64 = weights @ self.late / max(float(weights.sum()), 1.0)
        return shares

    @property
    def late_share(self) -> float:
        """Share of all requests that break a limit."""
        return float(self.late_shares[-1])

    @property
    def late_time_share(self) -> float:
        """Share of the time in which more requests break a limit than may."""
        return float((self.late[:, :-1] > self.allowed).any(axis=1).mean())

    @property
    def keeps_objective(self) -> bool:
        """Whether over the whole time no more requests break a limit than may."""
        return bool((self.late_shares[:-1] <= self.allowed).all())


@final
@dataclass(frozen=True)
class TimedFleet:
    """One model's replicas and its traffic.

    Attributes:
        policy: that scales it; None = ``counts`` all the time.
        least: replicas at all times.
        down_after_s: replicas are stopped when so long no more were wanted.
        true: the curves of a machine that is not as predicted, of each kind; () = as predicted.
    """

    demand: PeriodDemand
    kinds: tuple[ReplicaKind, ...]
    policy: ScalingPolicy | None = None
    counts: Counts = ()
    least: int = 1
    down_after_s: float = 300.0
    true: tuple[ReplicaCurve, ...] = ()

    @property
    def curves(self) -> tuple[ReplicaCurve, ...]:
        return self.true or tuple(kind.curve for kind in self.kinds)


@final
class _Running:
    """A fleet under way.

    Attributes:
        ready: of each kind; starting: (period from which it serves, kind), draining: (period from
            which it costs no more, kind), in order of time.
    """

    def __init__(self, fleet: TimedFleet, ready: Sequence[int], view: FleetView) -> None:
        self.fleet, self.ready, self.view = fleet, list(ready), view
        self.starting, self.draining = deque[tuple[int, int]](), deque[tuple[int, int]]()
        self._wanted = deque[tuple[int, float]]()
        self.load = self._lifetime_s = self._work = self._prompts = 0.0
        self.started = self.refused = 0
        kinds = fleet.kinds
        self._rates: F64 = fleet.demand.work / fleet.demand.period_s
        self._flights = np.array(
            [[e.curve.in_flight(u * e.curve.carried_per_s) for u in LOADS] for e in kinds]
        )
        self._kv = np.array(
            [[e.curve.kv_share(u * e.curve.carried_per_s) for u in LOADS] for e in kinds]
        )

    @property
    def current(self) -> list[int]:
        """Ready and starting, of each kind."""
        counts = list(self.ready)
        for _, kind in self.starting:
            counts[kind] += 1
        return counts

    @property
    def costing(self) -> list[int]:
        """Those that stop too."""
        counts = self.current
        for _, kind in self.draining:
            counts[kind] += 1
        return counts

    @property
    def gpus(self) -> int:
        return sum(n * kind.gpus for n, kind in zip(self.costing, self.fleet.kinds, strict=True))

    def carries(self, counts: Sequence[int]) -> float:
        """The rate that so many carry, as predicted."""
        return sum(
            n * kind.curve.carried_per_s for n, kind in zip(counts, self.fleet.kinds, strict=True)
        )

    def begin(self) -> Counts:
        """The replicas that the first period needs, which count as wanted until then."""
        fleet = self.fleet
        assert fleet.policy is not None
        rate = float(fleet.demand.steady[0]) / fleet.demand.period_s
        wanted = filled(fleet.kinds, rate / (1.0 - fleet.policy.headroom), fleet.least)
        self.load = self.carries(wanted) / self.carries(self.ready)
        return wanted

    def keep(self) -> None:
        """Counts what runs as wanted before the first period."""
        self._wanted.append((-1, self.carries(self.ready)))

    def pass_period(self, period: int) -> tuple[list[int], F64]:
        """Serves the requests of a period; returns (replicas that cost, late shares)."""
        while self.starting and self.starting[0][0] <= period:
            self.ready[self.starting.popleft()[1]] += 1
        while self.draining and self.draining[0][0] <= period:
            self.draining.popleft()
        return self.costing, self._served(period)

    def _served(self, period: int) -> F64:
        fleet, demand = self.fleet, self.fleet.demand
        curves, kinds = fleet.curves, fleet.kinds
        # requests spread as the predicted replicas carry them
        shares = [n * kind.curve.carried_per_s for n, kind in zip(self.ready, kinds, strict=True)]
        total = sum(shares)
        weights = [kind.curve.carried_per_s / total for kind in kinds]  # of one replica
        most = min(
            curve.most_per_s / weight
            for curve, weight, n in zip(curves, weights, self.ready, strict=True)
            if n
        )
        rate = min(float(demand.steady[period]) / demand.period_s, most)
        prompts_s, work_s = (ahead / most for ahead in self._queued(period, most))
        late = np.zeros(1)
        for curve, weight, share in zip(curves, weights, shares, strict=True):
            if share:
                behind = np.maximum(curve.late(rate * weight), curve.late_behind(prompts_s, work_s))
                late = late + (share / total) * behind
        self._see(period, most, weights, curves)
        return late

    def _queued(self, period: int, most: float) -> tuple[F64, F64]:
        """Work of prompts, and all work, ahead of the requests of a period."""
        demand = self.fleet.demand
        first, last = demand.bounds[period : period + 2]
        at_s = demand.at_s[first:last]
        prompts, work = (
            work_ahead(at_s, weights[first:last], before, most, demand.period_s)
            for weights, before in ((demand.prompts, self._prompts), (demand.weights, self._work))
        )
        self._prompts, self._work = float(prompts[-1]), float(work[-1])
        return prompts[:-1], work[:-1]

    def _see(
        self, period: int, most: float, weights: Sequence[float], curves: Sequence[ReplicaCurve]
    ) -> None:
        """What a policy sees of it."""
        view, demand = self.view, self.fleet.demand
        view.rates = self._rates[: period + 1]
        recent = view.rates[-max(min(demand.width, round(SMOOTH_S / demand.period_s)), 1) :]
        rate = min(float(np.mean(recent)), most)
        flight = kv = room = 0.0
        for n, curve, weight in zip(self.ready, curves, weights, strict=True):
            flight += n * curve.in_flight(rate * weight)
            room += n * curve.in_flight(most * weight)
            kv += n * curve.kv_share(rate * weight)
        if self._work > room:  # nothing is free
            kv = sum(
                n * curve.kv_share(most * weight)
                for n, curve, weight in zip(self.ready, curves, weights, strict=True)
            )
        self._lifetime_s = flight / rate if rate else 0.0
        view.flight = self._as_load(max(flight, self._work), self._flights)
        view.kv_share = self._as_load(kv, self._kv)
        view.backlog = max(self._work - room, 0.0)
        view.capacity_per_s = self.carries(self.ready)
        view.planned_per_s = self.carries(self.current)
        self.load = view.flight

    def _as_load(self, metric: float, metrics: F64) -> float:
        """The load, over what is carried, at which a metric is predicted; metrics: of kinds."""
        values = np.array(self.ready) @ metrics
        if metric >= values[-1] > 0.0:
            return metric / float(values[-1])
        return float(np.interp(metric, values, LOADS))

    def target(self, period: int) -> Counts:
        """The replicas that its policy wants, fewer only when they were not wanted for long."""
        fleet = self.fleet
        assert fleet.policy is not None
        rate = fleet.policy.wanted_per_s(self.view)
        periods = max(round(fleet.down_after_s / fleet.demand.period_s), 1)
        while self._wanted and self._wanted[-1][1] <= rate:
            self._wanted.pop()
        self._wanted.append((period, rate))
        while self._wanted[0][0] <= period - periods:
            self._wanted.popleft()
        current, most = self.current, self._wanted[0][1]
        if rate > self.carries(current) * (1.0 + 1e-9):
            unit = max(kind.curve.carried_per_s for kind in fleet.kinds)
            planned = self.carries(current)
            rate = min(rate, max(TIMES * planned, planned + MORE * unit))
            return tuple(map(max, filled(fleet.kinds, rate, fleet.least), current))
        return emptied(fleet.kinds, current, most, fleet.least)

    def stop(self, target: Counts, period: int) -> None:
        """Stops what is too many: those that start first."""
        drain = max(math.ceil(self._lifetime_s / self.fleet.demand.period_s), 1)
        for kind, (wanted, now) in enumerate(zip(target, self.current, strict=True)):
            for _ in range(now - wanted):
                starting = [start for start in self.starting if start[1] == kind]
                if starting:
                    self.starting.remove(starting[-1])
                elif sum(self.ready) > 1:
                    self.ready[kind] -= 1
                    self.draining.append((period + 1 + drain, kind))

    def start(self, target: Counts, period: int, free: float) -> float:
        """Starts what is missing while there are devices; returns those that are left."""
        for index, (wanted, now) in enumerate(zip(target, self.current, strict=True)):
            kind = self.fleet.kinds[index]
            wait = math.ceil(kind.start_s / self.fleet.demand.period_s - 1e-9)
            for number in range(wanted - now):
                if kind.gpus > free:
                    self.refused += wanted - now - number
                    break
                free -= kind.gpus
                self.started += 1
                self.starting.append((period + 1 + wait, index))
        self.starting = deque(sorted(self.starting))
        return free


def run_fleets(fleets: Sequence[TimedFleet], devices: float = math.inf) -> list[FleetRun]:
    """Fleets side by side; those that are loaded most start replicas first.

    Args:
        devices: that they share.
    """
    running = [_begun(fleet) for fleet in fleets]
    _share(
        [state for state in running if state.fleet.policy is not None],
        devices - sum(state.gpus for state in running),
    )
    periods = max(len(fleet.demand.work) for fleet in fleets)
    replicas: list[list[list[int]]] = [[] for _ in fleets]
    late: list[list[F64]] = [[] for _ in fleets]
    for period in range(periods):
        active = [i for i, fleet in enumerate(fleets) if period < len(fleet.demand.work)]
        for index in active:
            counts, shares = running[index].pass_period(period)
            replicas[index].append(counts)
            late[index].append(shares)
        scaled = [running[i] for i in active if fleets[i].policy is not None]
        targets = [(state, state.target(period)) for state in scaled]
        for state, target in targets:
            state.stop(target, period)
        free = devices - sum(state.gpus for state in running)
        for state, target in sorted(targets, key=lambda pair: -pair[0].load):
            free = state.start(target, period, free)
    return [
        FleetRun(
            fleet.demand,
            fleet.kinds,
            np.array(counts, dtype=np.float64),
            np.array(shares),
            fleet.kinds[0].curve.allowed,
            state.started,
            state.refused,
        )
        for fleet, counts, shares, state in zip(fleets, replicas, late, running, strict=True)
    ]


def _begun(fleet: TimedFleet) -> _Running:
    """With the fewest replicas."""
    counts = filled(fleet.kinds, 0.0, fleet.least) if fleet.policy is not None else fleet.counts
    ready_s = min(kind.start_s for kind in fleet.kinds)
    return _Running(fleet, counts, FleetView(fleet.demand.period_s, ready_s))


def _share(running: Sequence[_Running], free: float) -> None:
    """Gives what the first periods need: the next replica to the fleet that is loaded most."""
    wanted = [state.begin() for state in running]
    while True:
        lacking = [
            (-state.load, number, index)
            for number, state in enumerate(running)
            for index, kind in enumerate(state.fleet.kinds)
            if state.ready[index] < wanted[number][index] and kind.gpus <= free
        ]
        if not lacking:
            break
        _, number, index = min(lacking)
        state = running[number]
        state.ready[index] += 1
        state.load = state.carries(wanted[number]) / state.carries(state.ready)
        free -= state.fleet.kinds[index].gpus
    for state in running:
        state.keep()


def run_alone(fleet: TimedFleet) -> FleetRun:
    """One fleet."""
    return run_fleets([fleet])[0]


def fewest_static(
    demand: PeriodDemand,
    kinds: Sequence[ReplicaKind],
    fits: Callable[[Counts], bool],
    least: int = 1,
) -> FleetRun | None:
    """The smallest fleet that keeps the objective over the whole time without scaling; None = none
    does.

    Args:
        fits: whether there are devices for so many; least: replicas.
    """

    def run_at(rate_per_s: float) -> FleetRun:
        return run_alone(TimedFleet(demand, tuple(kinds), counts=filled(kinds, rate_per_s, least)))

    peak = float(demand.steady.max()) / demand.period_s
    unit = min(kind.curve.carried_per_s for kind in kinds)
    most = math.ceil(peak / unit) + 1
    while not run_at(most * unit).keeps_objective:
        if not fits(filled(kinds, most * unit, least)) or not _more(kinds, most * unit):
            return None
        most *= 2
    too_few = largest(lambda n: not run_at(n * unit).keeps_objective, most)
    run = run_at((too_few + 1) * unit)
    counts = tuple(int(n) for n in run.replicas[0])
    return run if fits(counts) and run.keeps_objective else None


def _more(kinds: Sequence[ReplicaKind], rate_per_s: float) -> bool:
    """Whether there are more replicas than those that carry a rate."""
    return filled(kinds, 2.0 * rate_per_s) != filled(kinds, rate_per_s)


def foreseen(fleets: Sequence[TimedFleet], devices: float = math.inf) -> list[FleetRun]:
    """Who knows each period's rate, and whose replicas need no time to start: each period has the
    fewest that carry its rate. Where all fleets together would take more devices than there are,
    all carry the same share of it.
    """
    periods = max(len(fleet.demand.work) for fleet in fleets)
    rates = np.zeros((len(fleets), periods))
    for row, fleet in zip(rates, fleets, strict=True):
        row[: len(fleet.demand.work)] = fleet.demand.steady / fleet.demand.period_s
    counts_by_rates = dict[tuple[float, ...], list[Counts]]()
    for column in rates.T.tolist():
        if tuple(column) not in counts_by_rates:
            counts_by_rates[tuple(column)] = _fitting(fleets, column, devices)
    runs = []
    for index, fleet in enumerate(fleets):
        kinds, length = fleet.kinds, len(fleet.demand.work)
        counts = [counts_by_rates[tuple(column)][index] for column in rates.T[:length].tolist()]
        replicas = np.array(counts, dtype=np.float64)
        carried = replicas @ np.array([kind.curve.carried_per_s for kind in kinds])
        first = kinds[0].curve
        loads = rates[index, :length] / carried * first.carried_per_s
        late = np.array([first.late(load) for load in loads.tolist()])
        started = int(np.maximum(np.diff(replicas, axis=0), 0).sum())
        runs.append(FleetRun(fleet.demand, kinds, replicas, late, first.allowed, started, 0))
    return runs


def _fitting(fleets: Sequence[TimedFleet], rates: Sequence[float], devices: float) -> list[Counts]:
    """The fewest replicas of fleets that carry their rates, or as large a share as devices do."""

    def at(share: float) -> list[Counts]:
        pairs = zip(fleets, rates, strict=True)
        return [filled(fleet.kinds, share * rate, fleet.least) for fleet, rate in pairs]

    def fits(share: float) -> bool:
        pairs = zip(fleets, at(share), strict=True)
        gpus = (
            n * kind.gpus
            for fleet, counts in pairs
            for n, kind in zip(counts, fleet.kinds, strict=True)
        )
        return sum(gpus) <= devices

    if fits(1.0):
        return at(1.0)
    return at(largest(lambda n: fits(n / SHARES), SHARES) / SHARES)
