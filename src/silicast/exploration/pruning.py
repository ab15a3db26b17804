"""Searches that leave out what a physical bound rules out: they cannot lose the optimum.

Candidates are evaluated in the order of their bounds, a few at a time. When the next bound is no
better than the best value so far, nothing that is left can be better.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

Evaluate = Callable[[Sequence[int]], Sequence[float]]
"""Candidates -> what is to be small; inf = it cannot be."""


@final
@dataclass(frozen=True)
class PruneResult:
    """The end of a search.

    Attributes:
        values: candidate -> its value, of those that were evaluated.
        pruned: those that their bounds ruled out.
    """

    values: dict[int, float]
    pruned: tuple[int, ...]

    @property
    def order(self) -> list[int]:
        """Evaluated candidates, the best first; of equals the first."""
        return sorted(self.values, key=lambda candidate: (self.values[candidate], candidate))


def prune(bounds: Sequence[float], evaluate: Evaluate, together: int = 1) -> PruneResult:
    """Finds the candidate with the least value.

    Args:
        bounds: below which no value is; -inf = not known.
        together: how many are evaluated at a time, as there are processes.

    >>> prune([3.0, 1.0, 2.0], lambda some: [[9.0, 2.5, 4.0][candidate] for candidate in some])
    PruneResult(values={1: 2.5, 2: 4.0}, pruned=(0,))
    """
    order = sorted(range(len(bounds)), key=lambda candidate: (bounds[candidate], candidate))
    values: dict[int, float] = {}
    best = math.inf
    while order and (bounds[order[0]] < best or math.isinf(best)):
        some = [x for x in order[:together] if bounds[x] < best or math.isinf(best)]
        values |= zip(some, evaluate(some), strict=True)
        order = order[len(some) :]
        best = min(values.values())
    return PruneResult(values, tuple(sorted(order)))
