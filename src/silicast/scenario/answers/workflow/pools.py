"""What stages of a workflow run on: stations of one run, slow devices and failures among them.

A device is slow with the stated chance, for the whole run; what runs on several takes the time of
the slowest. Failures of n devices come at random, one in ``mtbf / n`` in the mean; what runs begins
again at its last checkpoint (without one at its beginning) after ``restart_s``. In the mean a job
of T seconds in pieces of c takes T / c (exp(c / m) - 1) (m + restart), m the time between failures
(Daly, 2006, without failures of restarts).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import msgspec
import numpy as np

from silicast.composition.passes.program import ProgramPass
from silicast.composition.prices.pass_prices import PassPrices
from silicast.composition.prices.step_price import StepNeeds
from silicast.composition.prices.stepper import Pace
from silicast.composition.step.machine import Machine
from silicast.composition.step.step import step_model
from silicast.composition.timeline.breakdown import Breakdown
from silicast.core.numerics import F64, I64, log_fixed
from silicast.core.prediction import Z90, Tier
from silicast.scenario.answer import GIVEN
from silicast.scenario.answers.serving.answerer import PreparedServing
from silicast.scenario.answers.serving.served import Served
from silicast.scenario.answers.serving.simulated import Simulated
from silicast.scenario.answers.workflow.stage_work import NetworkPasses, TimedJobs
from silicast.scenario.decode import Scenario
from silicast.scenario.resolving.failure_rates import gpu_mtbf_s
from silicast.scenario.schema import FailureTable, SlowTable
from silicast.serving.kv.kv_pool import LONGEST, KvLayout
from silicast.serving.simulation.colocation import Tenant
from silicast.serving.simulation.event_loop import ReplicaSpec, Simulation
from silicast.serving.simulation.limits import UNBOUNDED, Limits
from silicast.serving.simulation.routers import LeastLoaded, RoundRobin
from silicast.serving.statistics.energy import kernels_j_of
from silicast.serving.statistics.records import Records
from silicast.serving.statistics.step_mix import columns
from silicast.serving.statistics.uncertainty import paced
from silicast.serving.traffic.requests import Requests
from silicast.workflow.run import Station
from silicast.workflow.stations.replicas import ReplicaStation
from silicast.workflow.stations.servers import ServerStation, UniformBatching


class StagePool(ABC):
    """What some stages run on.

    Attributes:
        name: of the pool, or of the stage that has none.
        stages: their places in the graph; jobs: their jobs, in order.
        count: servers that work side by side; gpus: devices of all of them.
        machine: what one device is; None = the work is on no device.
        home: of the scenario's pools, the one that it is; shares_with: whose devices it takes by
            turns, "" = it has devices of its own.
        paces: how many times as long each replica takes; () = all as predicted.
        warnings: what was assumed.
    """

    name: str
    stages: tuple[int, ...]
    jobs: I64
    count: int
    gpus: int
    machine: Machine | None
    price_per_gpu_hour: float | None = None
    paces: Sequence[float] = ()
    home: str = ""
    shares_with: str = ""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def at_paces(self, specs: Sequence[ReplicaSpec]) -> list[ReplicaSpec]:
        """Its replicas, the slow ones of them slowed."""
        if max(self.paces, default=1.0) <= 1.0:
            return list(specs)
        pairs = zip(specs, self.paces, strict=True)
        return [paced(spec, Pace(pace, pace)) for spec, pace in pairs]

    @abstractmethod
    def station(self, deviations: float) -> Station:
        """A fresh station, so many standard deviations slower than predicted."""

    @abstractmethod
    def shares(self) -> Mapping[str, float]:
        """Shares of its time by tier, or :data:`~silicast.scenario.answer.GIVEN`."""

    @abstractmethod
    def observe(self, station: Station) -> None:
        """Notes the station of the run that nothing slows."""

    def kernels_j(self) -> float:
        """Joules of one device's kernels in that run, beyond what it draws while it waits."""
        return 0.0

    @property
    def given(self) -> bool:
        """Whether all of its time is stated."""
        return False


