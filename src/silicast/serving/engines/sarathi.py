"""Sarathi-Serve: decodes first, then one budget of tokens for chunks of prompts.

Source: Sarathi-Serve (OSDI 2024) and its scheduler, core/scheduler/sarathi_scheduler.py: a step has
a token of each decoding sequence and, up to the chunk size (``max_num_batched_tokens``, 512 there),
the next tokens of prompts under way, then of new ones. A new prompt takes the blocks of all its
tokens at once, of which a hundredth (``watermark``) stays free; where a decoding sequence misses a
block, the one admitted last is preempted and computed again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from silicast.serving.simulation.scheduler import QueueGroup, Scheduler, StepPlan, Switch, register


@register
@final
class Sarathi(Scheduler):
    """Chunked prefill beside decode."""

    name: ClassVar[str] = "sarathi"
    switches: ClassVar[Mapping[str, Switch]] = {"watermark": 0.01}

    def __init__(self, group: QueueGroup) -> None:
        super().__init__(group)
        self._kept = int(self.number("watermark") * group.limits.blocks)

    def schedule(self) -> StepPlan:
        group, sequences = self.group, self.group.sequences
        plan, self._preempted = self.empty(), False
        self.decode(plan)
        budget = group.limits.step_tokens - plan.tokens
        for request in list(group.filling):
            if request in group.flying or budget < 1:
                continue
            new = min(int(sequences.todo[request]) - sequences.at_cached[request], budget)
            if self.run(plan, request, new):
                budget -= new
                group.publish(request, sequences.at_cached[request] + new)
        while group.waiting and budget > 0 and len(group.running) < group.limits.sequences:
            request = group.waiting[0]
            reused, shared = group.lookup(request)
            todo = int(sequences.todo[request])
            reserve = self._kept if group.running else 0
            if group.layout.of_one(todo) - shared + reserve > group.free:
                break
            new = min(todo - reused, budget)
            self.admit(plan, new, reused, hold=todo)
            group.publish(request, reused + new)
            budget -= new
        return plan
