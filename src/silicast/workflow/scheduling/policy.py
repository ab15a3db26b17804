"""What a policy of a cluster's scheduler sees, and what it decides.

Policies that are driven by goodput hand devices to where they raise a sum of utilities the most.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, final

from silicast.core.registry import Registry

Allocation = tuple[int, int]
"""A group of devices that are alike, and how many of them."""


@final
@dataclass(frozen=True)
class ClusterJob:
    """A job that runs on devices of one group at a time.

    Attributes:
        work: how much there is to do, in any unit; rates: of it a second, on each allocation that
            the job can take, all above 0. The first is what rigid policies give it in its group.
    """

    work: float
    rates: Mapping[Allocation, float]

    @property
    def rigid(self) -> Mapping[Allocation, float]:
        """The first allocation of each group: what a policy gives that does not choose counts."""
        first: dict[int, tuple[Allocation, float]] = {}
        for allocation, rate in self.rates.items():
            first.setdefault(allocation[0], (allocation, rate))
        return dict(first.values())


@final
@dataclass(frozen=True)
class ClusterView:
    """A cluster at a moment.

    Attributes:
        devices: of each group; jobs: all that have come and not ended, in order of their coming.
        running: allocations of those that run; left: share of its work that each job has to do
            still; age_s: since each job came; restarts: how often each was moved or stopped.
        restart_s: what a job loses when it starts again or moves.
    """

    devices: tuple[int, ...]
    jobs: Mapping[int, ClusterJob]
    running: Mapping[int, Allocation]
    left: Mapping[int, float]
    age_s: Mapping[int, float]
    restarts: Mapping[int, int]
    restart_s: float

    @property
    def waiting(self) -> Iterator[int]:
        """Jobs that do not run, in order of their coming."""
        return (job for job in self.jobs if job not in self.running)

    def left_s(self, job: int, allocation: Allocation) -> float:
        """What a job would still take on an allocation, s."""
        spec = self.jobs[job]
        return self.left[job] * spec.work / spec.rates[allocation]


class SchedulingPolicy(ABC):
    """Decides who runs on what.

    Attributes:
        periodic: it decides every round too, not only when a job comes or ends.
    """

    name: ClassVar[str]
    periodic: ClassVar[bool] = False

    @abstractmethod
    def allocate(self, view: ClusterView, *, tick: bool) -> dict[int, Allocation]:
        """What every job that runs from now on has; the others wait. ``tick``: a round is over."""


POLICIES: Registry[SchedulingPolicy] = Registry(
    "silicast.workflow.scheduling.policies", "policy", "workload.scheduler.policy"
)


def policy_of(name: str) -> SchedulingPolicy:
    """A fresh policy: it may remember its decisions.

    Raises:
        SilicastError: there is none of that name.
    """
    return type(POLICIES.named(name))()


def free_devices(view: ClusterView, allocations: Mapping[int, Allocation]) -> list[int]:
    """Devices of each group that no job has."""
    free = list(view.devices)
    for group, count in allocations.values():
        free[group] -= count
    return free


def quickest_that_fits(rates: Mapping[Allocation, float], free: Sequence[int]) -> Allocation | None:
    """The allocation on which a job is the quickest, of those that are free; the first of equals.

    >>> quickest_that_fits({(0, 1): 1.0, (1, 1): 2.0}, [1, 0])
    (0, 1)
    """
    fitting = [each for each in rates if each[1] <= free[each[0]]]
    return max(fitting, key=lambda each: rates[each], default=None)


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
    allocations: dict[int, Allocation] = {}
    heap: list[tuple[float, int, Allocation, Allocation | None]] = []

    def offer(job: int) -> None:
        before = allocations.get(job)
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
            return _exchanged(options, allocations, utility)
        while heap:
            _, job, allocation, before = heapq.heappop(heap)
            if allocations.get(job) != before or _further(allocation, before) > free[allocation[0]]:
                continue
            if before is not None:
                free[before[0]] += before[1]
            free[allocation[0]] -= allocation[1]
            allocations[job] = allocation
            offer(job)


def _further(allocation: Allocation, before: Allocation | None) -> int:
    """Devices that a job takes beyond those of the same group that it has."""
    same = before is not None and before[0] == allocation[0]
    return allocation[1] - before[1] if before is not None and same else allocation[1]


def _exchanged(
    options: Mapping[int, Sequence[Allocation]],
    allocations: dict[int, Allocation],
    utility: Utility,
) -> dict[int, Allocation]:
    """Exchanges allocations of two groups between pairs of jobs while that raises the sum."""
    jobs, changed = list(allocations), True
    while changed:
        changed = False
        for number, job in enumerate(jobs):
            for other in jobs[number + 1 :]:
                mine, theirs = allocations[job], allocations[other]
                fits = theirs in options[job] and mine in options[other]
                if mine[0] == theirs[0] or not fits:
                    continue
                before = utility(job, mine) + utility(other, theirs)
                if utility(job, theirs) + utility(other, mine) > before + 1e-12 * abs(before):
                    allocations[job], allocations[other] = theirs, mine
                    changed = True
    return allocations
