"""NSGA-II: the best fronts of all that was tried are crossed and stepped.

Source: Deb et al., "A fast and elitist multiobjective genetic algorithm: NSGA-II", IEEE TEC 6(2),
2002. Parents are the best of all designs tried, not of the last generation, so that what is
proposed follows from the history.
"""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from silicast.core.numerics import I64
from silicast.exploration.history import History
from silicast.exploration.pareto import crowding, ranks
from silicast.exploration.problem import METHODS, Method, crossed, generator, new_codes, stepped

POPULATION = 64
CHILDREN = 32
ATTEMPTS = 20


@final
@METHODS.register
class Evolutionary(Method):
    """Parents are chosen by front, then by how lonely they are on it."""

    name: ClassVar[str] = "evolutionary"

    def batch(self, tried: int) -> int:  # noqa: ARG002
        """A first population, then generations of half of it."""
        return CHILDREN

    def propose(self, history: History, seed: int, count: int) -> I64:
        """Children of the best; designs at random at first, and where children are old."""
        rng = generator(seed, len(history))
        space = history.space
        propose = np.empty(0, dtype=np.int64)
        if len(history) and history.feasible.sum() > 1:
            parents, keys = _parents(history)
            for _ in range(ATTEMPTS):
                pair = [_winners(rng, keys, 2 * count) for _ in range(2)]
                children = crossed(rng, parents[pair[0]], parents[pair[1]])
                children = stepped(rng, space, children)
                tried = np.concatenate([history.codes, propose])
                propose = np.concatenate([propose, new_codes(space, children, tried)])[:count]
                if len(propose) == count:
                    return propose
        more = space.draw(rng, count - len(propose), np.concatenate([history.codes, propose]))
        return np.concatenate([propose, more])


def _parents(history: History) -> tuple[I64, I64]:
    """Level numbers of the best designs, and their places from best to worst."""
    values = history.scaled
    front = ranks(values, POPULATION)
    lonely = np.zeros(len(values))
    for number in range(int(front.max()) + 1):
        on = front == number
        lonely[on] = crowding(values[on])
    order = np.lexsort((-lonely, front))[:POPULATION]
    return history.designs[np.flatnonzero(history.feasible)[order]], np.arange(len(order))


def _winners(rng: np.random.Generator, keys: I64, count: int) -> I64:
    """The better of two at random, so often."""
    drawn = rng.integers(0, len(keys), (2, count))
    best: I64 = drawn.min(axis=0)
    return best
