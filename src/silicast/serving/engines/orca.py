"""Orca: sequences join and leave the batch at every step, with room for their longest output.

Source: Orca (OSDI 2022), algorithm 1: in order of arrival, up to ``max_num_seqs`` at once, a
request joins if the cache has room for its prompt and all the tokens that its client allows, which
it takes at once; so nothing is preempted. Prompts run whole, beside decoding sequences.
"""

from __future__ import annotations

from typing import ClassVar

from silicast.serving.simulation.scheduler import Scheduler, StepPlan, register


@register
class Orca(Scheduler):
    """Iteration-level batching with reservation."""

    name: ClassVar[str] = "orca"

    def schedule(self) -> StepPlan:
        group, sequences = self.group, self.group.sequences
        plan = self.empty()
        self.decode(plan)
        while group.waiting and len(group.running) < group.limits.sequences:
            request = group.waiting[0]
            reused, shared = group.lookup(request)
            most = int(sequences.prompt[request] + sequences.limit[request])
            new = int(sequences.todo[request]) - reused
            if plan.tokens and plan.tokens + new > group.limits.step_tokens:
                break
            if group.layout.of_one(most) - shared > group.free:
                break
            self.admit(plan, new, reused, hold=most)
            group.publish(request, reused + new)
        return plan
