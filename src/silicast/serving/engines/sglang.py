"""SGLang: prompts first, in steps of their own and in chunks; a guess at outputs admits them.

Source: sglang/srt/managers/scheduler.py, schedule_policy.py and schedule_batch.py (0.5.23). While
prompts wait and the batch is not full, a step runs prompts: the one whose chunk was cut, then new
ones, until the chunk (``chunked_prefill_size``) is used up. A request is admitted if the tokens
that are free or evictable, less what running ones may still generate, exceed its own need. Of what
a running request may generate at most, ``new_token_ratio`` is reckoned with: it starts at 0.7
times ``schedule_conservativeness``, falls to 0.14 of that over 600 decode steps, and is all of it
where a client ignores the end of sequence, as benchmark clients do (``ignore_eos``). Once a request
was refused for lack of tokens the batch is full until a sequence has left. Where decode misses
pages, requests with the fewest tokens generated (of these, the longest prompts) are retracted: they
wait behind all others, and what they generated is computed again.

Further options: ``schedule_policy`` (``fcfs``; ``lpm``: longest cached prefix first, up to 128
waiting requests), ``enable_mixed_chunk`` (1: decodes join the steps of prompts),
``clip_max_new_tokens``, ``scheduler_recv_interval`` (the scheduler looks for new requests every so
many decode steps, and whenever nothing runs). Prompts are there for others once they were computed.

``enable_hierarchical_cache`` (1: cached pages have a second place in the host's memory), of
``hicache_ratio`` times the pages of the device, or ``hicache_size`` GB a device; by
``hicache_write_policy`` pages are copied there when they are cached (``write_through``), when a
second request has them (``write_through_selective``) or when the device evicts them
(``write_back``). A prefix that is there alone is loaded layer by layer while the step of its prompt
runs (managers/cache_controller.py), which takes that long at least.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, final

import numpy as np

from silicast.serving.simulation.scheduler import (
    Lockstep,
    QueueGroup,
    Scheduler,
    StepPlan,
    Switch,
    register,
)

_DECAY_STEPS = 600
_RETRACT_STEPS = 20
_SORTED = 128
_HITS = {"write_through": 1, "write_through_selective": 2, "write_back": 0}
"""Policy -> requests that have had a page before the host gets it; 0 = when it is evicted."""
_IN_BATCH = 32
"""Tokens of a prefix from which on a request waits for another of the queue that has it too."""


@register
@final
class Sglang(Scheduler):
    """Prefill first, admission by an estimate that adapts, retraction."""

    name: ClassVar[str] = "sglang"
    switches: ClassVar[Mapping[str, Switch]] = {
        "schedule_policy": ("fcfs", "lpm"),
        "schedule_conservativeness": 1.0,
        "ignore_eos": 1,
        "enable_mixed_chunk": 0,
        "clip_max_new_tokens": 4096,
        "scheduler_recv_interval": 1,
        "enable_hierarchical_cache": 0,
        "hicache_ratio": 2.0,
        "hicache_size": 0.0,
        "hicache_write_policy": tuple(_HITS),
    }

    def __init__(self, group: QueueGroup) -> None:
        super().__init__(group)
        conservative = self.number("schedule_conservativeness")
        self._first = min(0.7 * conservative, 1.0)
        self._least = self._first * 0.14
        self._ratio = self._first
        self._exact = bool(self.number("ignore_eos"))
        self._mixed = bool(self.number("enable_mixed_chunk"))
        self._most = int(self.number("clip_max_new_tokens"))
        self._longest_first = self.word("schedule_policy") == "lpm"
        self.in_order = not self._longest_first
        if self.number("enable_hierarchical_cache"):
            blocks = int(group.limits.blocks * self.number("hicache_ratio"))
            if size := self.number("hicache_size"):
                blocks = group.host.blocks(size * 1e9 * group.host.ranks)
            group.keep_on_host(blocks, _HITS[self.word("hicache_write_policy")])
        self._full, self._count = False, 0
        self._fresh: list[tuple[int, int]] = []

    def together(self, groups: int) -> Lockstep | None:  # noqa: ARG002
        every = int(self.number("scheduler_recv_interval"))
        return Polls(every) if every > 1 else None

    def schedule(self) -> StepPlan:
        group, plan = self.group, self.empty()
        self._arrive()
        if not group.holding and (group.filling or (group.waiting and not self._full)):
            self._prefill(plan)
        if not plan.prefill or self._mixed:
            self._decode(plan)
        self._count = len(group.running)
        self._fresh = [(each, group.sequences.at_cached[each] + n) for each, n in plan.prefill]
        self.watch(plan)
        return plan

    def steady(self, plan: StepPlan) -> int:  # noqa: ARG002
        group = self.group
        if group.holding:  # prompts do not start anyway; who was retracted left room for others
            retracted = any(group.sequences.preemptions[each] for each in group.waiting)
            return 0 if retracted else 1 << 40
        return 1 << 40 if self._full or not group.waiting else 0

    def _arrive(self) -> None:
        """What the steps since the last plan have changed."""
        group, sequences = self.group, self.group.sequences
        for request, tokens in self._fresh:
            if sequences.at_held[request]:
                group.publish(request, tokens)
        decay = (self._first - self._least) / _DECAY_STEPS
        self._ratio = max(self._ratio - decay * self.decoded(), self._least)
        if len(group.running) < self._count:
            self._full = False
        if not group.running:
            self._full, self._ratio = False, self._first

    def _to_come(self, requests: list[int]) -> int:
        """Tokens that running sequences are reckoned to generate yet."""
        sequences, rows = self.group.sequences, np.array(requests, dtype=np.int64)
        left = np.clip(sequences.limit[rows] - sequences.made[rows], 0, self._most)
        return int(left.sum() * (1.0 if self._exact else self._ratio))

    def _prefill(self, plan: StepPlan) -> None:
        group, sequences = self.group, self.group.sequences
        page = group.layout.block_tokens
        decoding = group.decoding()
        chunk = group.limits.step_tokens - (len(decoding) * plan.each if self._mixed else 0)
        reckoned = self._to_come([each for each in group.running if each not in group.filling])
        for request in list(group.filling):
            if request in group.flying:
                return  # the batch before holds it
            room = (
                group.free * page + sequences.at_held[request] * page - sequences.at_cached[request]
            )
            new = min(int(sequences.todo[request]) - sequences.at_cached[request], chunk, room)
            if new < 1:
                return
            group.grow(request, sequences.at_cached[request] + new)
            plan.prefill.append((request, new))
            chunk -= -(-new // page) * page
            if sequences.at_cached[request] + new < sequences.todo[request]:
                return
            reckoned += self._to_come_of(request)
        if self._longest_first:
            self._sort()
        while group.waiting and chunk > 0:
            if len(group.running) >= group.limits.sequences:
                self._full = True
                return
            request = group.waiting[0]
            reused, shared = group.lookup(request)
            new = int(sequences.todo[request]) - reused
            most = self._to_come_of(request)
            pinned = group.layout.of_one(reused) - shared
            room = (group.free - pinned) * page - reckoned
            alone = not group.running and new <= (group.free - pinned) * page
            if new + most + page >= room and not alone:
                self._full = True
                return
            whole = -(-new // page) * page <= chunk
            if not whole:
                new = chunk // page * page or (0 if plan.prefill else min(chunk, new))
                if new < 1:
                    return
            self.admit(plan, new, reused)
            chunk -= -(-new // page) * page
            if sequences.at_cached[request] + new < sequences.todo[request]:
                return
            reckoned += most

    def _to_come_of(self, request: int) -> int:
        sequences = self.group.sequences
        return min(max(int(sequences.limit[request]) - sequences.at_made[request], 0), self._most)

    def _sort(self) -> None:
        """Longest cached prefix first; of those that share one not yet cached, the first alone."""
        group, sequences = self.group, self.group.sequences
        content = sequences.content
        if len(group.waiting) > _SORTED or content is None:
            return
        seen: set[int] = set()
        keys: dict[int, int] = {}
        for request in group.waiting:
            keys[request], _ = group.lookup(request)
            named = content.prompt(request)[:1]
            if keys[request] <= _IN_BATCH and named and named[0][1] > _IN_BATCH:
                if named[0][0] in seen:
                    keys[request] = -1
                seen.add(named[0][0])
        ordered = sorted(group.waiting, key=lambda each: -keys[each])
        group.waiting.clear()
        group.waiting.extend(ordered)

    def _decode(self, plan: StepPlan) -> None:
        """Each decoding sequence a token; without the pages for it, some are retracted."""
        group, sequences = self.group, self.group.sequences
        fresh = {request for request, _ in plan.prefill}
        decoding = [each for each in group.decoding() if each not in fresh]
        retracted = False
        while not group.advance(decoding):
            if len(decoding) < 2:
                # the engine would abort it; the prompt in chunks gives way instead
                busy = group.flying.union(decoding)
                others = [each for each in group.running if each not in busy]
                if not others:  # what a step under way holds is not free yet
                    decoding = []
                    break
                last = others[-1]
                plan.prefill = [pair for pair in plan.prefill if pair[0] != last]
            else:
                last = min(
                    decoding, key=lambda each: (sequences.made[each], -sequences.prompt[each])
                )
                decoding.remove(last)
            group.preempt(last, keep=False, last=True)
            retracted = True
        if retracted:
            made, limit = (int(each[decoding].sum()) for each in (sequences.made, sequences.limit))
            self._ratio = min((made + _RETRACT_STEPS * len(decoding)) / (limit + 1), 1.0)
            self._full = False
        plan.decode = decoding


@final
class Polls(Lockstep):
    """New requests are looked for now and then; those that wait already wait for that too."""

    def releases(self, groups: Sequence[QueueGroup]) -> bool:
        return not any(group.running for group in groups) or any(g.filling for g in groups)
