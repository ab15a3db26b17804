"""A workflow's scenario as a graph, its jobs, and the pools that they run on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, final

import msgspec
import numpy as np

from silicast.composition.prices.exit_prices import ExitPrices
from silicast.composition.prices.step_prices import step_prices
from silicast.core.errors import SilicastError, errors_at, unmodelled
from silicast.core.numerics import F64, I64
from silicast.scenario.answers.serving.answerer import PreparedServing, prepared_for
from silicast.scenario.answers.serving.tenants import DeviceDivision, division_of, neighbour_of
from silicast.scenario.answers.workflow.cluster_pool import NAME, ClusterPool, devices_in_order
from silicast.scenario.answers.workflow.pools import (
    GeneratingPool,
    PassPool,
    StagePool,
    TimedPool,
    taken_from,
)
from silicast.scenario.answers.workflow.stage_work import (
    EngineRequests,
    NetworkPasses,
    ScheduledJobs,
    StageContext,
    TimedJobs,
    Work,
    work_of,
)
from silicast.scenario.answers.workflow.turns import check_turns
from silicast.scenario.answers.workflow.works.job import devices_of
from silicast.scenario.answers.workflow.works.train import GENERATES
from silicast.scenario.decode import Scenario, part_of
from silicast.scenario.resolving.fleets import link_rate
from silicast.scenario.resolving.traffic import OPEN_REQUESTS, REQUESTS_PER_CLIENT, traffic_of
from silicast.scenario.workloads import (
    ArrivalTable,
    SchedulerTable,
    ServingWorkload,
    StageTable,
    WorkflowWorkload,
)
from silicast.serving.simulation.drafting import layers_of
from silicast.serving.simulation.fleet import Fleet
from silicast.serving.simulation.launch import Expected
from silicast.serving.traffic.requests import Content, Requests
from silicast.workflow.jobs import WorkflowJobs, expanded, refuse_too_many
from silicast.workflow.stages import StageLoop, WorkflowGraph, WorkflowStage
from silicast.workload.networks.vector_index import workflow_constants

_TIMES = 102
"""Purpose of the random numbers of stated times."""
ONE_CLIENT = ArrivalTable("closed", 1)


@final
@dataclass(frozen=True)
class BuiltWorkflow:
    """A workflow, ready to be run at any pace.

    Attributes:
        works: of each stage of the graph, in its order.
        pools: what the stages run on; division: how they share devices, None = they do not.
        known: jobs that their pool starts by itself when their item arrives.
        answering: places of stages whose tokens the client sees.
    """

    graph: WorkflowGraph
    works: tuple[Work, ...]
    jobs: WorkflowJobs
    pools: tuple[StagePool, ...]
    arrival_ns: I64
    concurrency: int
    known: frozenset[int]
    division: DeviceDivision | None
    answering: tuple[int, ...]
    warnings: tuple[str, ...]


def built(scenario: Scenario) -> BuiltWorkflow:
    """The workflow of a scenario.

    Raises:
        SilicastError: something is missing, contradicts itself or is not modelled.
    """
    return _Builder(scenario).workflow()


@final
class _Builder:
    """Puts a workflow together."""

    def __init__(self, scenario: Scenario) -> None:
        work = scenario.workload
        assert isinstance(work, WorkflowWorkload)
        scenario, self._disturbances = taken_from(scenario)
        self._scenario, self._work, self._seed = scenario, work, scenario.raw.seed or 0
        self._arrival = work.arrival or ONE_CLIENT
        self._warnings: list[str] = []
        self._works = {
            name: work_of(StageContext(scenario, name, table))
            for name, table in work.stages.items()
        }
        if work.scheduler is not None and not any(
            isinstance(work, ScheduledJobs) for work in self._works.values()
        ):
            raise SilicastError(
                "no stage is a job of a cluster",
                field="workload.scheduler",
                hint='a stage with work = "job", or leave it out',
            )
        self._tables = dict(work.stages)
        self._over_links()
        self._merged = {
            work.prefill: name
            for name, work in self._works.items()
            if isinstance(work, EngineRequests) and work.prefill
        }
        self._names = [name for name in self._tables if name not in self._merged]
        self._graph = self._graph_of()
        count = work.requests or REQUESTS_PER_CLIENT * (self._arrival.concurrency or 0)
        with errors_at("workload"):
            refuse_too_many(self._graph, count)
        arrivals = ServingWorkload(
            self._arrival, *_no_lengths(self._arrival), requests=count or work.requests
        )
        traffic = traffic_of(arrivals, self._seed, scenario.folder, count=count or OPEN_REQUESTS)
        self._items, self._warnings = traffic.requests, [*traffic.remarks]
        self._jobs = expanded(self._graph, len(self._items), self._seed)
        self._division: DeviceDivision | None = None
        self._parts: Mapping[str, Any] = {}
        if scenario.raw.colocation is not None:
            plain = {
                name: msgspec.structs.replace(table, role="")
                for name, table in scenario.pools.items()
            }
            deployed, self._division = division_of(msgspec.structs.replace(scenario, pools=plain))
            pairs = zip(deployed.values(), self._division.parts, strict=True)
            self._parts = dict(zip(deployed, pairs, strict=True))
            self._warnings += self._division.remarks

    def workflow(self) -> BuiltWorkflow:
        by_pool: dict[str, list[int]] = {}
        for number, name in enumerate(self._names):
            by_pool.setdefault(self._home(name), []).append(number)
        pools = [self._pool(home, stages) for home, stages in by_pool.items()]
        for pool in pools:
            pool.home = self._tables[self._names[pool.stages[0]]].pool or ""
            if pool.home in self._scenario.pools:
                pool.shares_with = self._scenario.pools[pool.home].shares_with or ""
        for number, pool in enumerate(pools):
            self._disturb(number, pool)
            self._check_tiers(pool)
        check_turns(pools, self._graph, one_item=self._arrival == ONE_CLIENT)
        known = frozenset(
            job
            for pool in pools
            if isinstance(pool, GeneratingPool)
            for job in pool.jobs[~pool.held].tolist()
        )
        answering = tuple(
            number
            for number, name in enumerate(self._names)
            if isinstance(requests := self._works[name], EngineRequests) and requests.answers
        )
        of_pools = [text for pool in pools for text in pool.warnings]
        warnings = [*self._warnings, *self._idle(), *of_pools]
        return BuiltWorkflow(
            self._graph,
            tuple(self._works[name] for name in self._names),
            self._jobs,
            tuple(pools),
            self._items.arrival_ns,
            self._arrival.concurrency or 0,
            known,
            self._division,
            answering,
            tuple(dict.fromkeys(warnings)),
        )

    def _check_tiers(self, pool: StagePool) -> None:
        """Refuses tiers of a pool that caches nothing."""
        table = self._scenario.pools.get(pool.home)
        if table is not None and table.kv_tiers and not isinstance(pool, GeneratingPool):
            raise SilicastError(
                "no stage of the pool generates, and it has no cached keys and values",
                field=f"pools.{pool.home}.kv_tiers",
                hint="leave it out",
            )

    def _disturb(self, number: int, pool: StagePool) -> None:
        """Draws the slow replicas of a pool, and says what is drawn and what is not modelled."""
        if isinstance(pool, (GeneratingPool, PassPool)):
            pool.paces = self._disturbances.paces(number, pool.count, pool.gpus // pool.count)
            if self._disturbances.failures is not None:
                pool.warnings.append(f"{pool.name}: failures of engines are not modelled")
        if slow := sum(pace > 1.0 for pace in pool.paces):
            pool.warnings.append(f"{pool.name}: {slow} of {len(pool.paces)} are slow, as drawn")

    def _graph_of(self) -> WorkflowGraph:
        """The graph; prompts of a stage of decoding are part of that."""
        stages = []
        for name in self._names:
            table, work = self._tables[name], self._works[name]
            after = list(table.after)
            if isinstance(work, EngineRequests) and work.prefill:
                after = list(self._tables[work.prefill].after)
            loop = None
            if table.loop is not None:
                back = self._merged.get(table.loop.back_to, table.loop.back_to)
                loop = StageLoop(back, table.loop.probability, table.loop.most or 0)
            stages.append(
                WorkflowStage(
                    name,
                    tuple(dict.fromkeys(self._merged.get(earlier, earlier) for earlier in after)),
                    (table.batch or 1)
                    * (work.copies if isinstance(work, NetworkPasses) else table.items),
                    table.repeat,
                    self._probability(name),
                    table.branch or "",
                    loop,
                    self._around(name),
                    table.escalates is not None,
                )
            )
        with errors_at("workload"):
            return WorkflowGraph(tuple(stages))

    def _probability(self, name: str) -> float:
        """With which a stage runs where what it waits for did: as stated, or by confidences."""
        table = self._tables[name]
        if table.escalates is None:
            return table.probability
        field = f"workload.stages.{name}.escalates"
        if table.probability < 1.0 or table.branch:
            raise SilicastError(
                "beside probability or branch", field=field, hint="one of them decides"
            )
        if not table.after:
            raise SilicastError(
                "no stage before it", field=field, hint="after = the stage whose answers it judges"
            )
        return table.escalates.share

    def _around(self, name: str) -> float:
        """What follows the work of a stage: as stated, or where the workflow learns from what it
        generates, as measured in frameworks of reinforcement learning.
        """
        table = self._tables[name]
        if table.overhead_share is not None:
            return table.overhead_share
        if not self._learns:
            return 0.0
        constants, pool = workflow_constants().policy, self._scenario.pools.get(table.pool or "")
        shared = pool is not None and pool.shares_with is not None and table.work in GENERATES
        wakes = constants.wake_share if shared else 0.0
        return (1.0 + wakes) * (1.0 + constants.between_share) - 1.0

    @property
    def _learns(self) -> bool:
        """Whether a stage trains on what others generate."""
        works = {table.work for table in self._tables.values()}
        return "train" in works and not works.isdisjoint(GENERATES)

    def _over_links(self) -> None:
        """Puts a stage of its own between stages whose pools a link joins: what the one makes moves
        to the other, one job after the other.
        """
        constants = workflow_constants().links
        for name, link in self._scenario.links.items():
            if link.source is None or link.target is None:
                continue
            joined = [
                (sender, receiver)
                for receiver, table in self._tables.items()
                for sender in table.after
                if table.pool == link.target and self._tables[sender].pool == link.source
            ]
            for sender, receiver in joined:
                work = self._works[sender]
                if not isinstance(work, NetworkPasses) or not work.result_bytes:
                    continue
                rate, latency_s, kind = link_rate(link, work.machine.links, f"links.{name}")
                seconds = work.result_bytes / rate + latency_s
                stage, table = f"{sender}_to_{receiver}", self._tables[receiver]
                remark = f"{stage}: {work.result_bytes / 1e6:.3g} MB a job over {kind}"
                self._works[stage] = TimedJobs(
                    partial(_alike, seconds), 1, "analytic", constants.log_sd, warnings=(remark,)
                )
                after = [stage if earlier == sender else earlier for earlier in table.after]
                self._tables[receiver] = msgspec.structs.replace(table, after=after)
                self._tables[stage] = StageTable(
                    after=[sender], work="transfer", batch=self._tables[sender].batch
                )

    def _idle(self) -> list[str]:
        """A remark on each stated pool that no stage runs on."""
        used = {table.pool for table in self._tables.values()}
        used |= {
            name
            for work in self._works.values()
            if isinstance(work, ScheduledJobs)
            for name, _ in work.rates
        }
        return [
            f"pools.{name}: no stage runs on it, and no energy or cost counts it"
            for name in self._scenario.raw.pools or ()
            if name not in used
        ]

    def _home(self, name: str) -> str:
        """What a stage runs on; a stage on no pool is a place of its own."""
        work, table = self._works[name], self._tables[name]
        if isinstance(work, TimedJobs):
            return f"stage {name}" if work.machine is None else f"timed {table.pool}"
        if isinstance(work, ScheduledJobs):
            return NAME
        if isinstance(work, EngineRequests) and work.prefill:
            return str(self._tables[work.prefill].pool or table.pool)
        return str(table.pool)

    def _pool(self, home: str, stages: list[int]) -> StagePool:
        jobs = self._jobs.of_stages(stages)
        works = [self._works[self._names[number]] for number in stages]
        random = {number: self._random(number) for number in stages}
        if all(isinstance(work, ScheduledJobs) for work in works):
            return self._cluster(stages, jobs, random[stages[0]])
        timed = {n: w for n, w in zip(stages, works, strict=True) if isinstance(w, TimedJobs)}
        if len(timed) == len(stages):
            name = "_and_".join(self._names[number] for number in stages)
            stage = self._jobs.stage[jobs]
            return TimedPool(name, timed, jobs, stage, random, self._disturbances)
        if not len(jobs):
            names = ", ".join(self._names[number] for number in stages)
            raise SilicastError(
                f"none of {len(self._items)} items comes to {names}",
                field=f"pools.{home}",
                hint="leave out what never runs; more workload.requests, where it runs by chance",
            )
        if all(isinstance(work, NetworkPasses) for work in works):
            return self._passing(home, stages, jobs)
        if all(isinstance(work, EngineRequests) for work in works):
            return self._generating(home, stages, jobs)
        raise unmodelled(
            "stages that generate and stages of passes share a pool",
            f"pools.{home}",
            "a pool for each, with colocation where they share devices",
        )

    def _random(self, stage: int) -> np.random.Generator:
        """Random numbers of a stage's stated times."""
        sequence = np.random.SeedSequence((self._seed, _TIMES, stage))
        return np.random.Generator(np.random.PCG64(sequence))

    def _cluster(self, stages: list[int], jobs: I64, random: np.random.Generator) -> ClusterPool:
        works: dict[int, ScheduledJobs] = {}
        for number in stages:
            work = self._works[self._names[number]]
            assert isinstance(work, ScheduledJobs)
            works[number] = work
        pools = {name: devices_of(table) for name, table in self._scenario.pools.items()}
        devices = devices_in_order(list(works.values()), pools)
        scheduler = self._work.scheduler or SchedulerTable()
        stage, disturbances = self._jobs.stage[jobs], self._disturbances
        return ClusterPool(works, jobs, stage, devices, scheduler, random, disturbances)

    def _passing(self, home: str, stages: list[int], jobs: I64) -> PassPool:
        works: dict[int, NetworkPasses] = {}
        for number in stages:
            work = self._works[self._names[number]]
            assert isinstance(work, NetworkPasses)
            works[number] = work
        table = self._scenario.pools[home]
        arrival = self._items.arrival_ns[self._jobs.item[jobs]]
        pool = PassPool(home, works, jobs, self._jobs.stage[jobs], arrival, table.count)
        pool.price_per_gpu_hour = self._price(home)
        if self._division is not None:
            if pool.deployment is None:
                raise unmodelled(
                    "networks beside models of the catalog on one device",
                    f"pools.{home}",
                    "a device of their own",
                )
            pool.cores = self._cores(home)
            pool.further_log_sd = self._division.log_sd
        return pool

    def _generating(self, home: str, stages: list[int], jobs: I64) -> GeneratingPool:
        requests, held = self._requests(stages, jobs)
        works = [self._works[self._names[number]] for number in stages]
        assert all(isinstance(work, EngineRequests) for work in works)
        tables = {home: self._scenario.pools[home]}
        for work in works:
            assert isinstance(work, EngineRequests)
            if work.decode_pool:
                tables[work.decode_pool] = self._scenario.pools[work.decode_pool]
        if len(tables) == 1:
            tables[home] = msgspec.structs.replace(tables[home], role="")
        else:
            tables = {
                name: msgspec.structs.replace(t, role="prefill" if name == home else "decode")
                for name, t in tables.items()
            }
        part = part_of(self._scenario, tables, "serving", None)
        links = {
            name: link
            for name, link in self._scenario.links.items()
            if len(tables) > 1 and link.target in (None, *tables)
        }
        part = _drafted(msgspec.structs.replace(part, links=links), works, f"pools.{home}")
        clients = requests.concurrency or (self._arrival.concurrency or 0) * max(
            self._graph.stages[number].copies for number in stages
        )
        try:
            prepared = self._prepared(home, part, requests, clients)
        except SilicastError as error:
            raise error.at(f"pools.{home}") if error.field == "engine" else error from None
        exits = {work.exits for work in works if isinstance(work, EngineRequests) and work.exits}
        if exits:
            prepared = self._with_exits(home, prepared, exits)
        pool = GeneratingPool(home, tuple(stages), jobs, prepared, held)
        if self._division is not None:
            pool.cores = self._cores(home)
            pool.further = {"co-location": self._division.log_sd}
        if self._learns:
            # no step of a framework says what its rollouts are off by: as much as its trainers
            pool.further |= {"framework": workflow_constants().policy.step_log_sd}
        return pool

    def _prepared(
        self, home: str, part: Scenario, requests: Requests, clients: int
    ) -> PreparedServing:
        if self._division is None:
            return prepared_for(part, requests, clients)
        deployed, portion = self._parts[home]
        longest = int(requests.input_tokens.max())
        total = int((requests.input_tokens + requests.output_tokens).max())
        expected = Expected(longest, clients, total)
        fleet = neighbour_of(home, deployed, expected, *portion).fleet
        return prepared_for(part, requests, clients, fleet)

    def _with_exits(
        self, home: str, prepared: PreparedServing, exits: set[tuple[float, ...]]
    ) -> PreparedServing:
        """The pool's replicas with a model that tokens leave early."""
        if len(exits) > 1:
            raise unmodelled("stages with different exits on one pool", f"pools.{home}")
        (shares,) = exits
        served = prepared.served
        pools = []
        for pool in served.fleet.pools:
            model, count = pool.deployment.model, len(shares)
            if model.layers % count or len(set(model.mixers)) > 1 or model.moe is not None:
                raise unmodelled(
                    f"{count} exits of {model.name}, which has {model.layers} layers",
                    "workload.stages",
                    "exits at equal depths of a model whose layers are alike",
                )
            depths = [
                step_prices(
                    replace(
                        pool.deployment,
                        model=layers_of(model, model.layers * (number + 1) // count),
                    )
                )
                for number in range(count - 1)
            ]
            prices = ExitPrices([*depths, pool.spec.prices], shares, self._seed)
            pools.append(replace(pool, spec=replace(pool.spec, prices=prices)))
        fleet: Fleet = replace(served.fleet, pools=tuple(pools))
        self._warnings.append(
            f"{home}: no model with exits was measured; a test at an exit is taken as a product "
            "with the head, and keys and values of skipped layers as free"
        )
        return prepared.on(fleet)

    def _cores(self, home: str) -> float:
        deployed, (device, _) = self._parts[home]
        return float(device.cores / deployed.deployment.device.cores)

    def _price(self, home: str) -> float | None:
        table, cluster = self._scenario.pools[home], self._scenario.raw.cluster
        if table.price_per_gpu_hour is not None:
            return table.price_per_gpu_hour
        return cluster.price_per_gpu_hour if cluster is not None else None

    def _requests(
        self, stages: Sequence[int], jobs: I64
    ) -> tuple[Requests, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
        """The requests of a pool's jobs, and which of them wait for other stages."""
        arrival = self._items.arrival_ns[self._jobs.item[jobs]]
        inputs, outputs = np.ones(len(jobs), dtype=np.int64), np.ones(len(jobs), dtype=np.int64)
        content: Content | None = None
        for number in stages:
            rows = np.flatnonzero(self._jobs.stage[jobs] == number)
            if not len(rows):
                continue
            made = self._lengths(number, len(rows))
            inputs[rows], outputs[rows] = made.input_tokens, made.output_tokens
            if len(stages) == 1:
                content = made.content
        if any(self._tables[self._names[number]].keeps_context for number in stages):
            inputs, content = self._grown(stages, jobs, inputs, outputs)
        waits = np.array([self._jobs.waits[job] for job in jobs.tolist()])
        closed = bool(self._arrival.concurrency)
        held = (waits > 0) | closed
        alone = len(self._graph.stages) == 1 and self._graph.stages[0].copies == 1
        limit = (self._arrival.concurrency or 0) if alone else 0
        return Requests.from_arrays(arrival, inputs, outputs, limit, content), held

    def _lengths(self, number: int, count: int) -> Requests:
        work = self._works[self._names[number]]
        assert isinstance(work, EngineRequests)
        arrival = self._arrival
        if count != len(self._items) or (work.input_len and work.output_len):
            arrival = ONE_CLIENT
        for name, stated in (("input_len", work.input_len), ("output_len", work.output_len)):
            if stated is None and arrival is ONE_CLIENT:
                raise SilicastError(
                    "is missing",
                    field=f"workload.stages.{self._names[number]}.{name}",
                    hint="a number or a distribution; a trace of arrivals may have it",
                )
        table = ServingWorkload(arrival, work.input_len, work.output_len, requests=count)
        return traffic_of(table, self._seed + number, self._scenario.folder).requests

    def _grown(
        self, stages: Sequence[int], jobs: I64, inputs: I64, outputs: I64
    ) -> tuple[I64, Content]:
        """Prompts that begin with all that an item's stages with context have said before."""
        keeping = {n for n in stages if self._tables[self._names[n]].keeps_context}
        spoken: dict[tuple[int, int], list[tuple[int, int]]] = {}
        grown, segments, tokens, offsets, names = inputs.copy(), [], [], [0], []
        for row, job in enumerate(jobs.tolist()):
            key = int(self._jobs.item[job]), int(self._jobs.copy[job])
            keeps = int(self._jobs.stage[job]) in keeping
            before = spoken.setdefault(key, []) if keeps else []
            new = [(2 * row, int(inputs[row]))]
            prompt = [*before, *new]
            grown[row] = sum(size for _, size in prompt)
            segments += [name for name, _ in prompt]
            tokens += [size for _, size in prompt]
            offsets.append(len(segments))
            names.append(2 * row + 1)
            if keeps:
                before += [*new, (2 * row + 1, int(outputs[row]))]
        columns = (segments, tokens, offsets, names)
        return grown, Content(*(np.array(column, dtype=np.int64) for column in columns))


def _drafted(part: Scenario, works: Sequence[Work], field: str) -> Scenario:
    """A pool's scenario with what its stages draft tokens by.

    Raises:
        SilicastError: they do not draft alike.
    """
    first, *others = [work.speculative for work in works if isinstance(work, EngineRequests)]
    if any(method != first for method in others):
        raise unmodelled(
            "stages of one pool draft in different ways, or some not at all",
            field,
            "a pool for each",
        )
    if first is None:
        return part
    return msgspec.structs.replace(part, raw=msgspec.structs.replace(part.raw, speculative=first))


def _alike(seconds: float, count: int, _: np.random.Generator) -> F64:
    return np.full(count, seconds)


def _no_lengths(arrival: ArrivalTable) -> tuple[int | None, int | None]:
    """Lengths of items where their arrivals have none."""
    traced = arrival.path is not None or arrival.rows is not None
    return (None, None) if traced else (1, 1)
