"""The search behind task ``capacity`` for one fleet."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, final

import msgspec
import numpy as np

from silicast.core.errors import SilicastError
from silicast.core.monotone import TOLERANCE, Bracket
from silicast.core.prediction import Z90, Quantity
from silicast.scenario.answer import Answer, Belief
from silicast.scenario.answers.capacity.fleet_size import FleetSize, of_pools
from silicast.scenario.answers.capacity.power_budget import check_budget, most_power_w
from silicast.scenario.answers.serving.served import Served
from silicast.scenario.answers.serving.serving_checks import objective_remarks
from silicast.scenario.answers.serving.simulated import Simulated
from silicast.scenario.decode import Scenario
from silicast.scenario.resolving.fleets import fleet_of
from silicast.scenario.resolving.traffic import OPEN_REQUESTS, requests_of_clients, traffic_of
from silicast.scenario.road import PARTS, not_yet_of
from silicast.scenario.workloads import ArrivalTable, CapacityWorkload, ServingWorkload
from silicast.serving.capacity.capacity import (
    LEAST_RATE,
    MOST_RATE,
    OF_MEANS,
    OF_QUANTILES,
    TrafficLoads,
    enough_requests,
)
from silicast.serving.capacity.edge import ObjectiveEdge, edge_rate, kept_by_fresh, told
from silicast.serving.capacity.knee import estimated_knee
from silicast.serving.capacity.objective import LatencyObjective
from silicast.serving.capacity.room import longest_context, users_that_fit
from silicast.serving.simulation.event_loop import ReplicaSpec
from silicast.serving.simulation.fleet import Fleet
from silicast.serving.simulation.launch import Expected
from silicast.serving.statistics.energy import power
from silicast.serving.statistics.metrics import rates
from silicast.serving.statistics.records import Records
from silicast.serving.statistics.uncertainty import PaceError, paced
from silicast.serving.traffic.requests import Requests

REQUESTS = 400
"""That show how long requests get."""
LAUNCHES = 3
"""How often clients are counted anew on engines that are launched for the clients counted last."""
DRAWS = (2, 8)
"""Fewest and most draws of random lengths by which a number of clients is judged."""
SHORT = 5.0
"""Answer times that requests arrive for, below which a warning names it."""
LOWER = 1.02
"""By which a rate is lowered until the draw whose statistics are shown carries it."""
COARSE = 4
"""A long traffic is searched with this part of its requests first."""
FEWEST = 200
Z80 = 1.2815515655446004
"""Standard deviations that a value lies below with 90 % probability."""
SAFE = {"max_rate_per_s": "safe_rate_per_s", "max_concurrency": "safe_concurrency"}
"""A load that is found -> the one that keeps the objective with 90 % probability."""
LOADS = {
    "max_rate": "max_rate_per_s",
    "max_concurrency": "max_concurrency",
    "min_gpus": "gpus",
    "min_cost": "gpus",
    "max_tokens_per_joule": "output_tokens_per_joule",
}
"""Objective of a search -> the metric that it finds."""
COUNTED = ("min_gpus", "min_cost")
"""Objectives that choose how many replicas each pool has."""
NO_PRICE = (
    "cost: no price of a device is stated (cluster.price_per_gpu_hour, or one of each pool): it is "
    "counted in hours of devices, all alike"
)


@final
@dataclass(frozen=True)
class CarriedLoad:
    """The load that is carried.

    Attributes:
        bracket: of loads; requests: of the one that is carried, or one at a time if none is.
        fleet: that carries it.
        limited_by: "objective", "saturation", "front", "kv_cache", "sequences" or "search".
    """

    bracket: Bracket
    requests: Requests
    fleet: Fleet
    limited_by: str


@final
class CapacitySearch:
    """The capacity of one fleet, or how many replicas of its pools a traffic needs."""

    def __init__(
        self,
        scenario: Scenario,
        fields: Mapping[str, Any],
        work: CapacityWorkload,
        remarks: Sequence[str] = (),
    ) -> None:
        self.fields, self.work, self._scenario = dict(fields), work, scenario
        fleet, warnings = fleet_of(scenario, self._expected())
        self._warnings = [*warnings, *remarks]
        if work.objective == "min_cost":
            fleet = self._priced(fleet)
        if work.objective not in COUNTED:
            check_budget(fleet, work.search.max_power_w)
        self._fleet = fleet
        self._objective = LatencyObjective.from_fields(msgspec.to_builtins(work.slo))
        traffic = self._traffic()
        self._loads = self._on(fleet, traffic)
        self._longest = traffic.longest_tokens
        self._size: FleetSize | None = None
        self._cached = 0.0
        self._edge: ObjectiveEdge | None = None
        self._by_front = False
        self._arriving = self._of_draw = len(traffic)
        self.outcome = self._search()
        self._per_joule = self._efficiency() if work.objective == "max_tokens_per_joule" else 0.0

    @property
    def load(self) -> float:
        """What is carried: a rate, clients or replicas; 0 = nothing."""
        return self.outcome.bracket.carried

    @property
    def gpus(self) -> int:
        """Devices of all replicas."""
        return self.outcome.fleet.gpus

    @property
    def rank(self) -> tuple[float, ...]:
        """The best candidate has the smallest."""
        failed = float(self.load == 0.0)
        if self.work.objective.startswith("max"):
            return failed, -(self._per_joule or self.load), self.gpus
        return failed, self.outcome.fleet.cost_per_hour or self.gpus, self.gpus

    def summary(self) -> dict[str, Any]:
        """One line of a comparison of candidates."""
        name = LOADS[self.work.objective]
        value = self.gpus if name == "gpus" and self.load else self._per_joule or self.load
        summary: dict[str, Any] = {"fields": self.fields, name: value, "gpus": self.gpus}
        summary["reached"] = self.load > 0.0
        if self.work.search.max_power_w is not None:
            summary["power_limit_w"] = most_power_w(self.outcome.fleet)
        if self.work.objective == "min_cost":
            summary["cost_per_hour"] = self.outcome.fleet.cost_per_hour
        return summary

    def answer(self) -> Answer:
        """The capacity with the statistics there."""
        result = self.outcome
        served = Served(result.fleet, result.requests, self.work.slo)
        simulated = Simulated(result.fleet, served.simulate, begin=served.begin)
        remarks = [*self._warnings, *self._said(simulated.records)]
        reply = simulated.answer(served.metrics_of, remarks)
        reply.why.update(served.why())
        pace = simulated.error.pace
        ends = [[paced(spec, pace(z)) for spec in result.fleet.specs] for z in (Z90, -Z90)]
        quantities = self._metrics(ends, reply.metrics, simulated.error) | served.power()
        metrics = {name: Belief.from_quantity(value) for name, value in quantities.items()}
        reply.why["capacity"] = self._why(simulated.records)
        judged = served.judged(reply.metrics)
        return msgspec.structs.replace(reply, metrics=metrics | reply.metrics | judged)

    def tightest(self) -> tuple[str, float, float]:
        """What one request at a time takes of the limit that it comes nearest to: statistic, value
        and limit in milliseconds; without a limit nothing of an infinite one.
        """
        values = self.alone_ms(self._fleet)
        if not values:
            return "", 0.0, math.inf
        name = max(values, key=lambda each: values[each] / self._objective.limit(each))
        return name, values[name], self._objective.limit(name)

    def alone_ms(self, fleet: Fleet) -> dict[str, float]:
        """Statistics that have limits, of one request at a time on a fleet."""
        return self._objective.values(fleet.serve(self._loads.alone()))

    def remark(self, line: str) -> None:
        """Adds a warning to the answer."""
        self._warnings.append(line)

    def fleet_as(self, scenario: Scenario) -> Fleet:
        """The fleet of another scenario, launched for the same requests."""
        return fleet_of(scenario, self._expected())[0]

    def _expected(self, clients: int = 0) -> Expected:
        """What the engines are launched for: prompts as long as these, at any load, or from so
        many clients.
        """
        traffic = self.work.traffic
        if traffic.arrival.kind != "trace":
            alone = ArrivalTable("closed", concurrency=1)
            traffic = _with(traffic, arrival=alone, requests=traffic.requests or REQUESTS)
        requests = self._requests(traffic)
        return Expected(int(requests.input_tokens.max()), clients, requests.longest_tokens)

    def _on(self, fleet: Fleet, traffic: Requests) -> TrafficLoads:
        return TrafficLoads(traffic, fleet.simulation, self._objective, count=self._count)

    def _priced(self, fleet: Fleet) -> Fleet:
        """The fleet, each device at one an hour where no price is stated."""
        if fleet.cost_per_hour is not None:
            return fleet
        without = [pool for pool in fleet.pools if pool.price_per_gpu_hour is None]
        if len(without) < len(fleet.pools):
            raise SilicastError(
                "the price of a device is not stated",
                field=f"pools.{without[0].name}.price_per_gpu_hour",
            )
        self._warnings.append(NO_PRICE)
        return replace(fleet, pools=tuple(replace(p, price_per_gpu_hour=1.0) for p in without))

    def _efficiency(self) -> float:
        """Output tokens a joule; 0 where nothing is carried."""
        if not self.load:
            return 0.0
        records = self._loads.run_whole(self.outcome.requests)
        result = power(records, self.outcome.fleet)
        if not result:
            raise not_yet_of(PARTS["power"], "workload.objective")
        return 1.0 / result["energy_per_output_token_j"][0]

    def _traffic(self) -> Requests:
        """What is asked, at the rate that the scenario states."""
        traffic = self.work.traffic
        arrival = traffic.arrival
        if self.work.objective == "max_rate" and arrival.kind == "closed":
            traffic = _with(traffic, arrival=ArrivalTable("poisson", rate_per_s=1.0))
        if self.work.objective == "max_concurrency" and arrival.kind != "trace":
            traffic = _with(traffic, arrival=ArrivalTable("closed", concurrency=1))
        if self.work.objective == "max_concurrency" and traffic.arrival.kind != "trace":
            count = self._count(self._most_clients(traffic))
            traffic = _with(traffic, requests=count)
        self._stated = traffic
        return self._requests(traffic)

    def _requests(
        self, traffic: ServingWorkload, count: int = OPEN_REQUESTS, further_seed: int = 0
    ) -> Requests:
        seed, folder = self._scenario.raw.seed or 0, self._scenario.folder
        return traffic_of(traffic, seed + further_seed, folder, "workload.traffic", count).requests

    def _most_clients(self, traffic: ServingWorkload) -> int:
        """Clients whose requests fit at once, the longest of each."""
        requests = self._requests(_with(traffic, requests=REQUESTS))
        return max(users_that_fit(self._fleet.specs, requests.longest_tokens), 1)

    def _count(self, clients: int) -> int:
        """Requests of a run with clients: as many as `serve` simulates for them."""
        return self.work.traffic.requests or requests_of_clients(clients)

    def _search(self) -> CarriedLoad:
        if self.work.objective == "max_concurrency":
            return self._most_users()
        alone = self._loads.run(self._loads.alone())
        if (alone.done_ns < 0).any() or self._objective.broken(alone):
            return self._none()
        if self.work.objective == "max_rate":
            return self._highest_rate(alone)
        rate = self.work.traffic.arrival.rate_per_s or 0.0
        loads = self._loads = self._long_enough(alone, rate)
        if self.work.objective not in COUNTED:
            met = loads.carries(loads.requests)
            bracket = Bracket(float(met), 0.0 if met else 1.0)
            return CarriedLoad(bracket, loads.requests, self._fleet, "objective")
        return self._fewest()

    def _long_enough(
        self, alone: Records, rate_per_s: float, most_per_s: float = math.inf
    ) -> TrafficLoads:
        """The traffic with enough requests for a steady state, where no number is stated."""
        if not self._loads.requests.steady:
            return self._loads
        self._arriving = max(enough_requests(alone, rate_per_s), OPEN_REQUESTS)
        enough = enough_requests(alone, rate_per_s, self._objective, most_per_s)
        count = max(enough, OPEN_REQUESTS)
        return self._drawn(self._loads, count)

    def _drawn(self, loads: TrafficLoads, count: int, further_seed: int = 0) -> TrafficLoads:
        """A draw of the traffic, of so many requests."""
        requests = self._requests(self._stated, count, further_seed)
        return replace(loads, requests=requests, tried={})

    def _fewest(self) -> CarriedLoad:
        """The fewest devices, or the cheapest."""
        self._size = FleetSize(self._fleet, self.work, self._loads, self._coarse())
        fleet, carried = self._size.smallest()
        if not carried:
            return CarriedLoad(Bracket(0.0, math.inf), self._loads.requests, fleet, "search")
        replicas = float(sum(pool.count for pool in fleet.pools))
        less = replicas - 1.0 if len(fleet.pools) == 1 else math.inf
        return CarriedLoad(Bracket(replicas, less), self._loads.requests, fleet, "objective")

    def _highest_rate(self, alone: Records) -> CarriedLoad:
        coarse = self._coarse()
        burst = coarse.burst()
        self._cached = burst.hit_rate
        most = self._saturation(self._fleet.specs)
        start = min(rates(burst)["requests_per_s"], most)
        bracket = coarse.most(coarse.at_rate, start, least=LEAST_RATE, most=most, factor=1.5)
        loads = self._loads = self._long_enough(alone, bracket.carried, most)
        longer, steady = loads.requests is not coarse.requests, loads.requests.steady
        if bracket.carried and longer and not (steady and math.isfinite(bracket.broken)):
            bracket = loads.most(
                loads.at_rate, bracket.carried, least=LEAST_RATE, most=most, factor=1.1
            )
        if bracket.carried and steady and math.isfinite(bracket.broken):
            bracket = self._steady_edge(bracket.carried, most)
        if not bracket.carried:
            return self._none()
        rate = bracket.carried
        full = self._edge.rate_per_s >= most if self._edge else math.isinf(bracket.broken)
        limited = ("front" if self._by_front else "saturation") if full else "objective"
        return CarriedLoad(bracket, loads.at_rate(rate), self._fleet, limited)

    def _steady_edge(self, near: float, most: float) -> Bracket:
        """A rate below the edge of many draws that the shown draw carries, and the lowest rate
        above the edge from which on no draw carries it.

        Args:
            near: a rate near the edge; most: that the fleet carries at all.
        """
        loads, whole = self._loads, len(self._loads.requests)
        self._of_draw = count = min(max(self._arriving, OF_MEANS), whole)
        drawn = 0

        def excess_at(rate_per_s: float) -> dict[str, float]:
            nonlocal drawn
            drawn += 1
            draw = self._drawn(loads, count, drawn)
            excess = self._objective.excess(draw.run_whole(draw.at_rate(rate_per_s)))
            loads.tried[rate_per_s] = max(excess.values()) <= 0.0
            return excess

        self._edge = edge = edge_rate(near, excess_at, count / whole, most)
        at = min(edge.rate_per_s, most)
        rate = max(told(at * (1.0 - edge.margin)), LEAST_RATE)
        met = max((each for each, met in loads.tried.items() if met), default=0.0)
        broken = min((each for each in loads.tried if each > max(met, at)), default=math.inf)
        shown = loads.most(
            lambda at: loads.at_rate(told(at)), rate, least=LEAST_RATE, most=rate, factor=LOWER
        )
        return Bracket(told(shown.carried), broken)

    def _saturation(self, specs: Sequence[ReplicaSpec]) -> float:
        """Requests a second that steps of the largest batch answer: a run that is too short for
        queues to build up carries more. Of several pools it is not known.
        """
        if len(self._fleet.pools) > 1:
            return MOST_RATE
        requests, count = self._loads.requests, len(specs)
        knee = estimated_knee(specs[0], requests, count, cached=self._cached)
        self._by_front = knee.by_front
        return max(min(knee.most_per_s, MOST_RATE), LEAST_RATE)

    def _coarse(self) -> TrafficLoads:
        loads, count = self._loads, min(len(self._loads.requests), self._arriving)
        if count < COARSE * FEWEST:
            return loads
        return replace(loads, requests=loads.requests.first(count // COARSE), tried={})

    def _most_users(self) -> CarriedLoad:
        """The most clients of engines that are launched for so many."""
        bracket = self._users_of(8.0)
        for _ in range(LAUNCHES if self._launched_for_traffic else 0):
            fleet = fleet_of(self._scenario, self._expected(int(bracket.carried)))[0]
            if [spec.limits for spec in fleet.specs] == [s.limits for s in self._fleet.specs]:
                break
            self._fleet, self._loads = fleet, self._on(fleet, self._loads.requests)
            bracket = self._users_of(bracket.carried or 1.0)
        if not bracket.carried:
            return self._none()
        bracket = self._kept_by_draws(bracket)
        loads, specs = self._loads, self._fleet.specs
        most = max(users_that_fit(specs, self._longest), 1)
        limited = "objective"
        if math.isinf(bracket.broken):
            together = (
                spec.limits.sequences * spec.groups for spec in specs if spec.role != "prefill"
            )
            full = sum(together) <= most
            limited = "sequences" if full else "kv_cache"
        clients = int(bracket.carried)
        return CarriedLoad(bracket, loads.of_clients(clients), self._fleet, limited)

    def _kept_by_draws(self, bracket: Bracket) -> Bracket:
        """The most clients, no more than carried, with whom several draws of random lengths keep
        the objective together and fresh ones will: one draw tells little of a quantile.
        """
        clients, shown = int(bracket.carried), self._loads.requests
        first = self._drawn(self._loads, len(shown), 1)
        if first.requests.has_lengths_of(shown):
            return bracket
        count = min(max(OF_QUANTILES // self._count(clients), DRAWS[0]), DRAWS[1])
        more = range(2, count + 1)
        draws = [first, *(self._drawn(self._loads, len(shown), number) for number in more)]
        while clients > 1:
            runs = [draw.run_whole(draw.of_clients(clients)) for draw in draws]
            surely = kept_by_fresh([self._objective.excess(run) for run in runs])
            if surely and not self._objective.broken(*runs):
                break
            clients = min(clients - 1, int(clients * (1.0 - TOLERANCE)))
        reduced = clients < bracket.carried
        return Bracket(float(clients), clients + 1.0) if reduced else bracket

    def _users_of(self, start: float) -> Bracket:
        loads = self._loads
        most = max(users_that_fit(self._fleet.specs, self._longest), 1)
        return loads.most(
            lambda clients: loads.of_clients(int(clients)),
            min(start, most),
            least=1.0,
            most=float(most),
            whole=True,
        )

    @property
    def _launched_for_traffic(self) -> bool:
        """Whether limits of an engine follow from how many clients there are."""
        tables = (pool.deployment.engine.serving for pool in self._fleet.pools)
        return any(table is not None and table.launch is not None for table in tables)

    def _none(self) -> CarriedLoad:
        """Nothing is carried: the nearest is one request at a time."""
        return CarriedLoad(Bracket(0.0, 0.0), self._loads.alone(), self._fleet, "objective")

    def _metrics(
        self, ends: Sequence[Sequence[ReplicaSpec]], there: Mapping[str, Belief], error: PaceError
    ) -> dict[str, Quantity]:
        """What was found, at the predicted pace and at a slow and a quick one.

        Args:
            there: statistics of the load that is carried; error: of paces, and beyond them.
        """
        name, load, fleet = LOADS[self.work.objective], self.load, self.outcome.fleet
        metrics: dict[str, Quantity] = {}
        if name == "gpus" and load:
            assert self._size is not None
            metrics |= self._size.metrics(fleet, *ends)
        elif name == "output_tokens_per_joule":
            metrics["gpus"] = Quantity.exact(float(self.gpus))
        elif name != "gpus":
            low = high = load
            if load:
                low, high = (
                    self._shifted(there, specs, deviations, error)
                    for specs, deviations in zip(ends, (Z90, -Z90), strict=True)
                )
                safe = load * (min(low, load) / load) ** (Z80 / Z90)
                metrics[SAFE[name]] = Quantity.exact(safe)
            values = [load, low, high]
            metrics[name] = Quantity(load, min(values), max(values))
            metrics["gpus"] = Quantity.exact(float(self.gpus))
        else:
            metrics[name] = Quantity.exact(0.0)
        fit = users_that_fit(fleet.specs, self._longest)
        metrics["users_that_fit"] = Quantity.exact(float(fit))
        longest = longest_context(fleet.specs, fleet.entry.deployment.model.max_positions)
        metrics["longest_context_tokens"] = Quantity.exact(float(longest))
        return metrics

    def _shifted(
        self,
        there: Mapping[str, Belief],
        specs: Sequence[ReplicaSpec],
        deviations: float,
        error: PaceError,
    ) -> float:
        """The load that is carried at another pace, and where what is limited is off beyond its
        steps by so many standard deviations: two errors that do not know of each other.
        """
        e2e = there["e2e_mean_ms"].estimate
        first = min(there["ttft_mean_ms"].estimate / e2e, 1.0) if e2e else 0.0
        limited = (*self._objective.named, *(f"{each}_ms" for each in self._objective.each))
        factors = {
            name: math.exp(deviations * error.beyond_of(name.split("_")[0], first))
            for name in limited
        }
        loads = self._at(specs), self._at(self._fleet.specs, self._objective.divided(factors))
        if min(loads) <= 0.0:
            return 0.0
        shift = math.hypot(*(math.log(each / self.load) for each in loads))
        return self.load * math.exp(-math.copysign(shift, deviations))

    def _at(self, specs: Sequence[ReplicaSpec], objective: LatencyObjective | None = None) -> float:
        """The load that is carried at another pace, or under another objective."""
        loads, load = self._loads, self.load
        if objective is not None:
            loads = replace(loads, objective=objective, tried={})
        if self.work.objective == "max_concurrency":
            most = float(max(users_that_fit(self._fleet.specs, self._longest), 1))
            return loads.most(
                lambda clients: loads.of_clients(int(clients)),
                load,
                least=1.0,
                most=most,
                whole=True,
                specs=specs,
            ).carried
        coarse, carried, most = self._coarse(), load, self._saturation(self._fleet.specs)
        if coarse is not self._loads:  # of fewer requests both, here and as found
            result = coarse.most(coarse.at_rate, load, least=LEAST_RATE, most=most, factor=1.1)
            carried = result.carried or load
        most = self._saturation(specs)
        start = min(carried, most)
        if objective is not None:
            coarse = replace(coarse, objective=objective, tried={})
        moved = coarse.most(coarse.at_rate, start, least=LEAST_RATE, most=most, specs=specs)
        return load * moved.carried / carried

    def _said(self, records: Records) -> list[str]:
        """That the objective is out of reach, and what is the nearest; what of it says little."""
        remarks = objective_remarks(self.work.slo, len(records.requests)) if self.load else []
        return [*remarks, *self._missed(records)]

    def _missed(self, records: Records) -> list[str]:
        if self.load:
            return self._short(records)
        if self.outcome.limited_by == "search":
            return [f"not even {self.gpus} devices carry this traffic: statistics are theirs"]
        values = self._objective.values(records)
        over = [
            f"{name.removesuffix('_ms')} is {value:.4g} ms, not {limit:.4g} ms"
            for name, value in values.items()
            if value > (limit := self._objective.limit(name))
        ]
        return [f"the objective is out of reach: one request at a time, {', '.join(over)}"]

    def _short(self, records: Records) -> list[str]:
        """That queues had no time to build up."""
        if records.requests.concurrency:
            return []
        arrives_s = int(records.requests.arrival_ns.max()) * 1e-9
        taken_s = float(records.e2e_s().mean())
        if arrives_s >= SHORT * taken_s:
            return []
        message = f"{len(records.requests)} requests arrive in {arrives_s:.3g} s, an answer takes "
        return [
            f"{message}{taken_s:.3g} s: queues have no time to build up, a longer run carries less"
        ]

    def _why(self, records: Records) -> dict[str, Any]:
        result, bracket, loads = self.outcome, self.outcome.bracket, self._coarse()
        values = self._objective.values(records)
        loads = replace(loads, requests=result.requests) if self._size is None else loads
        return (
            {
                "objective": self.work.objective,
                "limited_by": self.outcome.limited_by,
                "reached": bool(self.load),
                "limits_ms": {name: self._objective.limit(name) for name in values},
                "values_ms": values,
                "not_carried": bracket.broken if np.isfinite(bracket.broken) else None,
                "tolerance": self._edge.margin if self._edge else TOLERANCE,
                "tried": self._tried(),
            }
            | self._edge_why()
            | self._budget_why()
            | of_pools(result.fleet, records, loads, self.work.search.vary)
        )

    def _edge_why(self) -> dict[str, Any]:
        if self._edge is None:
            return {}
        counts = {"requests": self._of_draw, "requests_of_run": len(self._loads.requests)}
        return {"edge": asdict(self._edge) | counts}

    def _budget_why(self) -> dict[str, Any]:
        budget = self.work.search.max_power_w
        if budget is None:
            return {}
        return {"power_limit_w": most_power_w(self.outcome.fleet), "max_power_w": budget}

    def _tried(self) -> list[list[Any]]:
        """Loads, or numbers of replicas, and whether they are carried."""
        if self._size is not None:
            return self._size.tried()
        return [[load, met] for load, met in sorted(self._loads.tried.items())]


def _with(traffic: ServingWorkload, **fields: Any) -> ServingWorkload:
    serving_workload: ServingWorkload = msgspec.structs.replace(traffic, **fields)
    return serving_workload
