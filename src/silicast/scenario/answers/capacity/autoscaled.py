"""Task ``capacity`` with ``autoscale``: replicas that come and go with a traffic.

Simulations at steady rates say what one replica does (:mod:`silicast.serving.autoscaling.sampled`);
the fleet follows period by period. The same is done on machines that are off as predictions are:
the policies keep their targets, since whoever sets them has the prediction alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, Final, final

import msgspec
import numpy as np

from silicast.core.errors import SilicastError, unknown_name, unmodelled, unsupported
from silicast.core.prediction import Quantity
from silicast.scenario.answer import Answer, Belief
from silicast.scenario.answers.serving.simulated import Simulated
from silicast.scenario.decode import Scenario, decode
from silicast.scenario.resolving.fleets import fleet_of
from silicast.scenario.resolving.traffic import traffic_of
from silicast.scenario.set_fields import plain_tree
from silicast.scenario.workloads import AutoscaleTable, CapacityWorkload, ServingWorkload, SloTable
from silicast.serving.autoscaling.demand import PeriodDemand
from silicast.serving.autoscaling.fleet_in_time import (
    MOST_REPLICAS,
    Counts,
    FleetRun,
    ReplicaKind,
    TimedFleet,
    fewest_static,
    filled,
    foreseen,
    run_fleets,
)
from silicast.serving.autoscaling.load_curve import ReplicaCurve, request_limits
from silicast.serving.autoscaling.policies import ScalingPolicy, policies_named
from silicast.serving.autoscaling.sampled import SampledReplica, replica_alone
from silicast.serving.capacity.objective import LatencyObjective
from silicast.serving.simulation.fleet import ReplicaPool
from silicast.serving.simulation.launch import Expected
from silicast.serving.statistics.metrics import statistics_ms
from silicast.serving.statistics.uncertainty import PaceError
from silicast.serving.traffic.requests import Requests
from silicast.workload.models.counting import weight_bytes

DRAWS: Final = 16
"""Machines that are off as predictions are, on which each policy is tried."""
ASSUMED: Final = (
    "autoscale: a replica is ready after {:.0f} s: {:.0f} s to start, and {:.3g} GB of weights on "
    "a node at {:.3g} GB/s of its disk, as assumed; autoscale.start_s, disk_gb_per_s or "
    "cold_start_s state others"
)
FIDELITY: Final = (
    "autoscale: one replica was simulated at steady rates; the fleet follows period by period in "
    "closed form: requests spread evenly over what is ready, and wait for work ahead of them"
)


def autoscaled_answer(scenario: Scenario, work: CapacityWorkload) -> Answer:
    """Devices over time by the best of some policies, beside a fleet that does not change.

    Raises:
        SilicastError: a traffic without times, an objective on means, roles, or a model that
            breaks its objective alone.
    """
    return _Autoscaled(scenario, work).answer()


@final
@dataclass(frozen=True)
class _ServedModel:
    """One of the models on the devices.

    Attributes:
        name: "" = the scenario's own; remarks: what was assumed.
    """

    name: str
    demand: PeriodDemand
    kinds: tuple[ReplicaKind, ...]
    pools: tuple[ReplicaPool, ...]
    sampled: tuple[SampledReplica, ...]
    priced: bool
    remarks: tuple[str, ...]

    def error(self, index: int) -> Simulated:
        """What is known of a pool's replica at the load that it carries."""
        replica = self.sampled[index]
        records = replica.nearest
        assert records is not None
        alone = replica_alone(self.pools[index], replica.fleet)
        return Simulated(alone, lambda _: records, again=lambda _: records)


