"""Pollux (Qiao et al., OSDI 2021): devices by goodput, as if they were all alike.

Every round, and when a job comes or ends, the mean of order -1 of the jobs' speed-ups over their
fair shares is made as large as it gets; here by steps of the largest gain instead of Pollux's
genetic search. Pollux knows one kind of devices: a job's speed is taken as the mean over groups,
and groups are filled in turn.
"""

from __future__ import annotations

from typing import ClassVar, final

from silicast.workflow.scheduling.policy import (
    POLICIES,
    Allocation,
    ClusterJob,
    ClusterView,
    SchedulingPolicy,
    best_shares,
)

LEAST = 1e-2
"""Speed-up of a job that waits: the mean of order -1 of a zero is zero whatever the others get."""


@POLICIES.register
@final
class Pollux(SchedulingPolicy):
    """Counts by goodput, groups in turn."""

    name: ClassVar[str] = "pollux"
    periodic: ClassVar[bool] = True

    def allocate(self, view: ClusterView, *, tick: bool) -> dict[int, Allocation]:
        del tick
        total = sum(view.devices)
        mean = {job: _over_groups(spec) for job, spec in view.jobs.items()}
        share = max(total // max(len(view.jobs), 1), 1)
        fair = {job: _at_most(rates, share) for job, rates in mean.items()}

        def utility(job: int, allocation: Allocation | None) -> float:
            if allocation is None:
                return -1.0 / LEAST
            rate = mean[job][allocation[1]]
            moved = _moves(view, job, allocation[1])
            return -fair[job] / (rate * (1.0 - moved))

        options = {job: [(0, count) for count in rates] for job, rates in mean.items()}
        counts = {job: each[1] for job, each in best_shares(options, [total], utility).items()}
        return _in_groups(view, counts)


def _over_groups(spec: ClusterJob) -> dict[int, float]:
    """Count of devices -> mean rate over the groups that a job can take so many of."""
    rates: dict[int, list[float]] = {}
    for (_, count), rate in spec.rates.items():
        rates.setdefault(count, []).append(rate)
    return {count: sum(each) / len(each) for count, each in sorted(rates.items())}


def _at_most(rates: dict[int, float], share: int) -> float:
    """The rate on a fair share: in proportion below the smallest count."""
    fitting = [count for count in rates if count <= share]
    least = min(rates)
    return rates[max(fitting)] if fitting else rates[least] * share / least


def _moves(view: ClusterView, job: int, count: int) -> float:
    """Share of its time that a job has lost to restarts, were it to change now too."""
    held = view.running.get(job)
    if held is None or held[1] == count or view.left[job] >= 1.0:
        return 0.0
    lost = view.restart_s * (view.restarts[job] + 1)
    return min(lost / max(view.age_s[job] + view.restart_s, 1e-9), 0.99)


def _in_groups(view: ClusterView, counts: dict[int, int]) -> dict[int, Allocation]:
    """Groups for counts: jobs stay where they are if they can, the largest go first."""
    free = list(view.devices)
    allocations: dict[int, Allocation] = {}
    moving = []
    for job, count in counts.items():
        held = view.running.get(job)
        if held is not None and held[1] == count:
            allocations[job] = held
            free[held[0]] -= count
        else:
            moving.append(job)
    for job in sorted(moving, key=lambda each: -counts[each]):
        rates = view.jobs[job].rates
        smaller = [n for n in sorted({n for _, n in rates}, reverse=True) if n <= counts[job]]
        for count in smaller:
            groups = [g for g in range(len(free)) if free[g] >= count and (g, count) in rates]
            if groups:
                allocations[job] = groups[0], count
                free[groups[0]] -= count
                break
    return allocations
