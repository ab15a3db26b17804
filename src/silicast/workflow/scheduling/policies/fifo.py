"""First come, first served: a job that does not fit holds back all behind it."""

from __future__ import annotations

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
        given = dict(view.running)
        free = free_devices(view, given)
        for job in list(view.waiting):
            allocation = quickest_that_fits(view.jobs[job].rigid, free)
            if allocation is None:
                break
            given[job] = allocation
            free[allocation[0]] -= allocation[1]
        return given
