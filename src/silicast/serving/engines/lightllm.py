"""LightLLM: new prompts every so many decode steps, if the peak of all stays within the cache.

Source: LightLLM (ModelTC), server/router: ``ReqQueue._can_add_new_req`` and ``RouterManager._step``
(1.x, before it learnt to pause). Prompts run whole, in steps of their own. After a step of prompts
all decode; a look at the queue follows every ``max_wait_tokens`` steps. A request joins if the
most that all of them will ever hold at the same time, each growing to its limit and then leaving,
fits; so nothing is preempted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

import numpy as np

from silicast.serving.simulation.scheduler import QueueGroup, Scheduler, StepPlan, Switch, register


@register
@final
class LightLlm(Scheduler):
    """Prefill between decodes, admission by the peak to come."""

    name: ClassVar[str] = "lightllm"
    switches: ClassVar[Mapping[str, Switch]] = {"max_wait_tokens": 10}

    def __init__(self, group: QueueGroup) -> None:
        super().__init__(group)
        self._period = max(int(self.number("max_wait_tokens")), 1)
        self._left = 0

    def schedule(self) -> StepPlan:
        group = self.group
        plan, self._preempted = self.empty(), False
        self._left -= self.decoded()
        if self._left < 0:  # looks at an empty queue lie behind
            self._left %= self._period
        if not group.running or self._left == 0:
            self._admit(plan)
            self._left = self._period
        if not plan.prefill:
            self.decode(plan)
        self.watch(plan)
        return plan

    def steady(self, plan: StepPlan) -> int:
        """See :class:`~silicast.serving.simulation.scheduler.Scheduler`: up to the next look at
        the queue.
        """
        steps = super().steady(plan)
        return min(steps, self._left - 1) if self.group.waiting else steps

    def _admit(self, plan: StepPlan) -> None:
        group, sequences = self.group, self.group.sequences
        while group.waiting and len(group.running) < group.limits.sequences:
            request = group.waiting[0]
            reused, shared = group.lookup(request)
            new = int(sequences.todo[request]) - reused
            if plan.prefill and plan.tokens + new > group.limits.step_tokens:
                break
            if self._peak([*group.running, request]) - shared > group.limits.blocks:
                break
            if group.layout.of_one(int(sequences.todo[request])) - shared > group.free:
                break
            self.admit(plan, new, reused)
            group.publish(request, reused + new)

    def _peak(self, requests: list[int]) -> int:
        """Most blocks that sequences hold at the same time, the one with the most to come last."""
        sequences, rows = self.group.sequences, np.array(requests)
        left = np.maximum(sequences.limit[rows] - sequences.made[rows], 0)
        order = np.argsort(-left, kind="stable")
        left, there = left[order], (sequences.prompt[rows] + sequences.made[rows])[order]
        size = self.group.layout.block_tokens
        tokens = np.cumsum(there + size - 1) + left * np.arange(1, len(left) + 1)
        return int(tokens.max()) // size
