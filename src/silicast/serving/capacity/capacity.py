"""The most load that replicas carry under an objective, by bisection.

All loads see the same requests: arrivals of one pattern, faster or slower, with the same lengths.
What a load does is then nearly monotone, and a bracket of two loads, one kept and one broken, is
narrowed until they are 2 % apart. A run ends as soon as it will break the objective for certain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import final

import numpy as np

from silicast.serving.capacity.objective import Objective
from silicast.serving.capacity.room import held_by_cache, longest_sequence
from silicast.serving.simulation.event_loop import ReplicaSpec, Simulation
from silicast.serving.statistics.metrics import rates
from silicast.serving.statistics.records import Records
from silicast.serving.traffic.requests import SECOND_NS, Requests

TOLERANCE = 0.02
"""Between the largest load that is carried and the smallest that is not."""
LEAST_RATE, MOST_RATE = 1e-4, 1e6
ALONE = 50
"""Requests, one at a time, that say whether an objective can be kept at all."""


@final
@dataclass(frozen=True, slots=True)
class Bracket:
    """A load that is carried (0 = none was found) and one that is not (infinite = none was)."""

    carried: float
    broken: float


def bracketed(
    carries: Callable[[float], bool],
    start: float,
    *,
    least: float,
    most: float,
    whole: bool = False,
    factor: float = 2.0,
    tolerance: float = TOLERANCE,
) -> Bracket:
    """The largest load that is carried, and the smallest that is not.

    Args:
        carries: of a load; taken as monotone.
        start: first to be tried; ``factor``: between those tried until one is carried and one not.
        least, most: loads between which it looks.
        whole: loads are whole numbers.

    >>> bracketed(lambda load: load <= 77, 1.0, least=1.0, most=1000.0, whole=True)
    Bracket(carried=77.0, broken=78.0)
    >>> bracketed(lambda load: False, 8.0, least=1.0, most=1000.0)
    Bracket(carried=0.0, broken=1.0)
    >>> bracketed(lambda load: True, 8.0, least=1.0, most=100.0)
    Bracket(carried=100.0, broken=inf)
    """

    def rounded(load: float) -> float:
        return float(round(load)) if whole else load

    load, carried, broken = min(max(rounded(start), least), most), 0.0, np.inf
    while not (carried and np.isfinite(broken)):
        if carries(load):
            carried = load
            if load >= most:
                break
            after = min(rounded(load * factor), most)
            load = max(after, load + 1.0) if whole else after
        else:
            broken = load
            if load <= least:
                break
            before = max(rounded(load / factor), least)
            load = min(before, load - 1.0) if whole else before
        if whole:
            load = min(max(load, least), most)
    while carried and np.isfinite(broken) and broken > carried * (1.0 + tolerance):
        middle = rounded(float(np.sqrt(carried * broken)))
        if whole and broken - carried < 1.5:
            break
        if middle in (carried, broken):
            middle = rounded((carried + broken) / 2.0)
            if middle in (carried, broken):
                break
        carried, broken = (middle, broken) if carries(middle) else (carried, middle)
    return Bracket(carried, float(broken))


Specs = Sequence[ReplicaSpec] | None
"""Of each replica in place of its own."""
Simulate = Callable[[Requests, Specs], Simulation]


@final
@dataclass(frozen=True)
class Loads:
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
    objective: Objective
    count: Callable[[int], int] | None = None
    tried: dict[float, bool] = field(default_factory=dict)

    def at_rate(self, rate_per_s: float) -> Requests:
        """The requests at another rate."""
        arrival = self.requests.arrival_ns
        current = len(arrival) / max(int(arrival.max()), 1) * SECOND_NS
        return replace(
            self.requests, arrival_ns=np.rint(arrival * (current / rate_per_s)).astype(np.int64)
        )

    def of_clients(self, clients: int) -> Requests:
        """The requests of so many clients, each of whom waits for its answers."""
        count = len(self.requests) if self.count is None else self.count(clients)
        chosen = first(self.requests, min(max(count, clients), len(self.requests)))
        return replace(
            chosen, concurrency=clients, arrival_ns=np.zeros(len(chosen), dtype=np.int64)
        )

    def alone(self) -> Requests:
        """Requests one at a time: as quick as it gets."""
        chosen = first(self.requests, min(ALONE, len(self.requests)))
        nothing = np.zeros(len(chosen), dtype=np.int64)
        return replace(chosen, concurrency=1, arrival_ns=nothing)

    def served_per_s(self) -> float:
        """Requests a second where all come at once: hardly more can be carried."""
        nothing = np.zeros(len(self.requests), dtype=np.int64)
        burst = replace(self.requests, arrival_ns=nothing)
        return rates(self.run_whole(burst))["requests_per_s"]

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


def users_that_fit(specs: Sequence[ReplicaSpec], tokens: int) -> int:
    """Sequences of so many tokens that run at once on replicas: what their KV caches and engines
    allow, where tokens are decoded.
    """
    return sum(
        min(held_by_cache(spec.limits, spec.layout, tokens), spec.limits.sequences) * spec.groups
        for spec in specs
        if spec.role != "prefill"
    )


def longest_context(specs: Sequence[ReplicaSpec], model_tokens: int = 0) -> int:
    """Tokens of the longest sequence that fits the KV cache of every kind of replica.

    Args:
        model_tokens: what the model is made for; 0 = no limit.
    """
    return min(longest_sequence(spec.limits, spec.layout, model_tokens) for spec in specs)


def first(requests: Requests, count: int) -> Requests:
    """The first of the requests."""
    content = requests.content
    if content is not None:
        end = int(content.offsets[count])
        content = replace(
            content,
            segments=content.segments[:end],
            tokens=content.tokens[:end],
            offsets=content.offsets[: count + 1],
            outputs=content.outputs[:count],
        )
    lora = None if requests.lora is None else requests.lora[:count]
    return replace(
        requests,
        arrival_ns=requests.arrival_ns[:count],
        input_tokens=requests.input_tokens[:count],
        output_tokens=requests.output_tokens[:count],
        after=requests.after[:count],
        pause_ns=requests.pause_ns[:count],
        content=content,
        lora=lora,
    )
