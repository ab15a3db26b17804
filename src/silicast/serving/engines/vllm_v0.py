"""vLLM, version 0: prompts first, as many as fit into one step; else all others decode.

Source: vllm/core/scheduler.py and block_manager.py (0.6.6), ``_schedule_default``. Prompts run
whole. One is admitted while the step's budget, sequences and blocks last, of which a hundredth
(``watermark``) stays free; where a decoding sequence misses a block, the one admitted last is
preempted and computed again, before all that wait. The engine swaps groups of several sequences
(beam search) alone; those are not modelled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from silicast.serving.scheduler import Group, Scheduler, StepPlan, Switch, register


@register
@final
class VllmV0(Scheduler):
    """Prefill first, preemption by recomputation."""

    name: ClassVar[str] = "vllm-v0"
    switches: ClassVar[Mapping[str, Switch]] = {"watermark": 0.01}

    def __init__(self, group: Group) -> None:
        super().__init__(group)
        self._kept = int(self.number("watermark") * group.limits.blocks)

    def schedule(self) -> StepPlan:
        """See :class:`~silicast.serving.scheduler.Scheduler`."""
        group, own = self.group, self.group.sequences
        plan, self._preempted = self.empty(), False
        budget = group.limits.step_tokens
        while group.waiting and len(group.running) < group.limits.sequences:
            request = group.waiting[0]
            reused, shared = group.lookup(request)
            todo = int(own.todo[request])
            new = todo - reused
            kept = self._kept if group.running else 0  # what the engine would refuse runs alone
            if new > budget and plan.prefill:
                break
            if group.layout.of_one(todo) - shared + kept > group.free:
                break
            self.admit(plan, new, reused)
            group.publish(request, todo)
            budget -= new
        if not plan.prefill:
            self.decode(plan)
        return plan
