"""vLLM, version 0: prompts first, as many as fit into one step; else all others decode.

Source: vllm/core/scheduler.py and block_manager.py (0.6.6), ``_schedule_default``. Prompts run
whole. One is admitted while the step's budget, sequences and blocks last, of which a hundredth
(``watermark``) stays free; where a decoding sequence misses a block, the one admitted last is
preempted and computed again, before all that wait.

Options: ``preemption_mode`` (``recompute``; ``swap``: a preempted sequence leaves its blocks in the
host's memory, and no prompt starts before all such ones are back) and ``swap_space`` (GiB a device
there). Blocks are copied before the step, one by one and layer by layer (worker/cache_engine.py,
csrc/cache_kernels.cu), which holds the step up. Without room the engine would stop; here the
sequence is computed again. Unless it is told so the engine swaps groups of several sequences (beam
search) alone; those are not modelled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from silicast.serving.kv.host_cache import GIB
from silicast.serving.simulation.scheduler import QueueGroup, Scheduler, StepPlan, Switch, register


@register
@final
class VllmV0(Scheduler):
    """Prefill first, preemption by recomputation or by swapping."""

    name: ClassVar[str] = "vllm-v0"
    switches: ClassVar[Mapping[str, Switch]] = {
        "watermark": 0.01,
        "preemption_mode": ("recompute", "swap"),
        "swap_space": 4.0,
    }

    def __init__(self, group: QueueGroup) -> None:
        super().__init__(group)
        self._kept = int(self.number("watermark") * group.limits.blocks)
        if self.word("preemption_mode") == "swap":
            group.swap_to_host(
                group.host.blocks(self.number("swap_space") * GIB * group.host.ranks)
            )

    def give_way(self, plan: StepPlan, request: int) -> None:
        blocks = self.group.swap_out(request)
        if blocks:
            plan.copy_ns += self.group.host.time_ns(blocks, singly=True)
        else:
            self.group.preempt(request)

    def schedule(self) -> StepPlan:
        group, sequences = self.group, self.group.sequences
        plan, self._preempted = self.empty(), False
        budget = group.limits.step_tokens
        while self._takes_prompts():
            request = group.waiting[0]
            reused, shared = group.lookup(request)
            todo = int(sequences.todo[request])
            new = todo - reused
            reserve = self._kept if group.running else 0  # what the engine would refuse runs alone
            if new > budget and plan.prefill:
                break
            if group.layout.of_one(todo) - shared + reserve > group.free:
                break
            self.admit(plan, new, reused)
            group.publish(request, todo)
            budget -= new
        if not plan.prefill:
            self.decode(plan)
            if not self._preempted:
                self._swap_in(plan)
        return plan

    def _takes_prompts(self) -> bool:
        group = self.group
        return bool(group.waiting) and not group.swapped and self._has_place()

    def _has_place(self) -> bool:
        return len(self.group.running) < self.group.limits.sequences

    def _swap_in(self, plan: StepPlan) -> None:
        group = self.group
        while group.swapped and self._has_place():
            blocks = group.swap_in(self._kept if group.running else 0)
            if not blocks:
                return
            plan.decode = [*plan.decode, group.running[-1]]
            plan.copy_ns += group.host.time_ns(blocks, singly=True)
