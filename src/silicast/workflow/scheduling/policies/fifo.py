"""Policies of rigid jobs, whose numbers of devices are fixed.

First come, first served: a job that does not fit holds back all behind it. Gang scheduling
(Ousterhout, 1982): all devices of a job at once, in slices of time by turns. EASY backfilling
(Lifka, 1995): later jobs fill what is idle as long as they do not delay the first that waits; how
long jobs take is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from silicast.workflow.scheduling.policy import (
    POLICIES,
    Allocation,
    ClusterView,
    SchedulingPolicy,
    free_devices,
    quickest_that_fits,
)


@POLICIES.register
@final
class Fifo(SchedulingPolicy):
    """Each job keeps what it started on until it ends."""

    name: ClassVar[str] = "fifo"

    def allocate(self, view: ClusterView, *, tick: bool) -> dict[int, Allocation]:
        del tick
        allocations = dict(view.running)
        free = free_devices(view, allocations)
        for job in list(view.waiting):
            allocation = quickest_that_fits(view.jobs[job].rigid, free)
            if allocation is None:
                break
            allocations[job] = allocation
            free[allocation[0]] -= allocation[1]
        return allocations


@POLICIES.register
@final
class Gang(SchedulingPolicy):
    """When a round is over, those that waited longest since they last ran go first; between
    rounds, what is free goes to the first that fits.
    """

    name: ClassVar[str] = "gang"
    periodic: ClassVar[bool] = True

    def __init__(self) -> None:
        self._turn: dict[int, int] = {}
        self._turns = 0

    def allocate(self, view: ClusterView, *, tick: bool) -> dict[int, Allocation]:
        allocations: dict[int, Allocation] = {} if tick else dict(view.running)
        free = free_devices(view, allocations)
        order = sorted(view.jobs, key=lambda job: self._turn.get(job, -1))  # stable: then by coming
        for job in order:
            if job in allocations:
                continue
            rates = view.jobs[job].rigid
            held = view.running.get(job)
            stays = held is not None and held[1] <= free[held[0]]
            allocation = held if stays else quickest_that_fits(rates, free)
            if allocation is not None:
                allocations[job] = allocation
                free[allocation[0]] -= allocation[1]
        if tick:
            self._turns += 1
        self._turn = {
            job: self._turns if job in allocations else self._turn.get(job, -1) for job in view.jobs
        }
        return allocations


@POLICIES.register
@final
class Backfill(SchedulingPolicy):
    """The first job that waits has a reservation; what runs is never stopped."""

    name: ClassVar[str] = "backfill"

    def allocate(self, view: ClusterView, *, tick: bool) -> dict[int, Allocation]:
        allocations = Fifo().allocate(view, tick=tick)
        waiting = [job for job in view.jobs if job not in allocations]
        if not waiting:
            return allocations
        reserved, start_s, spare = self._reservation(view, allocations, waiting[0])
        free = free_devices(view, allocations)
        for job in waiting[1:]:
            rates = view.jobs[job].rigid
            for allocation in sorted(rates, key=lambda each: -rates[each]):
                group, count = allocation
                if count > free[group]:
                    continue
                ends_s = view.left_s(job, allocation)
                if group == reserved and ends_s > start_s:
                    if count > spare:
                        continue
                    spare -= count
                allocations[job] = allocation
                free[group] -= count
                break
        return allocations

    def _reservation(
        self, view: ClusterView, allocations: Mapping[int, Allocation], job: int
    ) -> tuple[int, float, int]:
        """Where a job starts the earliest, in how many seconds, and devices that it leaves then."""
        best: tuple[float, int, int] | None = None
        for group, count in view.jobs[job].rigid:
            free = free_devices(view, allocations)[group]
            ends = sorted(
                (view.left_s(other, each), each[1])
                for other, each in allocations.items()
                if each[0] == group
            )
            start_s = 0.0
            for end_s, freed in ends:
                if free >= count and end_s > start_s:
                    break
                free, start_s = free + freed, end_s
            if free >= count and (best is None or start_s < best[0]):
                best = start_s, group, free - count
        assert best is not None  # every job fits into the empty cluster
        return best[1], best[0], best[2]
