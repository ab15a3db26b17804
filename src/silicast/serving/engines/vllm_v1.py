"""vLLM, version 1: one budget of tokens a step, for running sequences first, then for new ones.

Source: vllm/v1/core/sched/scheduler.py (0.19). A step gives every running sequence the tokens that
it lacks (one in decode, the rest of the prompt in prefill) while the budget lasts; where a block is
missing, the sequence that was admitted last is preempted and computed again later. Waiting ones
follow in order of arrival, unless one was just preempted, while budget, sequences and blocks last;
a prompt must fit into the free blocks as a whole (``scheduler_reserve_full_isl``).
"""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from silicast.serving.scheduler import Scheduler, StepPlan, register


@register
@final
class VllmV1(Scheduler):
    """Unified token budget, chunked prefill, preemption by recomputation."""

    name: ClassVar[str] = "vllm-v1"
    _preempted = False

    def schedule(self) -> StepPlan:
        """See :class:`~silicast.serving.scheduler.Scheduler`."""
        group, own = self.group, self.group.sequences
        plan, preempted = StepPlan([], []), False
        decoding = list(group.decoding())
        filling = [each for each in group.filling if each not in group.flying]
        budget = group.limits.step_tokens
        if decoding:
            budget -= self._decode(plan, decoding[:budget])
            preempted = len(plan.decode) < len(decoding)
        for request in filling:
            if request not in group.filling or budget < 1:  # preempted meanwhile
                continue
            new = min(int(own.todo[request] - own.cached[request]), budget)
            while not group.grow(request, int(own.cached[request]) + new):
                last = self._last(plan)
                group.preempt(last)
                preempted = True
                if last == request:
                    break
            else:
                plan.prefill.append((request, new))
                budget -= new
        if not preempted:
            self._admit(plan, budget)
        self._preempted = preempted
        return plan

    def steady(self, plan: StepPlan) -> int:  # noqa: ARG002
        """See :class:`~silicast.serving.scheduler.Scheduler`: the next step may admit again."""
        return 0 if self._preempted else 1 << 40

    def _decode(self, plan: StepPlan, decoding: list[int]) -> int:
        """Gives each a token; returns how many have one."""
        group, own = self.group, self.group.sequences
        places = np.array(decoding)
        wanted = group.layout.of_tokens(own.cached[places] + 1)
        more = int((wanted - own.held[places]).sum())
        if more <= group.free:
            own.held[places] = np.maximum(wanted, own.held[places])
            group.free -= more
            plan.decode = decoding
            return len(decoding)
        gone: set[int] = set()
        for request in decoding:
            if request in gone:
                continue
            while not group.grow(request, int(own.cached[request]) + 1):
                last = self._last(plan)
                group.preempt(last)
                gone.add(last)
                if last == request:
                    break
            else:
                plan.decode.append(request)
        return len(plan.decode)

    def _last(self, plan: StepPlan) -> int:
        """The sequence to preempt: admitted last, and in no step under way."""
        last = next(each for each in reversed(self.group.running) if each not in self.group.flying)
        if last in plan.decode:
            plan.decode.remove(last)
        plan.prefill = [pair for pair in plan.prefill if pair[0] != last]
        return last

    def _admit(self, plan: StepPlan, budget: int) -> None:
        group, own = self.group, self.group.sequences
        while group.waiting and budget > 0 and len(group.running) < group.limits.sequences:
            request = group.waiting[0]
            todo = int(own.todo[request])
            if group.layout.of_one(todo) > group.free:
                break
            new = min(todo, budget)
            group.grow(request, new)
            group.waiting.popleft()
            group.start(request)
            plan.prefill.append((request, new))
            budget -= new
