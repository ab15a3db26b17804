"""When each layer runs, on cores that were chosen: a list schedule with transfers over links.

A core runs one layer at a time, a link moves one tensor at a time and way. What waits with the
longest work behind it goes first. Who runs at once shares a memory's bandwidth fairly.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

DONE = 1e-12
"""Share of a job that counts as none left: rounding of times."""


@final
@dataclass(frozen=True)
class CoreJob:
    """A layer on its core, or a tensor on a link.

    Attributes:
        seconds: that it takes where no memory is short.
        resource: that it occupies.
        shares: memory -> share of its bandwidth that it takes meanwhile; above 1, more than all.
        after: numbers of jobs that it waits for.
    """

    seconds: float
    resource: str
    shares: Mapping[str, float] = field(default_factory=dict)
    after: tuple[int, ...] = ()


@final
@dataclass(frozen=True)
class RunTimes:
    """When a job began and ended, s."""

    start: float
    end: float


def scheduled(jobs: Sequence[CoreJob]) -> list[RunTimes]:
    """When each job runs.

    Args:
        jobs: each after those that it waits for.

    >>> a, b = CoreJob(2.0, "x"), CoreJob(3.0, "y")
    >>> [each.end for each in scheduled([a, b, CoreJob(1.0, "x", after=(0, 1))])]
    [2.0, 3.0, 4.0]
    """
    behind = _behind(jobs)
    followers: list[list[int]] = [[] for _ in jobs]
    missing = [len(set(job.after)) for job in jobs]
    for number, job in enumerate(jobs):
        for before in set(job.after):
            followers[before].append(number)
    ready: dict[str, list[tuple[float, int]]] = {}
    for number, job in enumerate(jobs):
        if not missing[number]:
            heapq.heappush(ready.setdefault(job.resource, []), (-behind[number], number))
    left: dict[int, float] = {}
    busy: set[str] = set()
    starts, ends = [0.0] * len(jobs), [0.0] * len(jobs)
    now = 0.0
    while left or any(ready.values()):
        for resource, queue in ready.items():
            if queue and resource not in busy:
                number = heapq.heappop(queue)[1]
                left[number], starts[number] = 1.0, now
                busy.add(resource)
        rates = _rates(jobs, left)
        step = min(left[n] / rates[n] for n in left)
        now += step
        over = [n for n in left if left[n] - step * rates[n] <= DONE]
        for number in left:
            left[number] -= step * rates[number]
        for number in over:
            del left[number]
            ends[number] = now
            busy.discard(jobs[number].resource)
            for follower in followers[number]:
                missing[follower] -= 1
                if not missing[follower]:
                    waiting = ready.setdefault(jobs[follower].resource, [])
                    heapq.heappush(waiting, (-behind[follower], follower))
    return [RunTimes(*each) for each in zip(starts, ends, strict=True)]


def _behind(jobs: Sequence[CoreJob]) -> list[float]:
    """Seconds of the longest way from the start of each job to the end of all."""
    longest = [0.0] * len(jobs)
    for number in reversed(range(len(jobs))):
        longest[number] += jobs[number].seconds
        for before in jobs[number].after:
            longest[before] = max(longest[before], longest[number])
    return longest


def _rates(jobs: Sequence[CoreJob], running: Mapping[int, float]) -> dict[int, float]:
    """Share of itself that each job does in a second."""
    demands: dict[str, dict[int, float]] = {}
    for number in running:
        for memory, share in jobs[number].shares.items():
            demands.setdefault(memory, {})[number] = share
    pace = dict.fromkeys(running, 1.0)
    for wanted in demands.values():
        for number, share in fair_shares(wanted).items():
            if share < wanted[number]:
                pace[number] = min(pace[number], share / wanted[number])
    return {number: pace[number] / max(jobs[number].seconds, 1e-30) for number in running}


def fair_shares(wanted: Mapping[int, float]) -> dict[int, float]:
    """What each gets of one memory: nobody more unless all with less have what they want.

    >>> fair_shares({0: 0.2, 1: 0.9, 2: 0.9})
    {0: 0.2, 1: 0.4, 2: 0.4}
    """
    left, shares = 1.0, {}
    for position, number in enumerate(sorted(wanted, key=lambda each: wanted[each])):
        shares[number] = min(wanted[number], left / (len(wanted) - position))
        left -= shares[number]
    return shares
