"""How many replicas each pool of a fleet needs for a traffic, at the least cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, final

import numpy as np

from silicast.core.errors import SilicastError
from silicast.core.prediction import Quantity
from silicast.scenario.answers.capacity.power_budget import check_budget, most_within, within_budget
from silicast.scenario.workloads import CapacityWorkload
from silicast.serving.capacity.capacity import TrafficLoads
from silicast.serving.capacity.pool_counts import Counts, CountSearch
from silicast.serving.simulation.event_loop import ReplicaSpec
from silicast.serving.simulation.fleet import Fleet
from silicast.serving.statistics.records import Records
from silicast.serving.statistics.step_mix import columns

MOST_GPUS = 1024


@final
class FleetSize:
    """The search for the fewest devices of all pools, or with objective ``min_cost`` the cheapest.

    Args:
        fleet: its pools, of any size.
        loads: the traffic, which the choice is to carry; coarse: its part for tries.
    """

    def __init__(
        self, fleet: Fleet, work: CapacityWorkload, loads: TrafficLoads, coarse: TrafficLoads
    ) -> None:
        self._fleet, self._work, self._loads, self._coarse = fleet, work, loads, coarse
        self._search: CountSearch | None = None

    def smallest(self) -> tuple[Fleet, bool]:
        """The fleet, and whether it carries the traffic: else it is the largest tried."""
        most, vary = self._work.search.max_gpus or MOST_GPUS, self._work.search.vary
        least = sum(pool.deployment.plan.gpus for pool in self._fleet.pools)
        if least > most:
            raise SilicastError(
                f"one replica of each pool takes {least} devices, more than {most}",
                field="workload.search.max_gpus",
                hint=f"at least {least}, or a plan of fewer devices",
            )
        budget = self._work.search.max_power_w
        check_budget(self._fleet.counted([1] * len(self._fleet.pools)), budget)
        allowed = [
            allowed_counts(vary, pool.name)
            or range(
                1, max(min(most // pool.deployment.plan.gpus, most_within(pool, budget)), 1) + 1
            )
            for pool in self._fleet.pools
        ]
        self._search = self._over(allowed)
        counts = self._search.cheapest()
        return self._fleet.counted(counts or [each[-1] for each in allowed]), counts is not None

    def tried(self) -> list[list[Any]]:
        """Numbers of replicas, by pool if there are several, and whether they carry the traffic."""
        tried = sorted(self._search.tried.items()) if self._search is not None else []
        if len(self._fleet.pools) == 1:
            return [[float(count), met] for (count,), met in tried]
        names = [pool.name for pool in self._fleet.pools]
        return [[dict(zip(names, counts, strict=True)), met] for counts, met in tried]

    def metrics(
        self, smallest: Fleet, slow: Sequence[ReplicaSpec], quick: Sequence[ReplicaSpec]
    ) -> dict[str, Quantity]:
        """Devices and their cost; a slow machine needs as many and more, a quick one no more.

        Args:
            smallest: the fleet that carries the traffic; slow, quick: its replicas at another pace.
        """
        fleets = [smallest]
        for specs, more in ((slow, True), (quick, False)):
            tries = []
            for pool in smallest.pools:
                near = range(pool.count, 4 * pool.count + 5) if more else range(1, pool.count + 1)
                allowed = allowed_counts(self._work.search.vary, pool.name)
                tries.append([n for n in allowed or near if n in near])
            kinds = [specs[smallest.replicas_of(pool)[0]] for pool in smallest.pools]
            counts = self._over(tries, kinds).cheapest() or [each[-1] for each in tries]
            fleets.append(smallest.counted(counts))
        gpus = [float(fleet.gpus) for fleet in fleets]
        metrics = {"gpus": Quantity(gpus[0], min(gpus), max(gpus))}
        costs = [fleet.cost_per_hour for fleet in fleets]
        priced = [cost for cost in costs if cost is not None]
        if len(priced) == len(costs):
            metrics["cost_per_hour"] = Quantity(priced[0], min(priced), max(priced))
        return metrics

    def _over(
        self, allowed: Sequence[Sequence[int]], kinds: Sequence[ReplicaSpec] = ()
    ) -> CountSearch:
        """Of numbers of replicas; ``kinds``: the replicas of each pool at another pace."""

        def met(loads: TrafficLoads, counts: Counts) -> bool:
            simulation = self._fleet.counted(counts).simulation
            specs = None
            if kinds:
                specs = [kind for kind, n in zip(kinds, counts, strict=True) for _ in range(n)]
            return replace(loads, simulation=simulation).carries(loads.requests, specs)

        def confirms(counts: Counts) -> bool:
            if kinds or self._loads is self._coarse:
                return True
            loads = replace(self._loads, simulation=self._fleet.counted(counts).simulation)
            return loads.carries(loads.requests)

        def within(counts: Counts) -> bool:
            fleet, search = self._fleet.counted(counts), self._work.search
            fits = search.max_gpus is None or fleet.gpus <= search.max_gpus
            return fits and within_budget(fleet, search.max_power_w)

        priced = self._work.objective == "min_cost"
        prices = [
            pool.deployment.plan.gpus * ((pool.price_per_gpu_hour or 0.0) if priced else 1.0)
            for pool in self._fleet.pools
        ]
        return CountSearch(lambda n: met(self._coarse, n), allowed, prices, within, confirms)


def of_pools(
    fleet: Fleet, records: Records, loads: TrafficLoads, vary: Mapping[str, Sequence[Any]]
) -> dict[str, Any]:
    """Of each of several pools its size, how busy it is, and what fewer replicas break.

    Args:
        loads: the traffic for fewer replicas; vary: numbers of them that may be chosen.
    """
    if len(fleet.pools) == 1:
        return {}
    start, end, replica = columns(records.log.table(), "start_ns", "end_ns", "replica")
    span = max(records.end_ns - int(records.sent_ns.min()), 1)
    table = {}
    for pool in fleet.pools:
        isin = np.isin(replica, fleet.replicas_of(pool))
        busy = float((end - start)[isin].sum()) / (span * pool.count)
        about: dict[str, Any] = {"replicas": pool.count, "gpus": pool.gpus, "busy": round(busy, 6)}
        allowed = allowed_counts(vary, pool.name) or [pool.count - 1]
        if less := max((n for n in allowed if n < pool.count), default=0):
            counts = [less if each is pool else each.count for each in fleet.pools]
            fewer = replace(loads, simulation=fleet.counted(counts).simulation)
            broken = loads.objective.broken(fewer.run_whole(loads.requests))
            about["fewer"] = {"replicas": less, "breaks": sorted(broken)}
        table[pool.name] = about
    return {"pools": table}


def allowed_counts(vary: Mapping[str, Sequence[Any]], pool: str) -> list[int]:
    """Replicas that a search may choose for a pool, ascending; none = any.

    Raises:
        SilicastError: one that is no count.

    >>> allowed_counts({"pools.decode.count": [4, 1]}, "decode")
    [1, 4]
    """
    field = f"pools.{pool}.count"
    counts = list(vary.get(field, ()))
    if any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in counts):
        raise SilicastError("expected whole numbers from 1", field=f"workload.search.vary.{field}")
    return sorted(set(counts))
