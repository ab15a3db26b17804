"""Sequences that decode together: what steps change in all of them alike is counted once.

A decode step brings every sequence of a group a token. So how far they are is one number, the steps
that the cohort has run; a sequence is only looked at as it comes and as it goes. Of the others the
sum and the longest of their tokens, who ends next, and when blocks are missing follow from when
each came, in integers: the same as of steps that are run one by one.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, final

import numpy as np

from silicast.composition.prices.decode_lengths import DecodeLengths
from silicast.core.numerics import I64
from silicast.serving.kv.kv_pool import KvLayout

if TYPE_CHECKING:
    from silicast.serving.simulation.group import SimulatedRequests


@final
class Cohort:
    """Sequences of one group that decode, each a token a step.

    While a sequence is in a cohort, its columns are those of an earlier step; :meth:`settle` brings
    them up to date, which :class:`SimulatedRequests` asks for where an array of them is read.

    Args:
        goals: output tokens of every request.
        token_ns: when each had its last token; of members, as they came.

    Attributes:
        order: the members, as the last plan has them.
        tick: steps that were run in all.
        last_ns: when the members had their last token, but for ``late``: those that came since ->
            when they had it.
    """

    def __init__(
        self, sequences: SimulatedRequests, layout: KvLayout, goals: I64, token_ns: I64
    ) -> None:
        self._sequences, self._layout = sequences, layout
        self._goals, self._token_ns = np.ascontiguousarray(goals).data, token_ns.data
        self._size, self._plain = layout.block_tokens, len(layout.lengths) == 2
        self.order: list[int] = []
        self._members: set[int] = set()
        self.tick = self.last_ns = 0
        self.late: dict[int, int] = {}
        self._written = 0  # tick of the columns
        self._taken = 0  # blocks of all steps before this tick are taken
        self._total = 0  # cached tokens
        self._ends: list[tuple[int, int]] = []
        self._longest: list[tuple[int, int]] = []
        # members that want a block at ticks of a remainder, and those that hold more than they need
        self._wanting = [0] * self._size
        self._tight = 0
        self._reserved: dict[int, int] = {}
        self._next_reserved: list[tuple[int, int]] = []

    def __contains__(self, request: int) -> bool:
        return request in self._members

    def become(self, requests: list[int]) -> None:
        """These are the members from now on."""
        order = self.order
        if requests == order:
            return
        count = len(order)
        if requests[:count] == order:
            coming = requests[count:]
        else:
            wanted = set(requests)
            for request in [each for each in order if each not in wanted]:
                self.leave(request)
            coming = [each for each in requests if each not in self._members]
        for request in coming:
            self._join(request)
        self.order = list(requests)

    def _join(self, request: int) -> None:
        sequences, tick = self._sequences, self.tick
        cached, made = sequences.at_cached[request], sequences.at_made[request]
        behind = tick - self._written
        sequences.at_cached[request] = cached - behind
        sequences.at_made[request] = made - behind
        end, base = tick + self._goals[request] - made, cached - tick
        sequences.at_end[request], sequences.at_base[request] = end, base
        heapq.heappush(self._ends, (end, request))
        heapq.heappush(self._longest, (-base, request))
        self._total += cached
        if self._plain:
            want = sequences.at_held[request] * self._size - base
            sequences.at_want[request] = want
            if want - self._taken < self._size:
                self._wanting[want % self._size] += 1
                self._tight += 1
            else:
                self._reserved[request] = want
                heapq.heappush(self._next_reserved, (want, request))
        token_ns = self._token_ns[request]
        if not self._members:
            self.last_ns = token_ns
        elif token_ns != self.last_ns:
            self.late[request] = token_ns
        self._members.add(request)

    def leave(self, request: int) -> None:
        """A member goes, and its columns are up to date."""
        sequences, behind = self._sequences, self.tick - self._written
        self._members.remove(request)
        self.order.remove(request)
        sequences.at_cached[request] += behind
        sequences.at_made[request] += behind
        self._total -= sequences.at_cached[request]
        if self._plain:
            want, size = sequences.at_want[request], self._size
            if self._reserved.pop(request, None) is None:
                self._wanting[want % size] -= 1
                self._tight -= 1
            if self._taken > want:
                sequences.at_held[request] += (self._taken - want - 1) // size + 1
        self._token_ns[request] = self.late.pop(request, self.last_ns)

    def settle(self) -> None:
        """Brings the columns of all members up to date."""
        sequences, behind = self._sequences, self.tick - self._written
        rows = np.array(self.order, dtype=np.int64)
        if behind:
            sequences.cached_then[rows] += behind
            sequences.made_then[rows] += behind
            self._written = self.tick
        if self._plain:
            wants = sequences.want[rows]
            more = np.maximum(-(-(self._taken - wants) // self._size), 0)
            sequences.held_then[rows] += more
            sequences.want[rows] = wants + more * self._size

    def made(self, request: int) -> int:
        """Tokens that a member has generated."""
        return self._sequences.at_made[request] + self.tick - self._written

    def lengths(self) -> DecodeLengths:
        """Cached tokens of the members."""
        heap, base = self._longest, self._sequences.at_base
        while heap[0][1] not in self._members or base[heap[0][1]] != -heap[0][0]:
            heapq.heappop(heap)
        longest = self.tick - heap[0][0]
        return DecodeLengths(len(self.order), self._total, longest, self._each)

    def _each(self) -> I64:
        rows = np.array(self.order, dtype=np.int64)
        return self._sequences.cached_then[rows] + (self.tick - self._written)

    def left(self) -> int:
        """Steps until the first member ends."""
        heap, end = self._ends, self._sequences.at_end
        while heap[0][1] not in self._members or end[heap[0][1]] != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] - self.tick

    def run(self, steps: int, end_ns: int) -> list[int]:
        """All run so many steps, of which blocks are taken; returns those that have ended, who go,
        in the order of the plan.
        """
        self.tick += steps
        self._total += steps * len(self.order)
        self._sequences.unsettled.add(self)
        self.last_ns = end_ns
        self.late.clear()
        heap, ended = self._ends, []
        while heap and heap[0][0] <= self.tick:
            end, request = heapq.heappop(heap)
            if (
                request in self._members
                and self._sequences.at_end[request] == end
                and request not in ended
            ):
                ended.append(request)
        if len(ended) > 1:
            ended.sort(key=self.order.index)
        for request in ended:
            self.leave(request)
        return ended

    def lacking(self, steps: int) -> int:
        """Blocks that the members lack for so many steps from now."""
        until = self.tick + steps
        if not self._plain:
            return int(self._lacking(until).sum())
        taken, size = self._taken, self._size
        if until <= taken:
            return 0
        blocks = 0
        if until - taken >= size:
            blocks = (until - taken) // size * self._tight
            until_part = taken + (until - taken) % size
        else:
            until_part = until
        wanting = self._wanting
        for tick in range(taken, until_part):
            blocks += wanting[tick % size]
        if self._next_reserved and self._next_reserved[0][0] < until:
            for want in self._reserved.values():
                if want < until:
                    blocks += (until - want - 1) // size + 1
        return blocks

    def take(self, steps: int, free: int) -> int:
        """Takes the blocks of so many steps from now; returns how many, -1 where more than
        ``free``: then none is taken.
        """
        if not self.order:
            return 0
        until = self.tick + steps
        if not self._plain:
            more = self._lacking(until)
            if (blocks := int(more.sum())) > free:
                return -1
            self._sequences.held_then[np.array(self.order, dtype=np.int64)] += more
            return blocks
        blocks = self.lacking(steps)
        if blocks > free:
            return -1
        if until > self._taken:
            self._taken = until
            self._sequences.unsettled.add(self)
            heap = self._next_reserved
            while heap and heap[0][0] - until < self._size:
                want, request = heapq.heappop(heap)
                if self._reserved.get(request) == want:
                    del self._reserved[request]
                    self._wanting[want % self._size] += 1
                    self._tight += 1
        return blocks

    def _lacking(self, until: int) -> I64:
        """Blocks that each member lacks, where a layout is no straight line."""
        rows = np.array(self.order, dtype=np.int64)
        blocks = self._layout.of_tokens(self._each() + (until - self.tick))
        more: I64 = np.maximum(blocks - self._sequences.held_then[rows], 0)
        return more
