"""What a policy of a cluster's scheduler sees, and what it decides."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
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


def free_devices(view: ClusterView, given: Mapping[int, Allocation]) -> list[int]:
    """Devices of each group that no job has."""
    free = list(view.devices)
    for group, count in given.values():
        free[group] -= count
    return free


def quickest_that_fits(rates: Mapping[Allocation, float], free: Sequence[int]) -> Allocation | None:
    """The allocation on which a job is the quickest, of those that are free; the first of equals.

    >>> quickest_that_fits({(0, 1): 1.0, (1, 1): 2.0}, [1, 0])
    (0, 1)
    """
    fitting = [each for each in rates if each[1] <= free[each[0]]]
    return max(fitting, key=lambda each: rates[each], default=None)