@final
class _Autoscaled:
    def __init__(self, scenario: Scenario, work: CapacityWorkload) -> None:
        assert work.autoscale is not None
        self._work, self._table = work, work.autoscale
        self._devices = float(work.search.max_gpus or math.inf)
        if work.objective not in ("min_gpus", "min_cost"):
            raise SilicastError(
                f"replicas come and go for {work.objective}",
                field="workload.objective",
                hint="min_gpus or min_cost",
            )
        if work.search.max_power_w is not None:
            raise unsupported(
                "a power limit of a fleet that grows",
                "workload.search.max_power_w",
                "leave it out, or search.max_gpus",
            )
        if work.search.vary:
            raise unmodelled(
                "not yet: autoscale beside values to vary",
                "workload.search.vary",
                "one scenario a deployment, as silicast sweep makes them",
            )
        self._models = [_model("", scenario, work.traffic, work.slo, self._table)]
        for name in self._table.beside:
            self._models.append(_beside(name, scenario, work, self._table))
        fewest = sum(
            n * kind.gpus
            for model in self._models
            for n, kind in zip(
                filled(model.kinds, 0.0, self._table.least), model.kinds, strict=True
            )
        )
        if fewest > self._devices:
            raise SilicastError(
                f"the fewest replicas take {fewest} devices, more than {self._devices:.0f}",
                field="workload.search.max_gpus",
                hint=f"at least {fewest}",
            )
        self._simulated = [
            [model.error(index) for index in range(len(model.kinds))] for model in self._models
        ]
        self._drawn = [self._curves(*pair) for pair in _normals(DRAWS)]

    def answer(self) -> Answer:
        named = self._table.policy
        names = [named] if isinstance(named, str) else list(named)
        policies = policies_named(names, "workload.autoscale.policy")
        tried = [self._tried(policy(self._table.headroom)) for policy in policies]
        tried.sort(key=_rank)
        best = tried[0]
        statics = self._statics()
        least = foreseen(self._fleets(None), self._devices)
        metrics: dict[str, Quantity] = {}
        for index, model in enumerate(self._models):
            prefix = f"{model.name}." if model.name else ""
            model_metrics = _metrics(best, index, model) | _still(
                statics[index], least[index], model
            )
            metrics |= {f"{prefix}{name}": value for name, value in model_metrics.items()}
        reply = self._simulated[0][0].answer(statistics_ms, self._remarks(best))
        reply.why["fleet"] = {
            "policy": best.policy.name,
            "headroom": self._table.headroom,
            "period_s": self._table.period_s,
            "policies": [policy.summary(self._models) for policy in tried],
            "models": [
                self._about(model, best.runs[index], statics[index], least[index])
                for index, model in enumerate(self._models)
            ],
        }
        beliefs = {name: Belief.from_quantity(value) for name, value in metrics.items()}
        return msgspec.structs.replace(reply, metrics=beliefs)

    def _remarks(self, best: _TriedPolicy) -> list[str]:
        remarks = [FIDELITY, *(text for model in self._models for text in model.remarks)]
        refused = sum(run.refused for run in best.runs)
        if refused:
            remarks.append(
                f"workload.search.max_gpus: {refused} starts of replicas waited for free devices"
            )
        return list(dict.fromkeys(remarks))

    def _curves(self, slow: float, beyond: float) -> list[tuple[ReplicaCurve, ...]]:
        """Curves of all models' replicas on one machine that is off by so many sd."""
        return [
            tuple(
                _off(kind.curve, search.error, slow, beyond)
                for kind, search in zip(model.kinds, simulated, strict=True)
            )
            for model, simulated in zip(self._models, self._simulated, strict=True)
        ]

    def _fleets(
        self, policy: ScalingPolicy | None, true: Sequence[tuple[ReplicaCurve, ...]] = ()
    ) -> list[TimedFleet]:
        table = self._table
        return [
            TimedFleet(
                model.demand,
                model.kinds,
                policy,
                (),
                table.least,
                table.down_after_s,
                true[index] if true else (),
            )
            for index, model in enumerate(self._models)
        ]

    def _tried(self, policy: ScalingPolicy) -> _TriedPolicy:
        runs = run_fleets(self._fleets(policy), self._devices)
        drawn = [run_fleets(self._fleets(policy, true), self._devices) for true in self._drawn]
        return _TriedPolicy(policy, runs, drawn)

    def _statics(self) -> list[tuple[FleetRun | None, list[FleetRun]]]:
        """Of all models: none where they do not fit beside each other."""
        statics = [self._static(model) for model in self._models]
        gpus = sum(math.inf if run is None else float(run.gpus[0]) for run, _ in statics)
        return (
            statics if len(statics) == 1 or gpus <= self._devices else [(None, [])] * len(statics)
        )

    def _static(self, model: _ServedModel) -> tuple[FleetRun | None, list[FleetRun]]:
        """The fewest replicas that do without scaling, and on other machines."""

        def fits(counts: Counts) -> bool:
            gpus = sum(n * kind.gpus for n, kind in zip(counts, model.kinds, strict=True))
            whole = all(n <= kind.most for n, kind in zip(counts, model.kinds, strict=True))
            return whole and gpus <= self._devices

        run = fewest_static(model.demand, model.kinds, fits, self._table.least)
        if run is None:
            return None, []
        counts, index = tuple(int(n) for n in run.replicas[0]), self._models.index(model)
        still = TimedFleet(model.demand, model.kinds, None, counts)
        return run, [run_fleets([replace(still, true=true[index])])[0] for true in self._drawn]

    def _about(
        self,
        model: _ServedModel,
        run: FleetRun,
        static: tuple[FleetRun | None, Any],
        least: FleetRun,
    ) -> dict[str, Any]:
        gpus = run.gpus
        changes = [0, *(np.flatnonzero(np.diff(gpus)) + 1).tolist()]
        period_s = model.demand.period_s
        return {
            "name": model.name,
            "requests": int(model.demand.arrivals.sum()),
            "hours": round(model.demand.hours, 6),
            "replicas": [
                {
                    "pool": kind.name,
                    "gpus": kind.gpus,
                    "carries_per_s": round(kind.curve.carried_per_s, 6),
                    "most_per_s": round(kind.curve.most_per_s, 6),
                    "cold_start_s": round(kind.start_s, 3),
                }
                for kind in model.kinds
            ],
            "started": run.started,
            "waited_for_devices": run.refused,
            "static_gpus": None if static[0] is None else int(static[0].gpus[0]),
            "least_gpu_hours": round(least.gpu_hours, 6),
            "gpus_over_time": [[round(at * period_s, 3), int(gpus[at])] for at in changes],
        }


