"""Jobs meet stations: the loop that carries items through a workflow.

The station whose next event is the earliest goes on; items that start at the same time go first,
then stations in their order. A job is submitted to its station as soon as the last job that it
waits for has ended.
"""

from __future__ import annotations

import heapq
import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import final

import numpy as np

from silicast.core.errors import SilicastError
from silicast.core.numerics import F64, I64
from silicast.workflow.jobs import JOIN, WorkflowJobs

NEVER = 1 << 62
Ended = Callable[[int, int], None]
"""Called with a job and the time in ns at which it ended."""


class Station(ABC):
    """Runs jobs; what a pool, a host or a link is to a workflow."""

    def __init__(self) -> None:
        self.ended: Ended = _nobody

    @abstractmethod
    def submit(self, job: int, now_ns: int) -> None:
        """A job is ready to run."""

    @property
    @abstractmethod
    def next_ns(self) -> int:
        """Time of the next event; -1 = nothing happens until a job is submitted."""

    @abstractmethod
    def advance(self) -> None:
        """Takes the next event; calls :attr:`ended` for jobs that end with it."""

    @abstractmethod
    def begun_ns(self, job: int) -> int:
        """When a job that has ended left the queue."""

    @abstractmethod
    def busy_ns(self, first_ns: int, last_ns: int) -> int:
        """Time between two moments in which its servers work, of all of them."""


def _nobody(job: int, now_ns: int) -> None:
    raise ValueError(f"job {job} ended at {now_ns} and nobody listens")


@final
@dataclass(frozen=True)
class WorkflowTimes:
    """When jobs were ready, left the queue and ended; ns, int64 of shape (jobs,).

    Attributes:
        start_ns, end_ns: of each item, shape (items,).
        arrival_ns: when each item came; it starts later where clients wait.
        last: the job that ended each item; ``latest``: the job that each waited for longest, -1 =
            none.
    """

    jobs: WorkflowJobs
    ready_ns: I64
    begun_ns: I64
    done_ns: I64
    arrival_ns: I64
    start_ns: I64
    end_ns: I64
    last: I64
    latest: I64

    @property
    def span_ns(self) -> int:
        """From the first item's start to the last one's end."""
        return int(self.end_ns.max() - self.start_ns.min())


