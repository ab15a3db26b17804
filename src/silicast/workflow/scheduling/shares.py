"""Devices to where they raise a sum of utilities the most, for policies driven by goodput."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence

from silicast.workflow.scheduling.policy import Allocation

Utility = Callable[[int, Allocation | None], float]
"""Of a job on an allocation; None = it waits."""


def best_shares(
    options: Mapping[int, Sequence[Allocation]], devices: Sequence[int], utility: Utility
) -> dict[int, Allocation]:
    """An allocation for each job such that no job can do better alone, with what is free.

    The step with the largest gain per device goes first: a start, more devices, or another group.
    Then pairs of jobs change groups as long as both together gain. Ties go to the first job.
    """
    free = list(devices)
    given: dict[int, Allocation] = {}
    heap: list[tuple[float, int, Allocation, Allocation | None]] = []

    def offer(job: int) -> None:
        before = given.get(job)
        now = utility(job, before)
        for each in options[job]:
            more = _further(each, before)
            gain = utility(job, each) - now
            if gain > 1e-12 * abs(now) and more <= free[each[0]]:
                heapq.heappush(heap, (-gain / max(more, 0.5), job, each, before))

    while True:  # what one job leaves may be of use to others
        for job in options:
            offer(job)
        if not heap:
            return _exchanged(options, given, utility)
        while heap:
            _, job, allocation, before = heapq.heappop(heap)
            if given.get(job) != before or _further(allocation, before) > free[allocation[0]]:
                continue
            if before is not None:
                free[before[0]] += before[1]
            free[allocation[0]] -= allocation[1]
            given[job] = allocation
            offer(job)


def _further(allocation: Allocation, before: Allocation | None) -> int:
    """Devices that a job takes beyond those of the same group that it has."""
    same = before is not None and before[0] == allocation[0]
    return allocation[1] - before[1] if before is not None and same else allocation[1]


def _exchanged(
    options: Mapping[int, Sequence[Allocation]], given: dict[int, Allocation], utility: Utility
) -> dict[int, Allocation]:
    """Exchanges allocations of two groups between pairs of jobs while that raises the sum."""
    jobs, changed = list(given), True
    while changed:
        changed = False
        for number, one in enumerate(jobs):
            for other in jobs[number + 1 :]:
                mine, theirs = given[one], given[other]
                fits = theirs in options[one] and mine in options[other]
                if mine[0] == theirs[0] or not fits:
                    continue
                before = utility(one, mine) + utility(other, theirs)
                if utility(one, theirs) + utility(other, mine) > before + 1e-12 * abs(before):
                    given[one], given[other] = theirs, mine
                    changed = True
    return given
