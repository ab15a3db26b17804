"""Pools of replicas as the simulation of serving runs them, as stations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

import numpy as np

from silicast.core.numerics import I64
from silicast.serving.simulation.colocation import Colocation
from silicast.serving.simulation.event_loop import Simulation
from silicast.serving.statistics.records import Records
from silicast.workflow.run import Station


@final
class ReplicaStation(Station):
    """A fleet whose requests are jobs.

    Args:
        simulation: its requests are held until they are submitted.
        jobs: the job of each request.
    """

    def __init__(self, simulation: Simulation, jobs: I64) -> None:
        super().__init__()
        self.simulation, self.jobs = simulation, jobs
        self._request = {job: request for request, job in enumerate(jobs.tolist())}
        simulation.done = lambda request, now_ns: self.ended(int(jobs[request]), now_ns)

    @property
    def records(self) -> Records:
        return self.simulation.records

    def submit(self, job: int, now_ns: int) -> None:
        self.simulation.release(self._request[job], now_ns)

    @property
    def next_ns(self) -> int:
        return self.simulation.next_ns

    def advance(self) -> None:
        self.simulation.advance()

    def begun_ns(self, job: int) -> int:
        return int(self.records.scheduled_ns[self._request[job]])

    def first_ns(self, job: int) -> int:
        """When a job's first token, or its only result, was there."""
        return int(self.records.first_ns[self._request[job]])

    def output_tokens(self, job: int) -> int:
        """Tokens that a job brings."""
        return int(self.records.requests.output_tokens[self._request[job]])

    def busy_ns(self, first_ns: int, last_ns: int) -> int:
        log = self.records.log.columns()
        starts, ends = np.maximum(log["start_ns"], first_ns), np.minimum(log["end_ns"], last_ns)
        return _covered_ns(log["replica"], starts, ends)


def _covered_ns(replica: I64, starts: I64, ends: I64) -> int:
    """Time in which any step of a replica runs, summed over replicas; with pipeline stages steps
    overlap.
    """
    total = 0
    for number in np.unique(replica).tolist():
        rows = replica == number
        order = np.argsort(starts[rows], kind="stable")
        begun, ended = starts[rows][order], ends[rows][order]
        until = np.maximum.accumulate(np.concatenate((begun[:1], ended[:-1])))
        total += int(np.maximum(ended - np.maximum(begun, until), 0).sum())
    return total


@final
class SharedStation(Station):
    """Pools that share devices, each a tenant of them."""

    def __init__(self, pools: Sequence[ReplicaStation], colocation: Colocation) -> None:
        super().__init__()
        self.pools, self._colocation = list(pools), colocation
        self._of_job: Mapping[int, ReplicaStation] = {
            job: pool for pool in pools for job in pool.jobs.tolist()
        }
        for pool in pools:
            pool.ended = self._pass_on

    def submit(self, job: int, now_ns: int) -> None:
        self._of_job[job].submit(job, now_ns)

    @property
    def next_ns(self) -> int:
        return self._colocation.next_ns

    def advance(self) -> None:
        self._colocation.advance()

    def begun_ns(self, job: int) -> int:
        return self._of_job[job].begun_ns(job)

    def busy_ns(self, first_ns: int, last_ns: int) -> int:
        return sum(pool.busy_ns(first_ns, last_ns) for pool in self.pools)

    def _pass_on(self, job: int, now_ns: int) -> None:
        self.ended(job, now_ns)
