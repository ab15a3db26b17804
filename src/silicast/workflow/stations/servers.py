"""Servers that each run one job at a time, in order of their coming: hosts, links, tools."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping
from typing import final

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