@final
@dataclass(frozen=True)
class _TriedPolicy:
    """A policy on all models, as predicted and on machines that are off."""

    policy: ScalingPolicy
    runs: list[FleetRun]
    drawn: list[list[FleetRun]]

    @property
    def missed(self) -> float:
        """Probability that a model breaks its objective over the whole time."""
        return float(np.mean([not all(run.keeps_objective for run in runs) for runs in self.drawn]))

    def summary(self, models: Sequence[_ServedModel]) -> dict[str, Any]:
        """One line of a comparison."""
        table = {
            "policy": self.policy.name,
            "gpu_hours": round(sum(run.gpu_hours for run in self.runs), 6),
            "late_share": [round(run.late_share, 6) for run in self.runs],
            "late_time_share": [round(run.late_time_share, 6) for run in self.runs],
            "kept": all(run.keeps_objective for run in self.runs),
            "missed_probability": round(self.missed, 4),
            "machines": len(self.drawn),
        }
        if all(model.priced for model in models):
            table["cost"] = round(sum(run.cost for run in self.runs), 6)
        return table


def _rank(tried: _TriedPolicy) -> tuple[float, ...]:
    """What keeps the objective comes first, by cost; then what is least late."""
    keeps = all(run.keeps_objective for run in tried.runs)
    late = sum(run.late_share for run in tried.runs)
    return float(not keeps), 0.0 if keeps else late, sum(run.cost for run in tried.runs)


def _metrics(tried: _TriedPolicy, index: int, model: _ServedModel) -> dict[str, Quantity]:
    """Of one model under a policy."""
    run, drawn = tried.runs[index], [runs[index] for runs in tried.drawn]
    values = {
        "gpu_hours": [draw.gpu_hours for draw in (run, *drawn)],
        "gpus_mean": [float(draw.gpus.mean()) for draw in (run, *drawn)],
        "gpus_peak": [float(draw.gpus.max()) for draw in (run, *drawn)],
        "late_share": [draw.late_share for draw in (run, *drawn)],
        "late_time_share": [draw.late_time_share for draw in (run, *drawn)],
    }
    if model.priced:
        values["cost"] = [draw.cost for draw in (run, *drawn)]
    metrics = {name: _quantity(*numbers) for name, numbers in values.items()}
    return metrics | {"missed_probability": _missed(drawn)}


