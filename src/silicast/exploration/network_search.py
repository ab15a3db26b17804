"""The best networks of a space that a device runs within a budget of time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from silicast.core.errors import SilicastError
from silicast.core.numerics import F64, I64
from silicast.workload.spaces import ArchitectureSpace

FIRST: Final = 0.25
"""Share of the evaluations that are drawn at random."""
PARENTS: Final = 256
"""The best so far, of which children are made."""
GENERATIONS: Final = 8
"""That the evaluations after the first are shared out to."""
CHANGED: Final = 0.1
"""Chance that a position is drawn anew, at least one of each child."""

Measure = Callable[[I64], F64]
"""Choices (n, positions) -> one number each, (n,)."""


@final
@dataclass(frozen=True)
class RankedNetworks:
    """What a search came to, the best first.

    Attributes:
        choices: (n, positions); latencies: ms, (n,); values: what was made as large as possible.
        evaluated: distinct architectures that were looked at; within: of them within the budget.
    """

    choices: I64
    latencies: F64
    values: F64
    evaluated: int
    within: int


def ranked(
    choices: I64, latencies: F64, values: F64, budget_ms: float | None, count: int
) -> RankedNetworks:
    """The ``count`` best networks within a budget: the largest value, of equals the quickest."""
    inside = np.full(len(latencies), True) if budget_ms is None else latencies <= budget_ms
    at = np.flatnonzero(inside)
    order = at[np.lexsort((latencies[at], -values[at]))][:count]
    return RankedNetworks(
        choices[order], latencies[order], values[order], len(choices), int(inside.sum())
    )


def search_networks(
    space: ArchitectureSpace,
    latency: Measure,
    value: Measure,
    *,
    budget_ms: float | None,
    evaluations: int,
    count: int,
    seed: int,
) -> RankedNetworks:
    """Searches a space for large values within a budget: all of it if it is small enough, else a
    random start and generations of changed and crossed parents; equal seeds, equal networks.

    Args:
        latency: in ms; value: what is made as large as possible.
        budget_ms: None = none.
        evaluations: architectures that are looked at, at most.

    Raises:
        SilicastError: a count below one.
    """
    if evaluations < 1 or count < 1:
        raise SilicastError("expected a count from 1", field="evaluations")
    size = len(space.options) ** space.positions
    if size <= evaluations:
        every = space.every(evaluations, seed)
        return ranked(every, latency(every), value(every), budget_ms, count)
    draw = np.random.default_rng(seed)
    tried = np.unique(space.every(max(int(evaluations * FIRST), 1), seed), axis=0)
    latencies, values = latency(tried), value(tried)
    generation = max((evaluations - len(tried)) // GENERATIONS, 1)
    while len(tried) < evaluations:
        best = ranked(tried, latencies, values, budget_ms, PARENTS).choices
        parents = best if len(best) else tried[np.argsort(latencies, kind="stable")[:PARENTS]]
        children = _children(space, parents, draw, min(generation, evaluations - len(tried)))
        fresh = _unknown(children, tried)
        if not len(fresh):
            break
        tried = np.concatenate([tried, fresh])
        latencies = np.concatenate([latencies, latency(fresh)])
        values = np.concatenate([values, value(fresh)])
    return ranked(tried, latencies, values, budget_ms, count)


def _children(space: ArchitectureSpace, parents: I64, draw: np.random.Generator, count: int) -> I64:
    """Each of two parents, position by position, some positions drawn anew."""
    pairs = draw.integers(0, len(parents), (count, 2))
    crossed = draw.random((count, space.positions)) < 0.5
    children = np.where(crossed, parents[pairs[:, 0]], parents[pairs[:, 1]])
    changed = draw.random(children.shape) < CHANGED
    changed[np.arange(count), draw.integers(0, space.positions, count)] = True
    drawn = draw.integers(0, len(space.options), children.shape, dtype=np.int64)
    return np.where(changed, drawn, children)


def _unknown(children: I64, tried: I64) -> I64:
    """Distinct rows that were not tried yet."""
    kind = np.dtype((np.void, children.dtype.itemsize * children.shape[1]))
    rows = np.unique(children, axis=0)
    seen = np.isin(
        np.ascontiguousarray(rows).view(kind).ravel(),
        np.ascontiguousarray(tried).view(kind).ravel(),
    )
    return rows[~seen]
