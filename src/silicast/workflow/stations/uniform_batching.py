"""Batches of requests of one size, for graphs that are compiled for it.

One pass runs at a time; when it has ended, those that wait and are of the size of the one that
came first form the next, in order of arrival, up to the largest batch. Nothing is padded.
"""

from __future__ import annotations

from typing import ClassVar, final

from silicast.serving.simulation.scheduler import Scheduler, StepPlan


@final
class UniformBatching(Scheduler):
    """Batches of requests alike."""

    name: ClassVar[str] = "uniform-batching"
    one_pass: ClassVar[bool] = True

    def schedule(self) -> StepPlan:
        group, plan, self.ask_ns = self.group, self.empty(), -1
        if group.running or not group.waiting:
            return plan
        todo, most = group.sequences.todo, group.limits.sequences
        size = int(todo[group.waiting[0]])
        chosen: list[int] = []
        passed: list[int] = []
        while group.waiting and len(chosen) < most:
            request = group.waiting.popleft()
            (chosen if int(todo[request]) == size else passed).append(request)
        group.waiting.extendleft(reversed([*chosen, *passed]))
        for _ in chosen:
            self.admit(plan, size)
        return plan
