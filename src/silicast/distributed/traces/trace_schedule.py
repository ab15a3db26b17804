"""When activities run that wait for each other and share resources, event by event."""

from __future__ import annotations

import heapq
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import final

NEVER = math.inf


@final
@dataclass(frozen=True, slots=True)
class Activity:
    """Something that runs once: an operation of a rank, or a call in which several take part.

    Attributes:
        waits: indices of what must have ended before it.
        resource: what it keeps busy, one activity at a time; None = nothing.
    """

    waits: tuple[int, ...]
    resource: Hashable = None


def scheduled(
    activities: Sequence[Activity], seconds: Sequence[float]
) -> tuple[list[float], list[float]]:
    """Start and end of each; what never starts because it waits in a circle has :data:`NEVER`.

    Of those that a resource could run next it runs the one that comes first in ``activities``.

    >>> both = [Activity((), "device"), Activity((), "device"), Activity((0,), "link")]
    >>> scheduled(both, [2.0, 3.0, 1.0])
    ([0.0, 2.0, 2.0], [2.0, 5.0, 3.0])
    """
    return _Schedule(activities, seconds).run()


def least_seconds(activities: Sequence[Activity], seconds: Sequence[float]) -> float:
    """No order is quicker: the longest chain, and the busiest resource.

    >>> least_seconds([Activity((), "d"), Activity((), "d")], [2.0, 3.0])
    5.0
    """
    _, end = scheduled([Activity(each.waits) for each in activities], seconds)
    load: dict[Hashable, float] = {}
    for each, item in zip(activities, seconds, strict=True):
        if each.resource is not None:
            load[each.resource] = load.get(each.resource, 0.0) + item
    return max([*end, *load.values()], default=0.0)


@final
class _Schedule:
    def __init__(self, activities: Sequence[Activity], seconds: Sequence[float]) -> None:
        count = len(activities)
        self.activities, self.seconds = activities, seconds
        self.start, self.end = [NEVER] * count, [NEVER] * count
        self.left = [len(each.waits) for each in activities]
        self.readers: list[list[int]] = [[] for _ in range(count)]
        for index, each in enumerate(activities):
            for other in each.waits:
                self.readers[other].append(index)
        self.queues: dict[Hashable, list[int]] = {}
        self.busy: set[Hashable] = set()
        self.changed: dict[Hashable, None] = {}
        self.ends: list[tuple[float, int]] = []

    def run(self) -> tuple[list[float], list[float]]:
        """Start and end of each."""
        for index, count in enumerate(self.left):
            if not count:
                self._ready(index, 0.0)
        self._dispatch(0.0)
        while self.ends:
            now = self.ends[0][0]
            while self.ends and self.ends[0][0] == now:  # all end before a resource chooses anew
                self._finish(heapq.heappop(self.ends)[1], now)
            self._dispatch(now)
        return self.start, self.end

    def _begin(self, index: int, now: float) -> None:
        self.start[index] = now
        heapq.heappush(self.ends, (now + self.seconds[index], index))

    def _ready(self, index: int, now: float) -> None:
        resource = self.activities[index].resource
        if resource is None:
            self._begin(index, now)
            return
        heapq.heappush(self.queues.setdefault(resource, []), index)
        self.changed[resource] = None

    def _finish(self, index: int, now: float) -> None:
        self.end[index] = now
        resource = self.activities[index].resource
        if resource is not None:
            self.busy.discard(resource)
            self.changed[resource] = None
        for reader in self.readers[index]:
            self.left[reader] -= 1
            if not self.left[reader]:
                self._ready(reader, now)

    def _dispatch(self, now: float) -> None:
        for resource in self.changed:
            if resource not in self.busy and self.queues[resource]:
                self.busy.add(resource)
                self._begin(heapq.heappop(self.queues[resource]), now)
        self.changed.clear()
