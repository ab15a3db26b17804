"""Static batching: a batch is formed, runs until its last sequence ends, and then the next is.

As the servers of FasterTransformer and of frameworks do it: whoever waits when the last batch has
ended forms the next, up to ``max_num_seqs``, each with room for its longest output. A sequence
that ends early leaves; its place stays empty.
"""

from __future__ import annotations

from typing import ClassVar, final

from silicast.serving.simulation.scheduler import Scheduler, StepPlan, register


@register
@final
class Static(Scheduler):
    """One batch after the other."""

    name: ClassVar[str] = "static"

    def schedule(self) -> StepPlan:
        group, sequences = self.group, self.group.sequences
        plan = self.empty()
        if group.running:
            self.decode(plan)
            return plan
        while group.waiting and len(group.running) < group.limits.sequences:
            request = group.waiting[0]
            reused, shared = group.lookup(request)
            most = int(sequences.prompt[request] + sequences.limit[request])
            new = int(sequences.todo[request]) - reused
            if plan.prefill and plan.tokens + new > group.limits.step_tokens:
                break
            if group.layout.of_one(most) - shared > group.free:
                break
            self.admit(plan, new, reused, hold=most)
            group.publish(request, reused + new)
        return plan
