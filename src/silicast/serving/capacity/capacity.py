"""The most load that replicas carry under an objective, by bisection (:mod:`.monotone`).

All loads see the same requests: arrivals of one pattern, faster or slower, with the same lengths.
What a load does is then nearly monotone. A run ends as soon as it will break the objective for
certain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import final

import numpy as np

from silicast.core.monotone import TOLERANCE, Bracket, bracketed
from silicast.serving.capacity.objective import LatencyObjective
from silicast.serving.simulation.event_loop import ReplicaSpec, Simulation
from silicast.serving.statistics.metrics import rates
from silicast.serving.statistics.records import Records
from silicast.serving.traffic.requests import SECOND_NS, Requests

LEAST_RATE, MOST_RATE = 1e-4, 1e6
ALONE = 50
"""Requests, one at a time, that say whether an objective can be kept at all."""
LONG, COUNTS = 20.0, (1_000, 2_000, 4_000, 8_000)
"""Answer times that requests of a steady state should arrive for, and numbers of them to choose
from: those of which the order is even (:func:`.even_order`), just below a power of two.
"""
OF_MEANS, OF_QUANTILES = COUNTS[2], COUNTS[3]
"""Requests that an objective is judged by, at least: one on means alone, and one on a quantile of
any latency. Time a token hardly grows with the load, so that a few late requests more or less in a
run of 4,000 move the load that keeps a limit on it by 3 to 5 %.
"""

Specs = Sequence[ReplicaSpec] | None
"""Of each replica in place of its own."""
Simulate = Callable[[Requests, Specs], Simulation]


NEAR_MOST = 0.8
"""Share of the most that replicas carry from which on so many requests are needed as under a limit
on a mean: more and more run at once before any of them waits."""


def enough_requests(
    alone: Records,
    rate_per_s: float,
    objective: LatencyObjective | None = None,
    most_per_s: float = math.inf,
) -> int:
    """The number of :data:`COUNTS` that takes :data:`LONG` times as long to arrive as an answer
    takes, and with which two loads 5 % apart differ under the objective; at most the last.

    Args:
        alone: requests one at a time.
        objective: that is to be kept.
        most_per_s: requests that are carried at all, by :func:`.estimated_knee`.
    """
    needed = LONG * float(alone.e2e_s().mean()) * rate_per_s
    if rate_per_s > NEAR_MOST * most_per_s:
        needed = max(needed, OF_MEANS)
    if objective is not None and objective.limits_anything:
        needed = max(needed, OF_QUANTILES if objective.highest_quantile else OF_MEANS)
    return next((count for count in COUNTS if count >= needed), COUNTS[-1])


@final
@dataclass(frozen=True)
class TrafficLoads:
    """Loads of one traffic on a fleet.

    Attributes:
        requests: the traffic: what is asked, in which order and with which pattern of arrivals.
        simulation: of requests on the fleet, or on its replicas at another pace.
        objective: to keep.
        count: requests of a run with so many clients; None = all.
        tried: load -> whether it is carried, at the predicted pace.
    """

    requests: Requests
    simulation: Simulate
    objective: LatencyObjective
    count: Callable[[int], int] | None = None
    tried: dict[float, bool] = field(default_factory=dict)

    def at_rate(self, rate_per_s: float) -> Requests:
        """The requests at another rate."""
        arrival = self.requests.arrival_ns
        own_per_s = len(arrival) / max(int(arrival.max()), 1) * SECOND_NS
        return replace(
            self.requests, arrival_ns=np.rint(arrival * (own_per_s / rate_per_s)).astype(np.int64)
        )

    def of_clients(self, clients: int) -> Requests:
        """The requests of so many clients, each of whom waits for its answers."""
        count = len(self.requests) if self.count is None else self.count(clients)
        return self.requests.first(max(count, clients)).from_clients(clients)

    def alone(self) -> Requests:
        """Requests one at a time: as quick as it gets."""
        return self.requests.first(ALONE).from_clients(1)

    def burst(self) -> Records:
        """A run where all come at once: hardly more requests a second can be carried."""
        nothing = np.zeros(len(self.requests), dtype=np.int64)
        return self.run_whole(replace(self.requests, arrival_ns=nothing, steady=False))

    def served_per_s(self) -> float:
        """Requests a second of :meth:`burst`."""
        return rates(self.burst())["requests_per_s"]

    def run_whole(self, requests: Requests) -> Records:
        """A run to its end, whatever the objective."""
        return self.simulation(requests, None).run()

    def run(self, requests: Requests, specs: Specs = None) -> Records:
        """A run to its end, or until the objective is broken for certain."""
        simulation = self.simulation(requests, specs)
        records = simulation.records
        return simulation.run(lambda now: self.objective.hopeless(records, now))

    def carries(self, requests: Requests, specs: Specs = None) -> bool:
        """Whether requests are answered within the objective."""
        records = self.run(requests, specs)
        return not (records.done_ns < 0).any() and not self.objective.broken(records)

    def most(
        self,
        load: Callable[[float], Requests],
        start: float,
        *,
        least: float,
        most: float,
        whole: bool = False,
        specs: Specs = None,
        factor: float = 2.0,
    ) -> Bracket:
        """The largest load that is carried.

        Args:
            load: requests of it (:meth:`at_rate`, :meth:`of_clients`).
            factor: between loads until one is carried and one not.
            specs: replicas at another pace: near the load that is known, and half as fine.
        """

        def carries(at: float) -> bool:
            met = self.carries(load(at), specs)
            if specs is None:
                self.tried[at] = met
            return met

        factor, tolerance = (factor, TOLERANCE) if specs is None else (1.15, 2.0 * TOLERANCE)
        return bracketed(
            carries, start, least=least, most=most, whole=whole, factor=factor, tolerance=tolerance
        )
