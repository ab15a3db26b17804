"""Sia (Jayaram Subramanya et al., SOSP 2023): devices by goodput, of unequal kinds.

Every round, and when a job comes or ends, each job gets a configuration (group, count) such that
the sum of normalised goodputs to the power of -1/2 is the least, with a penalty for each job that
waits; here by steps of the largest gain and exchanges instead of Sia's integer program. A job that
would move counts less, by the share of its time that moves have taken.
"""

from __future__ import annotations

import math
from typing import ClassVar, final

from silicast.workflow.scheduling.policy import (
    POLICIES,
    Allocation,
    ClusterView,
    SchedulingPolicy,
    best_shares,
)

POWER = -0.5
PENALTY = 1.1
"""Of a job that waits; the least configuration of a job counts 1 (section 3.4 of the paper)."""

LEAST = 1e-3
"""Share of its goodput that a job keeps when it moves, at least."""


@POLICIES.register
@final
class Sia(SchedulingPolicy):
    """Configurations by goodput, over groups that are unlike."""

    name: ClassVar[str] = "sia"
    periodic: ClassVar[bool] = True

    def allocate(self, view: ClusterView, *, tick: bool) -> dict[int, Allocation]:
        del tick
        least = {job: min(spec.rates.values()) for job, spec in view.jobs.items()}

        def utility(job: int, allocation: Allocation | None) -> float:
            if allocation is None:
                return -PENALTY
            goodput = view.jobs[job].rates[allocation] / least[job]
            if view.running.get(job, allocation) != allocation and view.left[job] < 1.0:
                age, moves = view.age_s[job], view.restarts[job]
                efficiency = (age - moves * view.restart_s) / (age + view.restart_s)
                goodput *= max(efficiency, LEAST)
            return -math.pow(goodput, POWER)

        options = {job: list(spec.rates) for job, spec in view.jobs.items()}
        return best_shares(options, view.devices, utility)
