"""Gang scheduling (Ousterhout, 1982): all devices of a job at once, in slices of time by turns."""

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
        given: dict[int, Allocation] = {} if tick else dict(view.running)
        free = free_devices(view, given)
        order = sorted(view.jobs, key=lambda job: self._turn.get(job, -1))  # stable: then by coming
        for job in order:
            if job in given:
                continue
            rates = view.jobs[job].rigid
            held = view.running.get(job)
            stays = held is not None and held[1] <= free[held[0]]
            allocation = held if stays else quickest_that_fits(rates, free)
            if allocation is not None:
                given[job] = allocation
                free[allocation[0]] -= allocation[1]
        if tick:
            self._turns += 1
        self._turn = {
            job: self._turns if job in given else self._turn.get(job, -1) for job in view.jobs
        }
        return given