def _still(
    static: tuple[FleetRun | None, list[FleetRun]], least: FleetRun, model: _ServedModel
) -> dict[str, Quantity]:
    """Of one model on a fleet that does not change, and on one that knows the rates."""
    metrics = {"gpu_hours_least": Quantity.exact(least.gpu_hours)}
    run, drawn = static
    if run is not None:
        metrics["gpu_hours_static"] = Quantity.exact(run.gpu_hours)
        metrics["late_share_static"] = _quantity(*(e.late_share for e in (run, *drawn)))
        metrics["missed_probability_static"] = _missed(drawn)
        if model.priced:
            metrics["cost_static"] = Quantity.exact(run.cost)
    return metrics


def _missed(drawn: Sequence[FleetRun]) -> Quantity:
    """The share of machines on which the objective is missed."""
    return proportion(sum(not run.keeps_objective for run in drawn), len(drawn))


def proportion(count: int, tries: int) -> Quantity:
    """A probability from a count, with Wilson's interval of 90 %.

    >>> proportion(0, 16)
    Quantity(estimate=0.0, p05=0.0, p95=0.144...)
    """
    z = NormalDist().inv_cdf(0.95)
    share, square = count / tries, z * z / tries
    middle = share + 0.5 * square
    half = z * math.sqrt(share * (1.0 - share) / tries + square / (4.0 * tries))
    low, high = ((middle + sign * half) / (1.0 + square) for sign in (-1.0, 1.0))
    return Quantity(share, min(max(low, 0.0), share), max(min(high, 1.0), share))


def _quantity(estimate: float, *drawn: float) -> Quantity:
    low, high = np.quantile(drawn, (0.05, 0.95)).tolist()
    return Quantity(estimate, min(low, estimate), max(high, estimate))


def _normals(count: int) -> list[tuple[float, float]]:
    """Pairs of standard normal numbers, evenly spread."""
    normal, golden = NormalDist(), 0.6180339887498949
    return [
        (normal.inv_cdf((index + 0.5) / count), normal.inv_cdf((0.5 + golden * index) % 1.0))
        for index in range(count)
    ]


def _off(curve: ReplicaCurve, error: PaceError, slow: float, beyond: float) -> ReplicaCurve:
    """A replica of a machine that is so many sd slower, and later beyond its steps."""
    point = curve.points[-1]
    first = min(float(point.taken_ms["ttft"].mean() / point.taken_ms["e2e"].mean()), 1.0)
    later = {
        name: math.exp(beyond * error.beyond_of(name, first)) for name in ("ttft", "tpot", "e2e")
    }
    return curve.at_pace(math.exp(slow * error.total.log_sd), later)


def _beside(
    name: str, scenario: Scenario, work: CapacityWorkload, table: AutoscaleTable
) -> _ServedModel:
    """Another model on the devices."""
    beside = table.beside[name]
    tree = plain_tree(scenario.raw)
    for field in ("pools", "links", "id"):
        tree.pop(field, None)
    fields = msgspec.to_builtins(beside)
    slo = beside.slo or work.slo
    tree |= fields["pool"] | {
        "workload": {
            "traffic": fields["traffic"],
            "slo": msgspec.to_builtins(slo),
            "objective": work.objective,
        }
    }
    where = f"workload.autoscale.beside.{name}"
    try:
        other = decode(tree, folder=scenario.folder)
        return _model(name, other, beside.traffic, slo, table)
    except SilicastError as error:
        raise error.located(field=f"{where}: {error.field}" if error.field else where) from None


