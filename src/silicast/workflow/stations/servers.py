"""Stations that serve one thing at a time: single jobs, and batches of one size.

Hosts, links and tools run single jobs in order of their coming; graphs that are compiled for a size
run batches of it. One pass runs at a time; when it has ended, those that wait and are of the size
of the one that came first form the next, in order of arrival, up to the largest batch. Nothing is
padded.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping
from typing import ClassVar, final

from silicast.serving.simulation.scheduler import Scheduler, StepPlan
from silicast.workflow.run import Station


@final
class ServerStation(Station):
    """Jobs of stated times on servers.

    Args:
        service_ns: of each job that comes here.
        servers: that work side by side; 0 = one for every job, so that none waits.
    """

    def __init__(self, service_ns: Mapping[int, int], servers: int = 0) -> None:
        super().__init__()
        self._service_ns, self._servers = service_ns, servers
        self._waiting: deque[int] = deque()
        self._running: list[tuple[int, int]] = []
        self._begun: dict[int, int] = {}

    def submit(self, job: int, now_ns: int) -> None:
        if self._servers and len(self._running) >= self._servers:
            self._waiting.append(job)
            return
        self._begin(job, now_ns)

    @property
    def next_ns(self) -> int:
        return self._running[0][0] if self._running else -1

    def advance(self) -> None:
        now_ns, job = heapq.heappop(self._running)
        if self._waiting:
            self._begin(self._waiting.popleft(), now_ns)
        self.ended(job, now_ns)

    def begun_ns(self, job: int) -> int:
        return self._begun[job]

    def busy_ns(self, first_ns: int, last_ns: int) -> int:
        spans = (
            min(begun + self._service_ns[job], last_ns) - max(begun, first_ns)
            for job, begun in self._begun.items()
        )
        return sum(max(span, 0) for span in spans)

    def _begin(self, job: int, now_ns: int) -> None:
        self._begun[job] = now_ns
        heapq.heappush(self._running, (now_ns + self._service_ns[job], job))


@final
class UniformBatching(Scheduler):
    """Batches of requests alike."""

    name: ClassVar[str] = "uniform-batching"
    one_pass: ClassVar[bool] = True

    def schedule(self) -> StepPlan:
        group, plan, self.ask_ns = self.group, self.empty(), -1
        if group.running or not group.waiting:
            return plan
        todo, most = group.sequences.todo, group.limits.sequences
        size = int(todo[group.waiting[0]])
        chosen: list[int] = []
        passed: list[int] = []
        while group.waiting and len(chosen) < most:
            request = group.waiting.popleft()
            (chosen if int(todo[request]) == size else passed).append(request)
        group.waiting.extendleft(reversed([*chosen, *passed]))
        for _ in chosen:
            self.admit(plan, size)
        return plan
