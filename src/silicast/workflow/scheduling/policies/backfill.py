"""EASY backfilling (Lifka, 1995): first come, first served, and later jobs fill what is idle as
long as they do not delay the first that waits. How long jobs take is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from silicast.workflow.scheduling.policies.fifo import Fifo
from silicast.workflow.scheduling.policy import (
    POLICIES,
    Allocation,
    ClusterView,
    SchedulingPolicy,
    free_devices,
)


@POLICIES.register
@final
class Backfill(SchedulingPolicy):
    """The first job that waits has a reservation; what runs is never stopped."""

    name: ClassVar[str] = "backfill"

    def allocate(self, view: ClusterView, *, tick: bool) -> dict[int, Allocation]:
        given = Fifo().allocate(view, tick=tick)
        waiting = [job for job in view.jobs if job not in given]
        if not waiting:
            return given
        reserved, start_s, spare = self._reservation(view, given, waiting[0])
        free = free_devices(view, given)
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
                given[job] = allocation
                free[group] -= count
                break
        return given

    def _reservation(
        self, view: ClusterView, given: Mapping[int, Allocation], job: int
    ) -> tuple[int, float, int]:
        """Where a job starts the earliest, in how many seconds, and devices that it leaves then."""
        best: tuple[float, int, int] | None = None
        for group, count in view.jobs[job].rigid:
            free = free_devices(view, given)[group]
            ends = sorted(
                (view.left_s(other, each), each[1])
                for other, each in given.items()
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