@final
class WorkflowRun:
    """Items on their way through stations.

    Args:
        stations: by the place of a stage in the graph; several stages may share one.
        arrival_ns: of each item, in order.
        concurrency: items under way at most; 0 = no limit.
        known: jobs that their station starts by itself when their item arrives.
        overheads: by stage, what follows a job before others see its end, as a share of the time
            since it was ready; its station is free meanwhile.
    """

    def __init__(
        self,
        jobs: WorkflowJobs,
        stations: Mapping[int, Station],
        arrival_ns: I64,
        concurrency: int = 0,
        known: frozenset[int] = frozenset(),
        overheads: Mapping[int, float] = MappingProxyType({}),
    ) -> None:
        self._overheads = overheads
        self._late: list[tuple[int, int]] = []
        self._jobs, self._of_stage, self._known = jobs, stations, known
        self._stations = list({id(each): each for each in stations.values()}.values())
        self._arrival_ns, self._limit = arrival_ns, concurrency
        self._stage = jobs.stage.tolist()
        self._item = jobs.item.tolist()
        self._waits = list(jobs.waits)
        size = len(jobs)
        self._ready, self._done, self._latest = [-1] * size, [-1] * size, [-1] * size
        self._left = np.bincount(jobs.item, minlength=jobs.items).tolist()
        self._entries: list[list[int]] = [[] for _ in range(jobs.items)]
        for job, count in enumerate(jobs.waits):
            if not count:
                self._entries[self._item[job]].append(job)
        self._start, self._end = [-1] * jobs.items, [-1] * jobs.items
        self._last = [-1] * jobs.items
        self._order = np.argsort(arrival_ns, kind="stable").tolist()
        self._next, self._under_way = 0, 0
        self._waiting: list[int] = []
        self._ending: deque[tuple[int, int]] = deque()
        for station in self._stations:
            station.ended = self._note

    def run(self) -> WorkflowTimes:
        """Runs until every job has ended.

        Raises:
            SilicastError: jobs that never end; kind "internal".
        """
        while self._step():
            pass
        jobs = self._jobs
        undone = sum(each < 0 for each in self._done)
        if undone:
            raise SilicastError(f"{undone} of {len(jobs)} jobs never end", kind="internal")
        begun = [
            self._of_stage[stage].begun_ns(job) if stage != JOIN else self._ready[job]
            for job, stage in enumerate(self._stage)
        ]
        columns = (self._ready, begun, self._done)
        ready, left, done = (np.array(each, dtype=np.int64) for each in columns)
        start, end, last, latest = (
            np.array(each, dtype=np.int64)
            for each in (self._start, self._end, self._last, self._latest)
        )
        return WorkflowTimes(jobs, ready, left, done, self._arrival_ns, start, end, last, latest)

    def _step(self) -> bool:
        """The next event of all; False = there is none."""
        now, chosen = self._late[0][0] if self._late else NEVER, -1
        for number, station in enumerate(self._stations):
            time_ns = station.next_ns
            if 0 <= time_ns < now:
                now, chosen = time_ns, number
        if self._next < len(self._order):
            item = self._order[self._next]
            if int(self._arrival_ns[item]) <= now:
                self._next += 1
                self._arrive(item, int(self._arrival_ns[item]))
                return True
        if chosen >= 0:
            self._stations[chosen].advance()
        elif self._late:
            time_ns, job = heapq.heappop(self._late)
            self._ending.append((job, time_ns))
        else:
            return False
        self._settle()
        return True

    def _note(self, job: int, now_ns: int) -> None:
        share = self._overheads.get(self._stage[job], 0.0)
        if share:
            late_ns = now_ns + round(share * (now_ns - self._ready[job]))
            heapq.heappush(self._late, (late_ns, job))
        else:
            self._ending.append((job, now_ns))

    def _settle(self) -> None:
        """What follows from jobs that have ended."""
        while self._ending:
            job, now_ns = self._ending.popleft()
            self._end_job(job, now_ns)

    def _arrive(self, item: int, now_ns: int) -> None:
        if self._limit and self._under_way >= self._limit:
            heapq.heappush(self._waiting, item)
            return
        self._begin(item, now_ns)
        self._settle()

    def _begin(self, item: int, now_ns: int) -> None:
        self._under_way += 1
        self._start[item] = now_ns
        for job in self._entries[item]:
            self._submit(job, now_ns)
        if not self._left[item]:  # chance left out all of its stages
            self._end_item(item, -1, now_ns)

    def _submit(self, job: int, now_ns: int) -> None:
        self._ready[job] = now_ns
        stage = self._stage[job]
        if stage == JOIN:
            self._note(job, now_ns)
        elif job not in self._known:
            self._of_stage[stage].submit(job, now_ns)

    def _end_job(self, job: int, now_ns: int) -> None:
        self._done[job] = now_ns
        for follower in self._jobs.followers[job]:
            self._waits[follower] -= 1
            if not self._waits[follower]:
                self._latest[follower] = job
                self._submit(follower, now_ns)
        item = self._item[job]
        self._left[item] -= 1
        if not self._left[item]:
            self._end_item(item, job, now_ns)

    def _end_item(self, item: int, last: int, now_ns: int) -> None:
        self._end[item], self._last[item] = now_ns, last
        self._under_way -= 1
        if self._waiting:
            self._begin(heapq.heappop(self._waiting), now_ns)