@final
class GeneratingPool(StagePool):
    """Replicas of an engine that serves."""

    def __init__(
        self,
        name: str,
        stages: tuple[int, ...],
        jobs: I64,
        prepared: PreparedServing,
        held: np.ndarray[tuple[int], np.dtype[np.bool_]],
    ) -> None:
        super().__init__()
        self.name, self.stages, self.jobs, self.prepared = name, stages, jobs, prepared
        self.held = held
        self.served: Served = prepared.served
        fleet = self.served.fleet
        self.count, self.gpus = len(fleet.specs), fleet.gpus
        self.machine = self.served.deployment.machine
        self.price_per_gpu_hour = fleet.pools[0].price_per_gpu_hour
        self.further: dict[str, float] = {}
        self.simulated: Simulated | None = None
        self.records: Records | None = None
        self.cores = 1.0

    def simulation(self, deviations: float) -> Simulation:
        """Its requests, those held that wait for other stages."""
        specs = self.served.fleet.specs
        if deviations and self.simulated is not None:
            pace = self.simulated.error.pace(deviations)
            specs = [paced(spec, pace) for spec in specs]
        return self.served.fleet.simulation(self.served.requests, self.at_paces(specs), self.held)

    def station(self, deviations: float) -> ReplicaStation:
        return ReplicaStation(self.simulation(deviations), self.jobs)

    def tenant(self, simulation: Simulation) -> Tenant:
        """It on devices that others use too."""
        model = step_model(self.served.fleet.entry.deployment)
        return Tenant(simulation, StepNeeds(model), self.cores)

    def observe(self, station: Station) -> None:
        assert isinstance(station, ReplicaStation)
        self.records = station.simulation.close()
        self.served.observe(self.records)

    def simulate(self, again: Mapping[float, Records]) -> Simulated:
        """What the requests mean, with the same at other paces."""
        records = self.records
        assert records is not None

        def at_pace(pace: Pace) -> Records:
            assert self.simulated is not None
            slow = pace == self.simulated.error.pace(Z90)
            return again[Z90 if slow else -Z90]

        self.simulated = Simulated(self.served.fleet, lambda _: records, at_pace, self.further)
        return self.simulated

    def shares(self) -> Mapping[str, float]:
        assert self.simulated is not None
        shares: Mapping[str, float] = self.simulated.coverage()["coverage"]["time_share"]
        return shares

    def kernels_j(self) -> float:
        assert self.records is not None
        fleet = self.served.fleet
        whole = kernels_j_of(self.records, fleet)
        return sum(j * pool.gpus for j, pool in zip(whole, fleet.pools, strict=True)) / fleet.gpus