def _model(
    name: str, scenario: Scenario, traffic: ServingWorkload, slo: SloTable, table: AutoscaleTable
) -> _ServedModel:
    """One model: its demand, and what its replicas carry."""
    seed = scenario.raw.seed or 0
    arrivals = traffic_of(traffic, seed, scenario.folder, "workload.traffic")
    requests = arrivals.requests
    _check_times(requests)
    longest = int(requests.input_tokens.max())
    fleet, warnings = fleet_of(scenario, Expected(longest, 0, requests.longest_tokens))
    _check_pools(fleet.pools, table)
    limits = request_limits(LatencyObjective.from_fields(msgspec.to_builtins(slo)))
    sampled = tuple(
        SampledReplica(replica_alone(pool, fleet), requests, limits, seed) for pool in fleet.pools
    )
    demand = PeriodDemand.of_requests(requests, table.period_s, sampled[0].prompt_share)
    starts = [cold_start(pool, table) for pool in fleet.pools]
    kinds = tuple(
        ReplicaKind(
            replica.curve,
            pool.deployment.plan.gpus,
            start,
            table.most.get(pool.name, MOST_REPLICAS),
            1.0 if pool.price_per_gpu_hour is None else pool.price_per_gpu_hour,
            pool.name,
        )
        for pool, replica, (start, _) in zip(fleet.pools, sampled, starts, strict=True)
    )
    remarks = [*warnings, *arrivals.remarks, *(text for _, text in starts if text)]
    priced = fleet.cost_per_hour is not None
    return _ServedModel(
        name, demand, kinds, fleet.pools, sampled, priced, tuple(dict.fromkeys(remarks))
    )


def cold_start(pool: ReplicaPool, table: AutoscaleTable) -> tuple[float, str]:
    """Seconds until a replica that is started serves, and what was assumed."""
    if table.cold_start_s is not None:
        return table.cold_start_s, ""
    deployment = pool.deployment
    plan, model = deployment.plan, deployment.model
    rank = weight_bytes(model, plan, deployment.precision, policy=deployment.policy)
    node_gb = rank * min(plan.gpus, deployment.machine.links.gpus_per_node) * 1e-9
    ready_s = table.start_s + node_gb / table.disk_gb_per_s
    text = ASSUMED.format(ready_s, table.start_s, node_gb, table.disk_gb_per_s)
    plain = AutoscaleTable()
    assumed = (table.start_s, table.disk_gb_per_s) == (plain.start_s, plain.disk_gb_per_s)
    return ready_s, text if assumed else ""


def _check_times(requests: Requests) -> None:
    """Refuses traffic whose requests wait for answers: they come at no times of their own."""
    if requests.concurrency or int(requests.after.max()) >= 0:
        raise unsupported(
            "a fleet in time needs requests that come by themselves",
            "workload.traffic.arrival",
            "a trace, or a rate (stages of rates), without clients or sessions that wait",
        )
    if not int(requests.arrival_ns.max()):
        raise SilicastError(
            "all requests come at time 0", field="workload.traffic.arrival", hint="a trace's times"
        )


def _check_pools(pools: Sequence[ReplicaPool], table: AutoscaleTable) -> None:
    for pool in pools:
        if pool.count != 1:
            raise SilicastError(
                f"states {pool.count} replicas, whose number autoscale sets",
                field=f"pools.{pool.name}.count",
                hint=f"without it; least={pool.count} keeps so many at all times (--autoscale "
                f"least={pool.count}, workload.autoscale.least), most.{pool.name} limits them",
            )
        if pool.spec.role:
            raise unmodelled(
                "not yet: replicas of prefill and decode apart that come and go",
                f"pools.{pool.name}.role",
                "pools that do both",
            )
        if pool.spec.policy.one_pass:
            raise unmodelled(
                f"not yet: replicas of {pool.deployment.engine.name} that come and go",
                "engine",
                "an engine that generates tokens",
            )
    names: Mapping[str, None] = dict.fromkeys(pool.name for pool in pools)
    for name in table.most:
        if name not in names:
            raise unknown_name(
                f"no pool {name[:40]!r}",
                f"workload.autoscale.most.{name[:40]}",
                f"pools: {', '.join(name for name in names if name) or 'none is named'}",
            )