QUANTILES: Mapping[str, float] = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
GROWS = 0.4
"""Share of the mean latency by which it grows over half of a run where the queue has no end: from
an empty start it is two thirds.
"""
FEW = 100
"""Jobs from which a load is told."""
SPREAD = 0.5
"""Of the time, the part over which they come at least."""


def statistics_ms(name: str, times_ns: I64) -> dict[str, float]:
    """Mean and quantiles of some times, as ``NAME_p99_ms``; nothing of none."""
    if not len(times_ns):
        return {}
    values = np.multiply(times_ns, 1e-6, dtype=np.float64)
    at = np.quantile(values, list(QUANTILES.values()))
    table = {f"{name}_mean_ms": float(values.mean())}
    return table | {f"{name}_{q}_ms": float(v) for q, v in zip(QUANTILES, at, strict=True)}


def item_latency_ns(times: WorkflowTimes) -> I64:
    """From an item's start to the end of its last job, shape (items,)."""
    latency: I64 = times.end_ns - times.start_ns
    return latency


def stage_statistics_ms(times: WorkflowTimes, stage: int) -> dict[str, float]:
    """Of one stage's jobs: ``stage`` from ready to done, ``wait`` of it in the queue."""
    rows = times.jobs.of_stages([stage])
    ready = times.ready_ns[rows]
    return {
        **statistics_ms("stage", times.done_ns[rows] - ready),
        **statistics_ms("wait", np.maximum(times.begun_ns[rows] - ready, 0)),
    }


@final
@dataclass(frozen=True)
class StageLoad:
    """What comes to a stage in some time, and what it does in it.

    Attributes:
        growth: of the latency over that time, by a straight line, over its mean.
    """

    offered_per_s: float
    served_per_s: float
    growth: float

    @property
    def ratio(self) -> float:
        """Jobs that come for each that ends."""
        return self.offered_per_s / self.served_per_s if self.served_per_s else math.inf

    @property
    def grows(self) -> bool:
        """Whether more comes than it can do: less ends than comes, and latencies rise with it."""
        return self.growth > GROWS and self.ratio > 1.02


def load_of(times: WorkflowTimes, stage: int, first_ns: int, last_ns: int) -> StageLoad | None:
    """Of the jobs of a stage that are ready between two moments; None = too few to tell, or all in
    a part of that time: what a burst has left at its end is no load.
    """
    rows = times.jobs.of_stages([stage])
    ready, done = times.ready_ns[rows], times.done_ns[rows]
    come = (ready >= first_ns) & (ready <= last_ns)
    ended = (done >= first_ns) & (done <= last_ns)
    if come.sum() < FEW or np.ptp(ready[come]) < SPREAD * (last_ns - first_ns):
        return None
    seconds = (last_ns - first_ns) * 1e-9
    at = (ready[come] - first_ns) * 1e-9
    latency = (done[come] - ready[come]) * 1e-9
    spread = at - at.mean()
    slope = float((spread * latency).sum() / max(float((spread * spread).sum()), 1e-30))
    growth = slope * seconds / max(float(latency.mean()), 1e-30)
    return StageLoad(int(come.sum()) / seconds, int(ended.sum()) / seconds, growth)


def critical_path_ns(times: WorkflowTimes, stages: int) -> F64:
    """Mean over items of what each stage adds to the critical path, shape (stages, 2): until the
    job left the queue, and after. The path goes back from the job that ended an item, each time to
    the one that ended last of those that it waited for; all of it sums to the mean latency.
    """
    path = np.zeros((stages, 2))
    stage, latest = times.jobs.stage, times.latest
    for end in times.last.tolist():
        job = end
        while job >= 0:
            number = int(stage[job])
            if number != JOIN:
                ready, done = int(times.ready_ns[job]), int(times.done_ns[job])
                begun = min(max(int(times.begun_ns[job]), ready), done)
                path[number, 0] += begun - ready
                path[number, 1] += done - begun
            job = int(latest[job])
    mean: F64 = path / max(times.jobs.items, 1)
    return mean