@final
class PassPool(StagePool):
    """Replicas that run passes of networks, inputs of one size together."""

    def __init__(
        self,
        name: str,
        works: Mapping[int, NetworkPasses],
        jobs: I64,
        stage_of_job: I64,
        arrival_ns: I64,
        count: int,
    ) -> None:
        super().__init__()
        self.name, self.stages, self.jobs, self.count = name, tuple(works), jobs, count
        first = next(iter(works.values()))
        self.machine, self.gpus = first.machine, count * first.gpus
        self._works: dict[int, NetworkPasses] = {}
        codes: dict[int, int] = {}
        for stage, work in works.items():
            code = work.size
            while code in self._works:
                code += 1  # inputs of this size are of another stage
            codes[stage], self._works[code] = code, work
            self.warnings += work.warnings
        self._prices = PassPrices(self._pass)
        sizes = np.array([codes[stage] for stage in stage_of_job.tolist()], dtype=np.int64)
        self._requests = Requests.from_arrays(arrival_ns, sizes, np.ones(len(jobs), dtype=np.int64))
        self._most = max(work.most for work in works.values())
        self.deployment = first.deployment
        self.cores = 1.0
        self.further_log_sd = 0.0
        self._log: I64 = np.zeros((0, 1), dtype=np.int64)

    def _pass(self, batch: int, code: int) -> ProgramPass:
        work = self._works[code]
        return work.passes(batch, work.size)

    def simulation(self, deviations: float) -> Simulation:
        nothing = np.zeros(3, dtype=np.int64)
        layout = KvLayout(1, 1, np.array([0, 1, LONGEST]), nothing)
        limits = Limits(self._most, UNBOUNDED, UNBOUNDED)
        spec = ReplicaSpec(self._prices, UniformBatching, limits, layout)
        if deviations:
            factor = math.exp(deviations * self.log_sd)
            spec = paced(spec, Pace(factor, factor))
        router = LeastLoaded if self.count > 1 else RoundRobin
        held = np.ones(len(self.jobs), dtype=bool)
        return Simulation(self._requests, self.at_paces([spec] * self.count), router, held=held)

    def station(self, deviations: float) -> ReplicaStation:
        return ReplicaStation(self.simulation(deviations), self.jobs)

    def tenant(self, simulation: Simulation) -> Tenant:
        """It on devices that others use too."""
        assert self.deployment is not None
        return Tenant(simulation, StepNeeds(step_model(self.deployment)), self.cores)

    def observe(self, station: Station) -> None:
        assert isinstance(station, ReplicaStation)
        self._log = station.simulation.close().log.table()

    @property
    def log_sd(self) -> float:
        """Of its passes: the widest of those that run."""
        each = [
            math.hypot(result.total.error.log_sd, work.log_sd, self.further_log_sd)
            for work, result in self._run()
        ]
        return max(each, default=0.0)

    def _run(self) -> Sequence[tuple[NetworkPasses, ProgramPass]]:
        """The commonest pass of every size."""
        run = []
        for code, work in self._works.items():
            batches = [batch for (batch, each) in self._prices.known if each == code]
            batch = max(batches, default=1)
            run.append((work, self._prices.program_pass(batch, code)))
        return run

    def shares(self) -> Mapping[str, float]:
        seconds: dict[str, float] = {}
        for _, result in self._run():
            parts = Breakdown(result.model, result.times, np.ones(1)).tier_seconds()
            for tier, value in parts.items():
                seconds[tier] = seconds.get(tier, 0.0) + value
        whole = sum(seconds.values())
        return {tier: value / whole for tier, value in seconds.items()}

    @property
    def tiers(self) -> list[Tier]:
        return [result.total.tier for _, result in self._run()]

    def pass_warnings(self) -> list[str]:
        """What a reader must know of the passes."""
        return [text for _, result in self._run() for text in result.total.warnings]

    def kernels_j(self) -> float:
        new, prompts = columns(self._log, "prefill_tokens", "prompts")
        pairs, counts = np.unique(np.stack([prompts, new]), axis=1, return_counts=True)
        total = sum(
            self._prices.program_pass(batch, tokens // batch).kernels_j
            * self._works[tokens // batch].more_power
            * often
            for (batch, tokens), often in zip(pairs.T.tolist(), counts.tolist(), strict=True)
        )
        return float(total) / self.count


@final
class TimedPool(StagePool):
    """Jobs of stated or computed times, of one stage or of several on the same devices.

    Args:
        works: of its stages, by their place in the graph; stage: of each job.
        random: of each stage, for times that are drawn.
    """

    def __init__(
        self,
        name: str,
        works: Mapping[int, TimedJobs],
        jobs: I64,
        stage: I64,
        random: Mapping[int, np.random.Generator],
        disturbances: Disturbances,
    ) -> None:
        super().__init__()
        self.name, self.stages, self.jobs = name, tuple(works), jobs
        self._works, self._stage = works, stage
        first = next(iter(works.values()))
        self.count, self.gpus, self.machine = first.servers, first.gpus, first.machine
        self._seconds, self._log_sd = np.zeros(len(jobs)), np.zeros(len(jobs))
        for number, work in works.items():
            rows = stage == number
            seconds = work.seconds(int(rows.sum()), random[number])
            if work.gpus:
                self.paces = disturbances.paces(next(iter(works)), 1, work.gpus)
                seconds = disturbances.with_failures(
                    seconds * self.paces[0], work.gpus, random[number]
                )
            self._seconds[rows] = seconds
            self._log_sd[rows] = work.log_sd
            self.warnings += work.warnings

    def station(self, deviations: float) -> ServerStation:
        times = self._seconds * np.exp(deviations * self._log_sd)
        rounded = np.rint(times * 1e9).astype(np.int64).tolist()
        service = dict(zip(self.jobs.tolist(), rounded, strict=True))
        return ServerStation(service, self.count)

    def observe(self, station: Station) -> None:
        """Times are known beforehand: there is nothing to note."""

    def shares(self) -> Mapping[str, float]:
        whole = max(float(self._seconds.sum()), 1e-30)
        shares: dict[str, float] = {}
        for number, work in self._works.items():
            share = float(self._seconds[self._stage == number].sum()) / whole
            shares[work.tier] = shares.get(work.tier, 0.0) + share
        return shares if sum(shares.values()) else dict.fromkeys(list(shares)[:1], 1.0)

    @property
    def tiers(self) -> list[Tier]:
        """Of its stages whose times are computed."""
        return [work.tier for work in self._works.values() if work.tier != GIVEN]  # type: ignore[misc]

    @property
    def given(self) -> bool:
        return not self.tiers

    def kernels_j(self) -> float:
        return sum(
            work.kernels_j * int((self._stage == number).sum())
            for number, work in self._works.items()
        )


_SLOW = 103
"""Purpose of the random numbers of slow devices."""
MOST_FAILURES = 1_000_000
"""Of all jobs of a stage, where they are drawn."""


@final
@dataclass(frozen=True)
class Disturbances:
    """What a scenario's cluster states."""

    slow: SlowTable | None
    failures: FailureTable | None
    seed: int

    def paces(self, number: int, replicas: int, gpus: int) -> list[float]:
        """How many times as long each replica of a pool takes; ``number``: of the pool, ``gpus``:
        of a replica.
        """
        if self.slow is None:
            return [1.0] * replicas
        sequence = np.random.SeedSequence((self.seed, _SLOW, number))
        random = np.random.Generator(np.random.PCG64(sequence))
        slow = (random.random((replicas, gpus)) < self.slow.fraction).any(axis=1)
        return np.where(slow, self.slow.slowdown, 1.0).tolist()  # type: ignore[no-any-return]

    def with_failures(self, seconds: F64, gpus: int, random: np.random.Generator) -> F64:
        """What jobs of so many seconds on so many devices take with failures, shape (jobs,)."""
        failing = self.failures
        if failing is None or not len(seconds):
            return seconds
        rate = gpus / gpu_mtbf_s(failing)
        saved = failing.checkpoint_interval_s
        pieces = np.ones(len(seconds), dtype=np.int64)
        if saved is not None:
            pieces = np.maximum(np.ceil(seconds / saved).astype(np.int64), 1)
        writes = failing.checkpoint_s if saved is not None else 0.0
        piece_s = seconds / pieces + writes
        chance = -np.expm1(-rate * piece_s)
        failures = random.negative_binomial(pieces, np.maximum(1.0 - chance, 1e-300))
        failures = np.minimum(failures, MOST_FAILURES // len(seconds))
        job = np.repeat(np.arange(len(seconds)), failures)
        # when a piece fails, given that it does: exponential, cut at its end
        lost = -log_fixed(1.0 - random.random(len(job)) * chance[job]) / rate + failing.restart_s
        whole: F64 = pieces * piece_s + np.bincount(job, lost, len(seconds))
        return whole


def taken_from(scenario: Scenario) -> tuple[Scenario, Disturbances]:
    """A scenario without its disturbances, which its parts would answer by themselves, and them."""
    cluster, seed = scenario.raw.cluster, scenario.raw.seed or 0
    if cluster is None:
        return scenario, Disturbances(None, None, seed)
    without = msgspec.structs.replace(cluster, slow_gpus=None, failures=None)
    raw = msgspec.structs.replace(scenario.raw, cluster=without)
    disturbances = Disturbances(cluster.slow_gpus, cluster.failures, seed)
    return msgspec.structs.replace(scenario, raw=raw), disturbances
