"""vLLM, version 1: one budget of tokens a step, for running sequences first, then for new ones.

Source: vllm/v1/core/sched/scheduler.py (0.19). A step gives every running sequence the tokens that
it lacks (one in decode, the rest of the prompt in prefill) while the budget lasts; where a block is
missing, the sequence that was admitted last is preempted and computed again later. Waiting ones
follow in order of arrival, unless one was just preempted, while budget, sequences and blocks last.

Options: ``reserve_full_isl`` (1: a prompt must fit into the free blocks as a whole),
``long_prefill_token_threshold`` (most new tokens of one prompt in a step; 0 = no limit),
``enable_chunked_prefill`` (0: a prompt runs in one step, alone if it is longer than the budget),
``kv_offloading_size`` (GiB of the host's memory, of all ranks: cached blocks are copied there too,
v1/kv_offload of 0.33; who finds a prefix there alone waits, with blocks of the device, until it is
loaded beside the steps of others).
The engine reads ``max_num_partial_prefills`` in its version 0 alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from silicast.serving.kv.host_cache import GIB
from silicast.serving.simulation.scheduler import QueueGroup, Scheduler, StepPlan, Switch, register


@register
@final
class VllmV1(Scheduler):
    """Unified token budget, chunked prefill, preemption by recomputation."""

    name: ClassVar[str] = "vllm-v1"
    switches: ClassVar[Mapping[str, Switch]] = {
        "reserve_full_isl": 1,
        "long_prefill_token_threshold": 0,
        "enable_chunked_prefill": 1,
        "kv_offloading_size": 0.0,
    }

    def __init__(self, group: QueueGroup) -> None:
        super().__init__(group)
        self._whole = bool(self.number("reserve_full_isl"))
        self._most = int(self.number("long_prefill_token_threshold")) or 1 << 40
        self._chunks = bool(self.number("enable_chunked_prefill"))

        if size := self.number("kv_offloading_size"):
            group.keep_on_host(group.host.blocks(size * GIB))

    def schedule(self) -> StepPlan:
        group, sequences = self.group, self.group.sequences
        plan, self._preempted = self.empty(), False
        budget = group.limits.step_tokens
        decoding = group.decoding()[: max(budget // plan.each, 1)]
        order = [each for each in group.filling if each not in group.flying]
        if len(order) < 2 and group.advance(decoding):  # the one in prefill was admitted last
            plan.decode = decoding
            budget -= plan.tokens
        else:
            order = [each for each in group.running if each not in group.flying]
        filling = set(group.filling)
        for request in order:
            if budget < 1:
                break
            if request not in filling:
                if budget >= plan.each or not plan.tokens:
                    budget -= plan.each * self.run(plan, request, plan.each, decodes=True)
                continue
            new = min(
                int(sequences.todo[request]) - sequences.at_cached[request], self._most, budget
            )
            if self.run(plan, request, new):
                budget -= new
                group.publish(request, sequences.at_cached[request] + new)
        if not self._preempted:
            self._admit(plan, budget)
        return plan

    def _admit(self, plan: StepPlan, budget: int) -> None:
        group, sequences = self.group, self.group.sequences
        while group.waiting and budget > 0 and len(group.running) < group.limits.sequences:
            request = group.waiting[0]
            reused, shared = group.lookup(request)
            todo = int(sequences.todo[request])
            new = min(todo - reused, self._most)
            if self._chunks:
                new = min(new, budget)
            elif new > budget and plan.tokens:
                break
            wanted = todo if self._whole else reused + new
            if group.layout.of_one(wanted) - shared > group.free:
                if not group.running and group.yield_fetched():
                    continue  # else those that were loaded would wait for one another
                break
            if group.fetch(request, reused):
                continue
            self.admit(plan, new, reused)
            group.publish(request, reused + new)
            budget -= new
