"""What every scheduling policy must hold, whatever the engine; a new one passes this battery."""

from __future__ import annotations

import numpy as np

from silicast.serving.kv.kv_pool import KvLayout
from silicast.serving.simulation.scheduler import (
    Limits,
    QueueGroup,
    Scheduler,
    SimulatedRequests,
    StepPlan,
    scheduler_named,
)
from silicast.serving.traffic.requests import Content

MOST_STEPS = 100_000


class Engine:
    """A policy whose steps take no time; arrivals and ends come from a random generator.

    Args:
        slack: outputs end at up to so many tokens before the limit that the client states.
    """

    def __init__(self, policy: str, seed: int, slack: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        rng, count = self.rng, int(self.rng.integers(1, 40))
        prompt = rng.integers(1, int(2.0 ** rng.uniform(1, 9)) + 1, count)
        limit = rng.integers(1, int(2.0 ** rng.uniform(0, 7)) + 1, count)
        self.goal = np.maximum(limit - rng.integers(0, slack + 1, count), 1)
        size = int(rng.choice([1, 16]))
        self.layout = KvLayout.plain(size)
        longest = -(-int((prompt + limit).max()) // size)
        content = shared_prompts(rng, prompt) if rng.random() < 0.7 else None
        options: dict[str, float | str] = {"ignore_eos": float(rng.random() < 0.5)}
        if policy == "sglang" and rng.random() < 0.3:
            options |= {"schedule_policy": "lpm", "enable_mixed_chunk": 1.0}
        if policy == "trtllm":
            options["enable_chunked_prefill"] = float(rng.random() < 0.5)
            if rng.random() < 0.5:
                options["capacity_scheduler_policy"] = "MAX_UTILIZATION"
        if policy == "vllm-v1" and rng.random() < 0.5:
            options |= {
                "long_prefill_token_threshold": float(rng.integers(0, 40)),
                "reserve_full_isl": float(rng.random() < 0.5),
                "enable_chunked_prefill": float(rng.random() < 0.7),
            }
        self.limits = Limits(
            int(rng.integers(1, 20)),
            int(rng.integers(16, 400)),
            longest + int(rng.integers(1, 2 * longest + 2)),
            prefix_caching=bool(rng.random() < 0.7),
            options=options,
        )
        self.sequences = SimulatedRequests(prompt, limit, content)
        self.group = QueueGroup(self.sequences, self.layout, self.limits)
        self.scheduler: Scheduler = scheduler_named(policy)(self.group)
        self.left, self.ended = list(range(count)), 0

    def run(self) -> list[tuple[tuple[tuple[int, int], ...], tuple[int, ...]]]:
        """Plans until every request has ended."""
        count, plans = len(self.goal), []
        for _ in range(MOST_STEPS):
            for _ in range(int(self.rng.integers(0, 4))):
                if self.left:
                    self.group.waiting.append(self.left.pop(0))
            plan = self.scheduler.schedule()
            plans.append((tuple(plan.prefill), tuple(plan.decode)))
            self.check(plan)
            self.apply(plan)
            self.check_blocks()
            if self.ended == count:
                return plans
            if not plan.tokens and not self.left:
                raise AssertionError("nothing runs, and requests wait")
        raise AssertionError("requests never end")

    def apply(self, plan: StepPlan) -> None:
        """The step has been run."""
        sequences, group, first = self.sequences, self.group, []
        for request, new in plan.prefill:
            sequences.cached[request] += new
            if sequences.cached[request] == sequences.todo[request]:
                group.filling.remove(request)
                first.append(request)
        for request in plan.decode:
            sequences.cached[request] += 1
        for request in [*first, *plan.decode]:
            sequences.made[request] += 1
            if sequences.made[request] >= self.goal[request]:
                group.release(request)
                group.running.remove(request)
                self.ended += 1

    def check(self, plan: StepPlan) -> None:
        """The plan is within its limits, and of sequences that run."""
        sequences, group, limits = self.sequences, self.group, self.limits
        named = [*plan.decode, *(request for request, _ in plan.prefill)]
        assert len(set(named)) == len(named), "a sequence twice in a step"
        assert set(named) <= set(group.running), "a step of sequences that do not run"
        assert not set(group.running) & set(group.waiting)
        assert len(group.running) <= limits.sequences
        assert all(new > 0 for _, new in plan.prefill)
        assert all(
            sequences.cached[each] + new <= sequences.todo[each] for each, new in plan.prefill
        )
        assert not set(plan.decode) & set(group.filling)
        over = plan.tokens > limits.step_tokens
        assert not over or len(plan.prefill) <= 1 or not plan.prefill, "over the budget"
        for request, new in [*plan.prefill, *((each, 1) for each in plan.decode)]:
            needed = self.layout.of_one(int(sequences.cached[request]) + new)
            assert sequences.held[request] >= needed, "tokens without a block"

    def check_blocks(self) -> None:
        """Free, private and shared blocks are all there are."""
        sequences, group = self.sequences, self.group
        held = sum(int(sequences.held[each]) for each in group.running)
        shared = 0
        if group.prefix is not None:
            held -= sum(group.prefix.blocks(each) for each in group.running)
            shared = group.prefix.referenced()
        assert group.free >= 0
        assert group.free + held + shared == self.limits.blocks
        idle = [each for each in range(len(sequences.held)) if each not in group.running]
        assert not sequences.held[idle].any()


def shared_prompts(rng: np.random.Generator, prompt: np.ndarray) -> Content:
    """Chains of a few segments that many prompts name, and outputs that later ones continue."""
    names: list[int] = []
    sizes: list[int] = []
    offsets = [0]
    lengths = rng.integers(1, 60, 8)
    for tokens in prompt.tolist():
        left = tokens
        for segment in rng.integers(0, 8, int(rng.integers(0, 5))).tolist():
            size = int(lengths[segment])
            if size > left:
                break
            names.append(segment)
            sizes.append(size)
            left -= size
        offsets.append(len(names))
    outputs = np.where(rng.random(len(prompt)) < 0.3, 100 + np.arange(len(prompt)), -1)
    return Content(np.array(names, dtype=np.int64), np.array(sizes, dtype=np.int64),
                   np.array(offsets), outputs)  # fmt: skip


def check_scheduler(policy: str, seed: int) -> None:
    """Blocks are conserved, no limit is passed, and every request ends, whether outputs come to
    their limits or end before.
    """
    Engine(policy, seed).run()
    Engine(policy, seed, slack=40).run()
