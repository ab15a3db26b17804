"""Searches among candidates that are dear to evaluate: by races, or by physical bounds.

Races: many candidates are simulated a few times, fewer of them more often, until one is left.

All candidates of a round see the same random numbers, so that differences between them are much
better known than their values. Half of them are dropped each round (successive halving, Karnin et
al. 2013) and those that stay get twice as many simulations. A dropped candidate may be the best:
how probable that is follows from its differences to the leader, whose mean has a Student
distribution; the race states it.

Bounds: what a physical bound rules out is left out, which cannot lose the optimum. Candidates are
evaluated in the order of their bounds, a few at a time. When the next bound is no better than the
best value so far, nothing that is left can be better.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from silicast.core.numerics import F64

FIRST: Final = 4
"""Simulations of every candidate in the first round: the fewest that tell a spread."""
DRAWS: Final = 20_000
SEED: Final = 20261129
MODERATION: Final = 8
EXACT: Final = 1e-12
"""Of a mean: a spread below it is of rounding."""

Simulate = Callable[[Sequence[int], Sequence[int]], F64]
"""Candidates and seeds -> what is to be small, (candidates, seeds); inf = it cannot be."""


@final
@dataclass(frozen=True)
class RaceResult:
    """The end of a race.

    Attributes:
        order: candidates, those dropped last first; the first is the winner.
        simulations: of one candidate with one seed each; exhaustive: had all gone the whole way.
        lost: the stated probability that a dropped candidate is better than the winner.
    """

    order: tuple[int, ...]
    simulations: int
    exhaustive: int
    lost: float


def race(count: int, simulate: Simulate, first: int = FIRST) -> RaceResult:
    """Finds the candidate whose mean is least.

    Args:
        count: candidates, numbered from 0.
        first: simulations of each in the first round, 2 at least.

    Raises:
        ValueError: no candidate, or fewer than two simulations.

    >>> def noiseless(candidates, seeds):
    ...     return np.array([[float(abs(each - 3)) for _ in seeds] for each in candidates])
    >>> race(8, noiseless)
    RaceResult(order=(3, 2, 4, 1, 5, 0, 6, 7), simulations=64, exhaustive=128, lost=0.0)
    """
    if count < 1 or first < 2:
        raise ValueError("one candidate and two simulations at least")
    left = list(range(count))
    values = np.empty((count, 0))
    dropped: list[int] = []
    simulations, safe = 0, 1.0
    seeds = first
    while True:
        new = range(values.shape[1], seeds)
        more = np.full((count, len(new)), np.nan)
        more[left] = simulate(left, new)
        simulations += len(left) * len(new)
        values = np.hstack([values, more])
        ranked = sorted(left, key=lambda each: (float(values[each].mean()), each))
        if len(ranked) == 1:
            break
        half = (len(ranked) + 1) // 2
        with np.errstate(invalid="ignore"):  # inf beside inf
            better = _better(values[ranked[1:]] - values[ranked[0]])
        safe *= float(np.prod(1.0 - better[half - 1 :]))
        dropped[:0] = ranked[half:]
        left = ranked[:half]
        if len(left) == 1:
            break
        seeds *= 2
    return RaceResult((*left, *dropped), simulations, count * values.shape[1], 1.0 - safe)


def _better(differences: F64) -> F64:
    """Of each candidate, the probability that the mean of its differences to the leader is below
    zero: (candidates, seeds) -> (candidates,).

    A spread of a few differences is poorly known: it is moderated by the middle one of all
    candidates, which counts as :data:`MODERATION` differences (as of Smyth 2004).
    """
    count = differences.shape[1]
    can = np.isfinite(differences).all(axis=1)
    result = np.zeros(len(differences))
    means = differences[can].mean(axis=1)
    if not len(means):
        return result
    variances = differences[can].var(axis=1, ddof=1)
    freedom = MODERATION + count - 1
    moderated = (MODERATION * np.median(variances) + (count - 1) * variances) / freedom
    errors = np.sqrt(moderated / count)
    errors = np.where(errors > EXACT * np.abs(means), errors, 0.0)
    drawn = np.sort(np.random.default_rng(SEED).standard_t(freedom, DRAWS))
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.where(errors > 0.0, means / errors, np.inf)
    result[can] = 1.0 - np.searchsorted(drawn, steps, side="right") / DRAWS
    return result


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
        batch = [x for x in order[:together] if bounds[x] < best or math.isinf(best)]
        values |= zip(batch, evaluate(batch), strict=True)
        order = order[len(batch) :]
        best = min(values.values())
    return PruneResult(values, tuple(sorted(order)))
