"""TensorRT-LLM: in-flight batching under a capacity policy.

Source: TensorRT-LLM's batch manager, capacityScheduler.cpp and microBatchScheduler.cpp, as 1.x has
them (PyTorch backend: _torch/pyexecutor/scheduler.py), and its documentation of
``capacity_scheduler_policy``. A step has a token of each sequence in generation, then contexts in
order of arrival while ``max_num_tokens`` and ``max_batch_size`` last.

- ``GUARANTEED_NO_EVICT`` (the default): a request starts if the cache can hold it, and all that
  run, at their longest; nothing is ever paused.
- ``MAX_UTILIZATION``: it starts if its context and a step ahead fit; where blocks are missing
  later, the one that started last is paused, and computed again before others that wait.

Option ``enable_chunked_prefill`` (off by default): contexts are cut to whole blocks; without it a
context runs in one step, alone if it is longer than ``max_num_tokens``, which the engine refuses.

Groups of attention_dp with ``enable_balance`` (of its ``attention_dp_config``; off by default) take
contexts together: while all of them generate and one has no context to run, the others hold theirs,
for ``timeout_iters`` steps at most, counted from the last time that contexts could run
(_torch/pyexecutor/py_executor.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, final

from silicast.serving.simulation.scheduler import (
    Lockstep,
    QueueGroup,
    Scheduler,
    StepPlan,
    Switch,
    register,
)


@register
@final
class TrtLlm(Scheduler):
    """In-flight batching."""

    name: ClassVar[str] = "trtllm"
    switches: ClassVar[Mapping[str, Switch]] = {
        "capacity_scheduler_policy": ("GUARANTEED_NO_EVICT", "MAX_UTILIZATION"),
        "enable_chunked_prefill": 0,
        "enable_balance": 0,
        "timeout_iters": 50,
    }

    def __init__(self, group: QueueGroup) -> None:
        super().__init__(group)
        self._evicts = self.word("capacity_scheduler_policy") == "MAX_UTILIZATION"
        self._chunks = bool(self.number("enable_chunked_prefill"))

    def together(self, groups: int) -> Lockstep | None:
        held = int(self.number("timeout_iters")) - 1
        if groups == 1 or not self.number("enable_balance") or held < 1:
            return None
        return Balance(held)

    def schedule(self) -> StepPlan:
        group, sequences = self.group, self.group.sequences
        plan, self._preempted = self.empty(), False
        self.decode(plan)
        if group.holding:
            return plan
        budget = group.limits.step_tokens - plan.tokens
        for request in list(group.filling):
            if request in group.flying:
                continue
            new = self._cut(
                int(sequences.todo[request]) - sequences.at_cached[request], budget, plan
            )
            if new > 0 and self.run(plan, request, new):
                budget -= new
                group.publish(request, sequences.at_cached[request] + new)
        if not self._preempted:
            self._admit(plan, budget)
        return plan

    def _admit(self, plan: StepPlan, budget: int) -> None:
        group, sequences = self.group, self.group.sequences
        promised = -1
        while group.waiting and len(group.running) < group.limits.sequences:
            request = group.waiting[0]
            reused, shared = group.lookup(request)
            new = self._cut(int(sequences.todo[request]) - reused, budget, plan)
            if new < 1:
                return
            if self._evicts:
                wanted, promised = int(sequences.todo[request]) + 1, 0
            else:
                wanted = int(sequences.prompt[request] + sequences.limit[request])
                promised = group.promised() if promised < 0 else promised
            blocks = group.layout.of_one(wanted)
            if blocks - shared + promised > group.free:
                return
            self.admit(plan, new, reused, hold=int(sequences.todo[request]))
            group.publish(request, reused + new)
            if not self._evicts:
                promised += max(blocks - sequences.at_held[request], 0)
            budget -= new

    def _cut(self, new: int, budget: int, plan: StepPlan) -> int:
        """Tokens of a context that the step takes; 0 = none."""
        if new <= budget:
            return new
        if self._chunks:
            size = self.group.layout.block_tokens
            return budget // size * size
        return 0 if plan.tokens else new


@final
class Balance(Lockstep):
    """Contexts of all groups start together."""

    def releases(self, groups: Sequence[QueueGroup]) -> bool:
        return all(map(_has_context, groups)) or not all(map(_generates, groups))


def _has_context(group: QueueGroup) -> bool:
    room = len(group.running) < group.limits.sequences
    return bool(group.filling) or (bool(group.waiting) and room)


def _generates(group: QueueGroup) -> bool:
    return len(group.running) > len(group.filling)
