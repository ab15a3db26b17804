"""Pools of devices that a scheduler shares out to jobs, as one station."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np

from silicast.core.numerics import F64, I64
from silicast.scenario.answer import GIVEN
from silicast.scenario.answers.workflow.pools import Disturbances, StagePool
from silicast.scenario.answers.workflow.stage_work import ScheduledJobs
from silicast.scenario.workloads import SchedulerTable
from silicast.workflow.run import Station, WorkflowTimes
from silicast.workflow.scheduling.cluster import ClusterStation
from silicast.workflow.scheduling.policy import Allocation, ClusterJob, policy_of

NAME = "cluster"


@final
class ClusterPool(StagePool):
    """All jobs of a cluster.

    Args:
        works: of each of its stages, by their place in the graph; stage: of each job.
        devices: of each pool that a job may run on.
    """

    def __init__(
        self,
        works: Mapping[int, ScheduledJobs],
        jobs: I64,
        stage: I64,
        devices: Mapping[str, int],
        scheduler: SchedulerTable,
        random: np.random.Generator,
        disturbances: Disturbances,
    ) -> None:
        super().__init__()
        self.name, self.stages, self.jobs = NAME, tuple(works), jobs
        self.count, self.gpus, self.machine = sum(devices.values()), sum(devices.values()), None
        self.devices, self.scheduler = devices, scheduler
        self._works, self._stage = works, stage
        self._work: F64 = np.ones(len(jobs))
        for number, each in works.items():
            rows = np.flatnonzero(stage == number)
            work = np.maximum(each.work(len(rows), random), 1e-9)
            (_, count), rate = next(iter(each.rates.items()))
            pace = np.array(disturbances.paces(number, len(rows), count))
            seconds = disturbances.with_failures(work / rate * pace, count, random)
            self._work[rows] = seconds * rate
            self.warnings += each.warnings
        self._observed: ClusterStation | None = None

    def station(self, deviations: float) -> ClusterStation:
        groups = {name: number for number, name in enumerate(self.devices)}
        rates: dict[int, dict[Allocation, float]] = {}
        for number, each in self._works.items():
            slower = math.exp(-deviations * each.log_sd)
            rates[number] = {(groups[n], k): rate * slower for (n, k), rate in each.rates.items()}
        jobs = {
            job: ClusterJob(work, rates[stage])
            for job, stage, work in zip(
                self.jobs.tolist(), self._stage.tolist(), self._work.tolist(), strict=True
            )
        }
        table = self.scheduler
        return ClusterStation(
            jobs,
            list(self.devices.values()),
            policy_of(table.policy),
            table.round_s,
            table.restart_s,
        )

    def observe(self, station: Station) -> None:
        assert isinstance(station, ClusterStation)
        self._observed = station

    def shares(self) -> Mapping[str, float]:
        """Of the work of all jobs."""
        shares: dict[str, float] = {}
        for number, each in self._works.items():
            share = float(np.mean(self._stage == number)) / sum(each.tiers.values())
            for tier, value in each.tiers.items():
                shares[tier] = shares.get(tier, 0.0) + share * value
        return shares

    @property
    def given(self) -> bool:
        return all(set(each.tiers) == {GIVEN} for each in self._works.values())

    def told(self, times: WorkflowTimes) -> dict[str, Any]:
        """``schedule`` for ``why``: how full each pool is, and how the jobs fare.

        A job's slowdown is its time from coming to its end over what it takes on the quickest of
        its allocations; fairness is Jain's index of their inverses, 1 where all are alike.
        """
        station = self._observed
        assert station is not None
        first, last = int(times.start_ns.min()), int(times.end_ns.max())
        span = max(last - first, 1)
        best = np.array([max(self._works[n].rates.values()) for n in self._stage.tolist()])
        alone_s = self._work / best
        took_s = (times.done_ns[self.jobs] - times.ready_ns[self.jobs]) * 1e-9
        slowdown = np.maximum(took_s / alone_s, 1.0)
        return {
            "policy": self.scheduler.policy,
            "utilisation": {
                name: round(station.busy_of(group, first, last) / (span * count), 6)
                for group, (name, count) in enumerate(self.devices.items())
            },
            "slowdown": {
                "mean": round(float(slowdown.mean()), 6),
                "p95": round(float(np.quantile(slowdown, 0.95)), 6),
                "largest": round(float(slowdown.max()), 6),
            },
            "fairness": round(jain_index(1.0 / slowdown), 6),
            "restarts": sum(station.restarts.values()),
        }


def jain_index(values: F64) -> float:
    """Jain's index of fairness: 1 = all alike, 1 / n = one has everything (DEC-TR-301, 1984).

    >>> jain_index(np.array([1.0, 1.0])), jain_index(np.array([1.0, 0.0, 0.0, 0.0]))
    (1.0, 0.25)
    """
    return float(values.sum() ** 2 / (len(values) * (values**2).sum()))


def devices_in_order(works: Sequence[ScheduledJobs], pools: Mapping[str, int]) -> Mapping[str, int]:
    """Devices of the pools that any of the jobs may run on, in the order of the scenario."""
    used = {name for each in works for name, _ in each.rates}
    return {name: count for name, count in pools.items() if name in used}
