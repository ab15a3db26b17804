"""Task ``workflow``: stages over pools, with joins, branches, loops and chance.

Metrics of all items have no name before them; those of a stage or a pool are called
``NAME.stage_p99_ms`` or ``NAME.idle_share``, those of an engine's requests ``NAME.ttft_p99_ms``, by
the pool, without a name where the workflow is one stage: it is then the task ``serving``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, final

import numpy as np

from silicast.composition.power.energy import work_energy
from silicast.core.prediction import (
    Z90,
    Domain,
    Part,
    Quantity,
    Tier,
    to_picoseconds,
    weakest_tier,
    worst_domain,
)
from silicast.scenario.answer import Answer, Belief, answer, coverage_of, largest_of, why_tree
from silicast.scenario.answerer import Answerer, refuse_unmodelled, register
from silicast.scenario.answers.workflow.built import BuiltWorkflow, built
from silicast.scenario.answers.workflow.cluster_pool import ClusterPool
from silicast.scenario.answers.workflow.pools import GeneratingPool, PassPool, StagePool, TimedPool
from silicast.scenario.decode import Scenario
from silicast.scenario.workloads import WorkflowWorkload
from silicast.serving.simulation.colocation import Colocation
from silicast.workflow.run import (
    StageLoad,
    Station,
    WorkflowRun,
    WorkflowTimes,
    critical_path_ns,
    item_latency_ns,
    load_of,
    stage_statistics_ms,
    statistics_ms,
)
from silicast.workflow.stations.replicas import ReplicaStation, SharedStation

NANO = 1e-9
ROLLS_OUT = (
    "published steps of frameworks of reinforcement learning are off by more than their stages: "
    "docs/explanation/workflows.md says by how much"
)


@register
@final
class WorkflowAnswerer(Answerer):
    """Metrics: ``e2e`` of items, ``ttft`` and ``tpot`` of what answers the client (mean and
    quantiles), ``items_per_s``, ``samples_per_s`` where a stage trains, ``energy_per_item_j`` and
    ``cost_per_item`` where powers and prices are known; ``stage`` and ``wait`` of each stage,
    ``idle_share`` of each pool; of pools whose engines serve, the metrics of task ``serving``.
    """

    task: ClassVar[str] = "workflow"

    def answer(self, scenario: Scenario) -> Answer:
        refuse_unmodelled(scenario, "lora", "calibration")
        return _Simulated(scenario).answer()


@final
class _Simulated:
    """A workflow, run at the predicted pace and at both ends of its interval."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self.built: BuiltWorkflow = built(scenario)
        self._pool_of_stage = {stage: pool for pool in self.built.pools for stage in pool.stages}
        self.times, self._stations = self._run(0.0)
        self._base = dict(self._stations)
        for pool in self.built.pools:
            pool.observe(self._base[pool.name])
        again: dict[str, dict[float, Any]] = {}
        for pool in self.built.pools:
            if isinstance(pool, GeneratingPool):
                pool.simulate(again.setdefault(pool.name, {}))
        self._ends: dict[float, tuple[WorkflowTimes, Mapping[str, Station]]] = {}
        for deviations in (Z90, -Z90):
            self._ends[deviations] = self._run(deviations)
            for pool in self.built.pools:
                station = self._ends[deviations][1][pool.name]
                if isinstance(pool, GeneratingPool):
                    assert isinstance(station, ReplicaStation)
                    again[pool.name][deviations] = station.simulation.close()

    def _run(self, deviations: float) -> tuple[WorkflowTimes, Mapping[str, Station]]:
        """All items, so many standard deviations slower; the station of each pool."""
        work, division = self.built, self.built.division
        stations: dict[str, Station] = {}
        runs_on: dict[str, Station] = {}
        shared = [pool for pool in work.pools if division is not None and pool.machine is not None]
        tenants, simulations = [], []
        for pool in work.pools:
            if pool in shared and isinstance(pool, (GeneratingPool, PassPool)):
                simulation = pool.simulation(deviations)
                station = ReplicaStation(simulation, pool.jobs)
                tenants.append(pool.tenant(simulation))
                simulations.append(station)
                stations[pool.name] = station
            else:
                stations[pool.name] = runs_on[pool.name] = pool.station(deviations)
        if division is not None and division.law is not None:
            together = SharedStation(simulations, Colocation(tenants, division.law))
            runs_on |= {pool.name: together for pool in shared}
        elif simulations:
            runs_on |= {pool.name: stations[pool.name] for pool in shared}
        stage_stations = {stage: runs_on[pool.name] for stage, pool in self._pool_of_stage.items()}
        run = WorkflowRun(
            work.jobs,
            stage_stations,
            work.arrival_ns,
            work.concurrency,
            work.known,
            work.graph.overheads,
        )
        return run.run(), stations

    def answer(self) -> Answer:
        """What the runs say."""
        base = self._metrics_of(self.times, self._base)
        ends = [self._metrics_of(*self._ends[each]) for each in (Z90, -Z90)]
        metrics = {
            name: self._widened(name, value, [each.get(name, value) for each in ends])
            for name, value in base.items()
        }
        metrics |= self._energy()
        bound: dict[str, float] = {}
        tiers: list[Tier] = []
        warnings, whys = list(self.built.warnings), {}
        domains: list[Domain] = []
        beliefs: dict[str, Belief] = {}
        alone = len(self.built.graph.stages) == 1
        overloaded = self._overloaded()
        for pool in self.built.pools:
            if isinstance(pool, GeneratingPool):
                reply = pool.prepared.answer(simulated=pool.simulated)
                overloaded += [] if overloaded else self._beyond_most(pool, reply.why)
                prefix = "" if alone else f"{pool.name}."
                beliefs |= {f"{prefix}{name}": value for name, value in reply.metrics.items()}
                bound |= {f"{prefix}{name}": value for name, value in reply.bound.items()}
                tiers.append(reply.tier)
                domains.append(reply.domain)
                warnings += [text if alone else f"{pool.name}: {text}" for text in reply.warnings]
                whys[pool.name] = reply.why
            elif isinstance(pool, PassPool):
                tiers += pool.tiers
                warnings += pool.pass_warnings()
            elif isinstance(pool, TimedPool):
                tiers += pool.tiers
        reply = answer(
            metrics=metrics,
            bound={},
            tier=weakest_tier(tiers),
            domain=worst_domain([*domains, self._domain()]),
            warnings=list(dict.fromkeys([*overloaded, *self._learns(), *warnings])),
            why=self._why(whys),
        )
        reply.metrics.update(beliefs)
        reply.bound.update(bound)
        return reply

    @property
    def _rolls_out(self) -> bool:
        """Whether a step trains on what a pool has generated."""
        generates = any(isinstance(pool, GeneratingPool) for pool in self.built.pools)
        return generates and self._samples() > 0

    def _domain(self) -> Domain:
        """Of the whole, beside its parts: no measured run is like a workflow of several stages, of
        networks of passes whole pipelines alone were measured, and jobs shared out were not.
        """
        if self._rolls_out:
            return "out"
        apart = any(isinstance(pool, (PassPool, ClusterPool)) for pool in self.built.pools)
        return "near" if apart or len(self.built.graph.stages) > 1 else "in"

    def _learns(self) -> list[str]:
        return [ROLLS_OUT] if self._rolls_out else []

    def _loads(self) -> dict[str, StageLoad]:
        """What comes to each stage and what it does in the second half of the arrivals; where
        items wait for each other, nothing comes by itself.
        """
        first, last = int(self.built.arrival_ns.min()), int(self.built.arrival_ns.max())
        if first == last or self.built.concurrency:
            return {}
        middle = (first + last) // 2
        names = [stage.name for stage in self.built.graph.stages]
        loads = {name: load_of(self.times, n, middle, last) for n, name in enumerate(names)}
        return {name: load for name, load in loads.items() if load is not None}

    def _overloaded(self) -> list[str]:
        """A remark on each stage whose queue grows as long as items come."""
        return [
            f"{name} is unstable: {load.offered_per_s:.3g} jobs a second come and "
            f"{load.served_per_s:.3g} end (load {load.ratio:.3g}); latencies grow as long as items "
            "come, and are those of so many items"
            for name, load in self._loads().items()
            if load.grows
        ]

    def _beyond_most(self, pool: GeneratingPool, why: Mapping[str, Any]) -> list[str]:
        """A remark on an engine that gets more than it can ever answer: its batches grow before its
        latencies do, so that those of a short run do not tell.
        """
        arrivals, most = self.built.arrival_ns, why.get("knee", {}).get("most_per_s", math.inf)
        span_s = float(arrivals.max() - arrivals.min()) * NANO
        if self.built.concurrency or not span_s:
            return []
        items_per_s = (len(arrivals) - 1) / span_s
        offered = items_per_s * len(pool.jobs) / len(arrivals)
        if offered <= most:
            return []
        remark = (
            f"{pool.name} is unstable: {offered:.3g} requests a second come and at most {most:.3g} "
            "are answered; latencies grow as long as items come, and are those of so many items"
        )
        return [remark]

    def _metrics_of(
        self, times: WorkflowTimes, stations: Mapping[str, Station]
    ) -> dict[str, float]:
        """Every metric of one run that needs no interval of its own."""
        graph, span_s = self.built.graph, max(times.span_ns, 1) * NANO
        metrics = statistics_ms("e2e", item_latency_ns(times))
        metrics |= self._token_times(times, stations)
        metrics["items_per_s"] = times.jobs.items / span_s
        if samples := self._samples():
            metrics["samples_per_s"] = samples * times.jobs.items / span_s
        for number, stage in enumerate(graph.stages):
            table = stage_statistics_ms(times, number)
            metrics |= {f"{stage.name}.{name}": value for name, value in table.items()}
        first, last = int(times.start_ns.min()), int(times.end_ns.max())
        for pool in self.built.pools:
            if not pool.count:
                continue
            busy = stations[pool.name].busy_ns(first, last)
            share = 1.0 - busy / max((last - first) * pool.count, 1)
            metrics[f"{pool.name}.idle_share"] = min(max(share, 0.0), 1.0)
        gpus = sum(pool.gpus for pool in self._device_pools())
        if gpus and (cost := self._cost_per_s()) is not None:
            metrics["cost_per_item"] = cost * span_s / times.jobs.items
        return metrics

    def _samples(self) -> int:
        """Sequences that the training steps of an item learn from."""
        work = self._scenario.workload
        assert isinstance(work, WorkflowWorkload)
        return sum(
            table.training.global_batch * table.repeat
            for table in work.stages.values()
            if table.work == "train" and table.training is not None
        )

    def _token_times(
        self, times: WorkflowTimes, stations: Mapping[str, Station]
    ) -> dict[str, float]:
        """``ttft`` and ``tpot`` of the last stage of each item that answers the client."""
        stages = self.built.graph.stages
        answering = [number for number in self.built.answering if stages[number].copies == 1]
        if not answering:
            return {}
        jobs = times.jobs
        last = np.full(jobs.items, -1, dtype=np.int64)
        for job in jobs.of_stages(answering).tolist():
            last[jobs.item[job]] = job
        items = np.flatnonzero(last >= 0)
        first_ns, gaps = [], []
        for item in items.tolist():
            job = int(last[item])
            station = stations[self._pool_of_stage[int(jobs.stage[job])].name]
            assert isinstance(station, ReplicaStation)
            first = station.first_ns(job)
            first_ns.append(first - int(times.start_ns[item]))
            tokens = station.output_tokens(job)
            if tokens > 1:
                gaps.append((int(times.done_ns[job]) - first) / (tokens - 1))
        table = statistics_ms("ttft", np.array(first_ns, dtype=np.int64))
        if gaps:
            table |= statistics_ms("tpot", np.array(gaps, dtype=np.float64))
        return table

    def _widened(self, name: str, value: float, ends: list[float]) -> Quantity:
        """An interval from both ends; latencies of tokens are off beyond their steps too."""
        low, high = min(value, *ends), max(value, *ends)
        latency = name.split("_", maxsplit=1)[0] if "." not in name else ""
        beyond = max(
            (
                pool.simulated.error.beyond_of(latency, 0.5)
                for pool in self.built.pools
                if isinstance(pool, GeneratingPool) and pool.simulated is not None
            ),
            default=0.0,
        )
        if latency not in ("ttft", "tpot", "e2e") or low <= 0.0:
            return Quantity(value, low, high)
        share = self._generated_share() if latency != "tpot" else 1.0
        further = Z90 * beyond * share
        below = math.exp(-math.hypot(math.log(value / low), further))
        above = math.exp(math.hypot(math.log(high / value), further))
        return Quantity(value, value * below, value * above)

    def _generated_share(self) -> float:
        """Share of the critical path in stages of engines that serve."""
        path = self._path()
        generated = [
            number
            for pool in self.built.pools
            if isinstance(pool, GeneratingPool)
            for number in pool.stages
        ]
        return float(path[generated].sum() / max(path.sum(), 1e-12))

    def _path(self) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        if not hasattr(self, "_known_path"):
            self._known_path = critical_path_ns(self.times, len(self.built.graph.stages))
        return self._known_path

    def _device_pools(self) -> list[StagePool]:
        """Pools of devices; of those that share devices, the first."""
        pools = [pool for pool in self.built.pools if pool.machine is not None and pool.gpus]
        if self.built.division is not None:
            return pools[:1]
        return [pool for pool in pools if not pool.shares_with]

    def _cost_per_s(self) -> float | None:
        cluster = self._scenario.raw.cluster
        usual = cluster.price_per_gpu_hour if cluster is not None else None
        total = 0.0
        for pool in self._device_pools():
            price = pool.price_per_gpu_hour if pool.price_per_gpu_hour is not None else usual
            if price is None:
                return None
            total += price * pool.gpus / 3600.0
        return total

    def _energy(self) -> dict[str, Quantity]:
        """Of all devices, an item; nothing where the power of one is not modelled."""
        span_s = self.times.span_ns * NANO
        spans = [each[0].span_ns * NANO for each in self._ends.values()]
        span = Quantity(span_s, min(span_s, *spans), max(span_s, *spans))
        busy = [pool for pool in self.built.pools if pool.machine is not None and pool.gpus]
        kernels = {pool.name: pool.kernels_j() for pool in busy}
        for pool in busy:
            for guest in busy:
                if guest.shares_with and guest.shares_with == pool.home:
                    kernels[pool.name] += kernels[guest.name] * guest.gpus / pool.gpus
        parts = []
        for pool in self._device_pools():
            assert pool.machine is not None
            joules = kernels[pool.name]
            if self.built.division is not None:
                joules = sum(kernels.values())
            energy = work_energy(pool.machine, span, joules, pool.gpus)
            if energy is None:
                return {}
            parts.append(energy.energy_j)
        if not parts:
            return {}
        sums = (sum(getattr(each, n) for each in parts) for n in ("estimate", "p05", "p95"))
        return {"energy_per_item_j": Quantity(*sums).times(1.0 / self.times.jobs.items)}

    def _why(self, pools: Mapping[str, Any]) -> dict[str, Any]:
        """The critical path as a tree, coverage, and the reasons of the pools."""
        graph, path = self.built.graph, self._path()
        parts = []
        for number, stage in enumerate(graph.stages):
            waits, works = (to_picoseconds(float(ns) * NANO) for ns in path[number])
            children = [Part("queue", waits), Part("work", works)]
            if waits + works:
                parts.append(Part.group(stage.name, [each for each in children if each.exposed_ps]))
        tree = why_tree(Part.group("workflow", parts))
        tree |= self._coverage()
        if loads := self._loads():
            tree["load"] = {name: round(load.ratio, 6) for name, load in loads.items()}
        tree["items"] = {
            "started": self.times.jobs.items,
            "jobs": {
                stage.name: len(self.times.jobs.of_stages([number]))
                for number, stage in enumerate(graph.stages)
            },
        }
        for pool in self.built.pools:
            if isinstance(pool, ClusterPool):
                tree["schedule"] = pool.told(self.times)
        if pools:
            tree["pools"] = pools
        return tree

    def _coverage(self) -> dict[str, Any]:
        """Shares of the critical path by what they rest on, and the largest unmodelled part."""
        graph, path = self.built.graph, self._path().sum(axis=1)
        whole = max(float(path.sum()), 1e-12)
        parts = []
        unmodelled: dict[str, float] = {}
        for number, stage in enumerate(graph.stages):
            pool, share = self._pool_of_stage[number], float(path[number]) / whole
            parts.append((pool.shares(), share))
            if pool.given and share:
                unmodelled[stage.name] = share
        covered = coverage_of(*parts)
        covered["coverage"] |= largest_of(unmodelled, "stage")
        return covered
