"""The cheapest numbers of replicas of several pools that carry a load.

What carries a load still carries it with more replicas of any pool. So each pool has a least number
that no others make up for, and a number that fails rules out every smaller one.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from typing import final

from silicast.core.monotone import largest

Counts = tuple[int, ...]
"""Replicas of each pool."""


@final
class CountSearch:
    """Numbers of replicas, tried at most once each.

    Args:
        carries: whether so many carry the load; taken as monotone in each number.
        allowed: of each pool the numbers to choose among, ascending.
        prices: of one replica of each pool.
        within: whether so many may be chosen; asked first.
        confirms: asked of the choice at last, where ``carries`` looks at a part of the load only.
    """

    def __init__(
        self,
        carries: Callable[[Counts], bool],
        allowed: Sequence[Sequence[int]],
        prices: Sequence[float],
        within: Callable[[Counts], bool] | None = None,
        confirms: Callable[[Counts], bool] | None = None,
    ) -> None:
        self._confirms = confirms or _always
        self._ask, self._allowed, self._prices = carries, allowed, prices
        self._within = within or _always
        self._last = tuple(len(each) - 1 for each in allowed)
        self.tried: dict[Counts, bool] = {}
        self._refused = set[Counts]()

    def cheapest(self) -> Counts | None:
        """The cheapest that carry the load; None = none do.

        >>> pools = CountSearch(
        ...     lambda counts: counts[0] >= 3 and sum(counts) >= 5, [range(1, 9)] * 2, [2.0, 1.0])
        >>> pools.cheapest()
        (3, 2)
        """
        roomy = self._roomy()
        if roomy is None:
            return None
        for most in (self._cost(roomy), math.inf):
            if (counts := self._cheapest(most)) is not None:
                return counts
        return None

    def _cheapest(self, most: float) -> Counts | None:
        """The cheapest that cost no more than this."""
        ends = tuple(self._affordable(pool, most) for pool in range(len(self._last)))
        if min(ends) < 0 or not self._carries(ends):
            return None
        least = tuple(self._least(pool, ends) for pool in range(len(ends)))
        waiting, seen = [(self._cost(least), least)], {least}
        while waiting:
            cost, positions = heapq.heappop(waiting)
            counts = self._counts(positions)
            if cost > most or not self._within(counts):
                continue
            if positions not in self._refused and self._carries(positions):
                if self._confirms(counts):
                    return counts
                self._refused.add(positions)
            for pool, position in enumerate(positions):
                more = _with(positions, pool, position + 1)
                if position < ends[pool] and more not in seen:
                    seen.add(more)
                    heapq.heappush(waiting, (self._cost(more), more))
        return None

    def _affordable(self, pool: int, most: float) -> int:
        """The largest place of one pool, beside the fewest of the others, that costs no more than
        this and may be chosen; -1 = none.
        """
        first = (0,) * len(self._last)

        def fits(count: int) -> bool:
            positions = _with(first, pool, count - 1)
            return self._cost(positions) <= most and self._within(self._counts(positions))

        return largest(fits, self._last[pool] + 1) - 1

    def _roomy(self) -> Counts | None:
        """Places of numbers that carry the load, not many times what is needed."""
        positions = (0,) * len(self._last)
        while not self._carries(positions):
            if positions == self._last:
                return None
            positions = tuple(
                min(2 * at + 1, last) for at, last in zip(positions, self._last, strict=True)
            )
        return positions

    def _least(self, pool: int, ends: Counts) -> int:
        """The least place of one pool where the others have all that they may have."""
        return largest(lambda few: not self._carries(_with(ends, pool, few - 1)), ends[pool])

    def _carries(self, positions: Counts) -> bool:
        """From what was tried already where that is enough."""
        counts = self._counts(positions)
        for other, met in self.tried.items():
            smaller, larger = (other, counts) if met else (counts, other)
            if all(a <= b for a, b in zip(smaller, larger, strict=True)):
                return met
        carries = self.tried[counts] = self._ask(counts)
        return carries

    def _counts(self, counts: Counts) -> Counts:
        return tuple(item[at] for item, at in zip(self._allowed, counts, strict=True))

    def _cost(self, counts: Counts) -> float:
        return sum(p * n for p, n in zip(self._prices, self._counts(counts), strict=True))


def _always(_: Counts) -> bool:
    return True


def _with(counts: Counts, pool: int, index: int) -> Counts:
    return (*counts[:pool], index, *counts[pool + 1 :])
