"""One replica: its groups decide, its clock runs the step, and tokens come out.

Stretches of decode in which nothing is decided run at once: until a sequence ends, a block is
missing, or a request arrives that the policy would let in.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal, final

import numpy as np

from silicast.composition.prices.decode_lengths import Lengths
from silicast.composition.prices.stepper import Stepper
from silicast.core.numerics import I64
from silicast.serving.simulation.cohort import Cohort
from silicast.serving.simulation.group import QueueGroup, SimulatedRequests
from silicast.serving.simulation.scheduler import Scheduler, StepPlan
from silicast.serving.simulation.speculation import Acceptance
from silicast.serving.simulation.work import Counts, RunningStep
from silicast.serving.statistics.records import Records

Role = Literal["", "prefill", "decode"]
"""What a replica does; "" = both."""
NOTHING: I64 = np.zeros(0, dtype=np.int64)
FIRST_LEAP = 2


@final
class Replica:
    """A replica in a simulation.

    Args:
        number: of it; ``groups``: one of each group of attention_dp.
        goals: output tokens of every request, which no scheduler sees.
        back_ns: from the end of a step to the client.
        finish: called as ``finish(request, end_ns)`` when the last token is there.
        role: what it does.
        hand_over: called as ``hand_over(request, self, end_ns)`` when a prompt is complete, where
            nothing is decoded.
        accepted: how many drafted tokens a step adds; None = none are drafted.
    """

    def __init__(
        self,
        number: int,
        stepper: Stepper,
        schedulers: Sequence[Scheduler],
        goals: I64,
        records: Records,
        back_ns: int,
        finish: Callable[[int, int], None],
        role: Role = "",
        hand_over: Callable[[int, Replica, int], None] | None = None,
        accepted: Acceptance | None = None,
    ) -> None:
        self.number, self.stepper, self.schedulers = number, stepper, list(schedulers)
        self.groups = [each.group for each in schedulers]
        self.sequences: SimulatedRequests = self.groups[0].sequences
        self._records, self._back_ns = records, back_ns
        # single numbers of these are read quicker than of arrays
        self._goals = np.ascontiguousarray(goals).data
        self._scheduled, self._first, self._answered, self._served = (
            each.data
            for each in (records.scheduled_ns, records.first_ns, records.done_ns, records.replica)
        )
        self._finish, self.role, self._hand_over = finish, role, hand_over
        self._accepted = accepted
        self._lockstep = self.schedulers[0].together(len(self.groups))
        self._timed = any(each.timed for each in schedulers)
        self._handed: dict[int, tuple[QueueGroup, int]] = {}
        self._joining: deque[tuple[QueueGroup, int]] = deque()
        self._arrived: deque[tuple[int, int, QueueGroup]] = deque()
        self._work: deque[RunningStep] = deque()
        self._ended: list[tuple[QueueGroup, int]] = []
        token_ns = np.zeros(len(goals), dtype=np.int64)
        self._token_ns = token_ns.data
        drafted = self.groups[0].limits.drafted
        self._together = stepper.in_flight == 1 and accepted is None and not drafted
        if self._together:
            for group in self.groups:
                group.cohort = Cohort(self.sequences, group.layout, goals, token_ns)
        self.outstanding = 0
        self.begun = 0

    @property
    def next_ns(self) -> int:
        """When the oldest step under way ends; -1 = none is."""
        return self._work[0].end_ns if self._work else -1

    @property
    def ask_ns(self) -> int:
        """When to wake it though nothing happens: a policy waits for more; -1 = never."""
        requested = [each.ask_ns for each in self.schedulers if each.ask_ns >= 0]
        requested += [ready for group in self.groups for ready in group.loading.values()]
        return min(requested) if requested and not self._work else -1

    @property
    def under_way(self) -> RunningStep | None:
        """The oldest step or stretch; None = nothing runs."""
        return self._work[0] if self._work else None

    def retime(self, start_ns: I64, end_ns: I64) -> None:
        """The steps under way, the only ones, run at another pace: their new times."""
        work = self._work[0]
        if work.run is None:
            self.stepper.retime(int(start_ns[0]), int(end_ns[0]))
        self._work[0] = work.retimed(start_ns, end_ns)

    def arrive(self, request: int, now_ns: int, *, passed: bool = False) -> None:
        """A request comes to the engine; its group is the one with the fewest sequences.

        Args:
            passed: a step of this replica that ends now has ended before.
        """
        group = self.groups[0]
        if len(self.groups) > 1:
            counts = {id(each): each.queued + len(each.running) for each in self.groups}
            coming = [each for _, _, each in self._arrived] + [each for each, _ in self._joining]
            for each in coming:
                counts[id(each)] += 1
            group = min(self.groups, key=lambda each: counts[id(each)])
        self._arrived.append((now_ns, request, group))
        self._served[request] = self.number
        if self.role == "decode":  # it was counted when it was chosen, and has its first token
            self._token_ns[request] = now_ns
        else:
            self.outstanding += 1
        if self._work:
            self._cut(now_ns, group, passed=passed)

    def moved(self, request: int) -> None:
        """The cache of a sequence is elsewhere: its blocks are free."""
        group, blocks = self._handed.pop(request)
        group.handed(request, blocks)

    @property
    def ready(self) -> bool:
        """Whether a step could start now."""
        return len(self._work) < self.stepper.in_flight

    def wake(self, now_ns: int, until_ns: int) -> None:
        """Starts what can start.

        Args:
            until_ns: the next arrival that is known; a stretch needs to go no further. -1 = none.
        """
        if not self._work:
            self.stepper.idle_until(now_ns)
        while self.ready and self._begin(now_ns, until_ns):
            pass

    def end(self, now_ns: int, until_ns: int) -> None:
        """The oldest step under way ends: tokens come out, and the next step is decided."""
        work = self._work.popleft()
        if self._lockstep is not None:
            self._lockstep.passed(work.steps)
        self._ended = self._results(work)
        if self.stepper.asynchronous and self.stepper.in_flight == 1:
            # the next step was scheduled when this one had started: what ended was still there
            begun = self._begin(self._last_start_ns(work), until_ns)
            if self._ended:
                self._release()
                if begun:  # what it counts is what goes on
                    self._work[-1] = self._work[-1]._replace(queues=self._queues())
        else:
            self._release()
            begun = self._begin(now_ns, until_ns)
        if not begun and not self._work:
            self.stepper.idle_until(now_ns)
            self._begin(now_ns, until_ns)
        while self.ready and self._begin(now_ns, until_ns):
            pass

    def _last_start_ns(self, work: RunningStep) -> int:
        return work.start_ns if work.run is None else work.run.start_ns[work.steps - 1]

    def _release(self) -> None:
        for group, request in self._ended:
            group.release(request)
            group.running.remove(request)
        self._ended = []

    def _begin(self, decided_ns: int, until_ns: int) -> bool:
        """Decides and starts the next step; False if there is nothing to run."""
        self._take_in(decided_ns)
        for group, request in self._ended:  # takes part no more, and its blocks are held
            group.flying.add(request)
        if self._lockstep is not None:
            holding = self._lockstep.hold(self.groups)
            for group in self.groups:
                group.holding = holding
        plans = [each.schedule() for each in self.schedulers]
        for group, request in self._ended:
            group.flying.discard(request)
        alone = self._together
        empty = True
        for plan in plans:
            if plan.prefill or plan.copy_ns or plan.load_ns:
                alone = False
            if plan.prefill or plan.decode:
                empty = False
        if empty:
            return False
        if alone:  # decode, and nothing that ends with a step
            if self._arrived:  # the step after the next one sees them
                until_ns = self._arrived[0][0]
            self._work.append(self._stretch(plans, until_ns))
            self._cut_for_known()
        else:
            self._work.append(self._step(plans, decided_ns))
        self.begun += 1
        return True

    def _take_in(self, decided_ns: int) -> None:
        """What has come until a step is decided."""
        self._tell_time()
        while self._arrived and self._arrived[0][0] <= decided_ns:
            _, request, group = self._arrived.popleft()
            if self.role == "decode":
                self._joining.append((group, request))
            else:
                group.waiting.append(request)
        self._join()
        for group in self.groups:
            group.now_ns = decided_ns
            if group.loading:
                group.land()

    def _cut_for_known(self) -> None:
        """Ends a stretch where those that have come, or load, will be seen."""
        for came_ns, _, group in self._arrived:
            self._cut(came_ns, group)
        for group in self.groups:
            for ready_ns in group.loading.values():
                self._cut(ready_ns, group, first=True)

    def _tell_time(self) -> None:
        """For policies that ask for it."""
        if not self._timed:
            return
        for came_ns, request, group in self._arrived:
            group.came_ns[request] = came_ns

    def _join(self) -> None:
        """Sequences whose prompts were computed elsewhere run as soon as there is room."""
        sequences = self.sequences
        while self._joining:
            group, request = self._joining[0]
            room = len(group.running) < group.limits.sequences
            if not room or not group.grow(request, sequences.at_cached[request]):
                return
            self._joining.popleft()
            group.running.append(request)

    def _heaviest(self, plans: list[StepPlan], decoding: list[Lengths]) -> int:
        """The group that all others wait for."""
        if len(plans) == 1:
            return 0
        loads = [(plan.tokens, int(each.sum())) for plan, each in zip(plans, decoding, strict=True)]
        return max(range(len(plans)), key=loads.__getitem__)

    def _decoding(self, plans: list[StepPlan]) -> list[Lengths]:
        """Cached tokens of the sequences that decode, of each group."""
        lengths: list[Lengths] = []
        for plan, group in zip(plans, self.groups, strict=True):
            if not plan.decode:
                lengths.append(NOTHING)
            elif group.cohort is None:
                lengths.append(self.sequences.cached[plan.rows])
            else:
                group.cohort.become(plan.decode)
                lengths.append(group.cohort.lengths())
        return lengths

    def _counts(self, plans: list[StepPlan], decoding: list[Lengths]) -> Counts:
        """What a step has of sequences and tokens, over all groups."""
        cached, prompts, filling, past, there, count = self.sequences.at_cached, 0, 0, 0, 0, 0
        for plan, each in zip(plans, decoding, strict=True):
            for request, new in plan.prefill:
                prompts += 1
                filling += new
                past += cached[request]
            if plan.decode:
                count += len(each)
                there += int(each.sum())
        return count, filling, prompts, past, there

    def _step(self, plans: list[StepPlan], decided_ns: int) -> RunningStep:
        cached, decoding = self.sequences.at_cached, self._decoding(plans)
        chosen = self._heaviest(plans, decoding)
        plan = plans[chosen]
        prefill = [(new, cached[request] + new) for request, new in plan.prefill]
        elsewhere = copy_ns = load_ns = -1
        if len(plans) > 1:
            elsewhere = sum(each.tokens for each in plans) - plan.tokens
        for each in plans:
            copy_ns, load_ns = max(copy_ns, each.copy_ns), max(load_ns, each.load_ns)
        pipelined = decided_ns if self.stepper.in_flight > 1 else 0
        step = self.stepper.step(prefill, decoding[chosen], elsewhere, pipelined, copy_ns, load_ns)
        scheduled = self._scheduled
        for each in plans:
            for request, _ in each.prefill:
                if scheduled[request] < 0:
                    scheduled[request] = step.start_ns
        if self.stepper.in_flight > 1:
            for each, group in zip(plans, self.groups, strict=True):
                group.flying.update(each.decode, (pair[0] for pair in each.prefill))
        counts = self._counts(plans, decoding)
        return RunningStep(plans, step.start_ns, step.end_ns, None, 1, self._queues(), counts)

    def _stretch(self, plans: list[StepPlan], until_ns: int) -> RunningStep:
        """Decode steps until something is to be decided."""
        stepper = self.stepper
        most = 1 << 40
        if self._ended:
            ended = [group for group, _ in self._ended]
            if self._lockstep is not None:  # what a group runs decides for all of them
                ended = self.groups
            if self._joining or any(group.queued for group in ended):
                most = 1  # what ended gives its place back for the decision after this one
        if self._lockstep is not None:
            most = min(most, self._lockstep.steady(self.groups))
        decoding = self._decoding(plans)
        for plan, scheduler in zip(plans, self.schedulers, strict=True):
            most = min(most, 1 + scheduler.steady(plan))
            if plan.decode and scheduler.group.cohort is not None:
                most = min(most, scheduler.group.cohort.left())
        chosen = self._heaviest(plans, decoding)
        plan, cached = plans[chosen], decoding[chosen]
        elsewhere = -1
        if len(plans) > 1:
            elsewhere = sum(each.tokens for each in plans) - plan.tokens
        if until_ns >= 0 and most > FIRST_LEAP:
            # no longer than until an arrival that may change it; an estimate, cut later
            price = stepper.prices.price((), cached, elsewhere)
            step_ns = max(round(price.pass_s * 1e9), 1)
            most = min(most, max((until_ns - stepper.now_ns) // step_ns + 2, FIRST_LEAP))
        for each, group in zip(plans, self.groups, strict=True):
            if each.decode and group.cohort is not None:  # of the first step blocks are taken
                most = min(most, max(group.steps_to_full(group.cohort, most), 1))
        run = stepper.run(cached, most, elsewhere)
        counts = self._counts(plans, decoding)
        return RunningStep(
            plans, run.start_ns[0], run.end_ns[-1], run, most, self._queues(), counts
        )

    def _cut(
        self, now_ns: int, group: QueueGroup, *, passed: bool = False, first: bool = False
    ) -> None:
        """Ends a stretch at the first step whose successor would see a request that comes now.

        Args:
            first: it comes before those that wait.
        """
        work = self._work[-1]
        if work.run is None or work.steps < 2:
            return
        scheduler = self.schedulers[self.groups.index(group)]
        before = self._joining if self.role == "decode" else group.waiting
        if scheduler.in_order and before and not first:
            return  # it waits behind others that cannot start
        asynchronous = self.stepper.asynchronous
        times = work.run.start_ns if asynchronous else work.run.end_ns
        bisect = bisect_right if passed and not asynchronous else bisect_left
        steps = bisect(times, now_ns, 0, work.steps) + 1
        if steps < work.steps:
            end_ns = work.run.end_ns[steps - 1]
            self._work[-1] = work._replace(steps=steps, end_ns=end_ns)

    def _results(self, work: RunningStep) -> list[tuple[QueueGroup, int]]:
        """What a step brings; returns the sequences that ended."""
        ended: list[tuple[QueueGroup, int]] = []
        grown = 0
        if work.run is not None:
            self.stepper.take(work.run, work.steps)
        for plan, group in zip(work.plans, self.groups, strict=True):
            if group.flying:
                group.flying.difference_update(plan.decode, (pair[0] for pair in plan.prefill))
            if plan.prefill:
                ended += self._prompts(plan, group, work.end_ns)
            if plan.decode:
                if group.cohort is None:
                    done = self._each(plan.rows, work.end_ns)
                else:
                    self._gaps(group.cohort, work)
                    if work.steps > 1:
                        blocks = group.cohort.take(work.steps, group.free)
                        group.free -= blocks
                        grown += blocks
                    done = group.cohort.run(work.steps, work.end_ns)
                ended += [(group, request) for request in done]
                for request in done:
                    self._done(request, work.end_ns)
        decoding, filling, *there = work.counts
        self._records.log.add(
            self.number, work.start_ns, work.end_ns, work.steps, decoding, filling, *work.queues,
            work.queues[2] + grown, *there,
        )  # fmt: skip
        return ended

    def _prompts(
        self, plan: StepPlan, group: QueueGroup, end_ns: int
    ) -> list[tuple[QueueGroup, int]]:
        """Prompts come further; those that are complete bring a token. Returns those that ended."""
        sequences, ended = self.sequences, []
        cached, made, handed = sequences.at_cached, sequences.at_made, []
        for request, new in plan.prefill:
            cached[request] += new
            if cached[request] != sequences.todo[request]:
                continue
            group.filling.remove(request)
            if made[request]:
                self._records.gaps_at(end_ns).add(end_ns - self._token_ns[request], 1)
            else:
                self._first[request] = end_ns + self._back_ns
            made[request] += 1
            self._token_ns[request] = end_ns
            if made[request] >= self._goals[request]:
                self._done(request, end_ns)
                ended.append((group, request))
            else:
                handed.append(request)
        if self.role == "prefill":
            self._hand(handed, group, end_ns)
        return ended

    def _gaps(self, cohort: Cohort, work: RunningStep) -> None:
        """Gaps before the tokens that sequences get which decode together."""
        first_ns = work.end_ns if work.run is None else work.run.end_ns[0]
        noted, late = self._records.gaps_at(first_ns), cohort.late
        if count := len(cohort.order) - len(late):
            noted.add(first_ns - cohort.last_ns, count)
        for token_ns in late.values():
            noted.add(first_ns - token_ns, 1)
        if work.run is not None and work.steps > 1:
            ends = work.run.end_ns[: work.steps]
            noted.add_each([after - end for end, after in pairwise(ends)], len(cohort.order))

    def _each(self, rows: I64, end_ns: int) -> list[int]:
        """A step of sequences that go on one by one; returns those that have ended."""
        sequences, token_ns = self.sequences, np.asarray(self._token_ns)
        noted = self._records.gaps_at(end_ns)
        for gap in (end_ns - token_ns[rows]).tolist():
            noted.add(gap, 1)
        tokens: int | I64 = 1 if self._accepted is None else self._drawn(rows)
        sequences.cached[rows] += tokens
        sequences.made[rows] += tokens
        token_ns[rows] = end_ns
        done: list[int] = rows[sequences.made[rows] >= np.asarray(self._goals)[rows]].tolist()
        return done

    def _drawn(self, rows: I64) -> I64:
        """Tokens of a step with drafts; what goes beyond a request's end is dropped."""
        assert self._accepted is not None
        made = self.sequences.made[rows]
        tokens = self._accepted.tokens(rows, made)
        self._records.verified += len(rows)
        self._records.accepted += int(tokens.sum())
        most: I64 = np.minimum(tokens, np.asarray(self._goals)[rows] - made)
        return most

    def _hand(self, requests: list[int], group: QueueGroup, end_ns: int) -> None:
        """Complete prompts leave; their blocks are held until their caches have moved."""
        assert self._hand_over is not None
        for request in requests:
            group.running.remove(request)
            self._handed[request] = (group, group.hand(request))
            self.outstanding -= 1
            self._hand_over(request, self, end_ns)

    def _done(self, request: int, end_ns: int) -> None:
        """A sequence has all its tokens: the client has its answer."""
        self._answered[request] = end_ns + self._back_ns
        self.outstanding -= 1
        self._finish(request, end_ns + self._back_ns)

    def _queues(self) -> tuple[int, int, int]:
        running, waiting, blocks = 0, len(self._arrived), 0
        for group in self.groups:
            running += len(group.running)
            waiting += group.queued
            blocks += group.limits.blocks - group.free
        return running, waiting, blocks
