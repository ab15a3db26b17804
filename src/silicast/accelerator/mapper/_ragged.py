"""Loop bounds that do not divide their dimensions: the last tile of a loop is cut short.

From mappings that divide, better ones are looked for whose tiles are of any extent. All ways to
split some dimensions are counted exactly at a time, with every order of loops and every choice of
what memories keep; of dimensions that are split in too many ways, those that change two loops.
Nothing is proven.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import final

import numpy as np

from silicast.accelerator.counting.cost import MappingRank, Objective, best_of, cost, value_of
from silicast.accelerator.counting.einsum import Einsum
from silicast.accelerator.counting.mapping import I8, Keep, MappingBatch, keep_patterns
from silicast.accelerator.design.architecture import Architecture
from silicast.accelerator.mapper.budget import COUNTED, BudgetSpent, SearchBudget
from silicast.accelerator.mapper.constraints import Constraints
from silicast.accelerator.mapper.orders import worthwhile_orders
from silicast.core.numerics import F64

SMALL = 12
"""Tiles of smaller extents are tried at every extent, others at those that are evenly long."""
MOST = 20_000
"""Ways to split some dimensions that are counted at a time."""
MOST_ORDERS = 64
"""Orders of loops that are looked at together; of more, those of one memory at a time."""
MOST_KEPT = 16
"""Choices of what memories keep that are looked at."""
INNERMOST = 127
"""A position further in than any other."""
ROUNDS = 8
"""Passes over all dimensions, orders and choices, at most."""


@final
class RaggedDescent:
    """Better and better mappings of one problem, tiles of any extent among them."""

    def __init__(
        self,
        einsum: Einsum,
        architecture: Architecture,
        rules: Constraints,
        objective: Objective,
        budget: SearchBudget,
    ) -> None:
        self.einsum, self.arch, self.rules = einsum, architecture, rules
        self.objective, self.budget = objective, budget
        self.sizes = tuple(einsum.bounds.values())
        self.slots = range(len(architecture.slots))
        self.limits = np.array([slot.limit for slot in architecture.slots])
        self.fixed = self._table("fixed", 0)
        self.most = self._table("most", max(self.sizes))
        self.keeps = list(
            itertools.islice(keep_patterns(einsum, architecture, rules.homes), MOST_KEPT)
        )
        self.counted = 0

    def _table(self, field: str, default: int) -> list[list[int]]:
        """A rule of every slot and dimension."""
        rules = [getattr(self.rules.rule(self.arch, slot), field) for slot in self.slots]
        return [
            [
                min(rule.get(dim, default), size) if dim in rule else default
                for dim, size in self.einsum.bounds.items()
            ]
            for rule in rules
        ]

    def run(self, batch: MappingBatch, rank: MappingRank) -> tuple[MappingBatch, MappingRank]:
        """The best mapping that can be reached from a batch of one, and its rank."""
        batch = self._ruled(batch)
        try:
            for _ in range(ROUNDS):
                before = rank
                for more in self._neighbours(batch):
                    better = self._best(more, rank)
                    if better is not None:
                        batch, rank = better
                        break
                if rank is before:
                    break
        except BudgetSpent:
            pass
        return batch, rank

    def _ruled(self, batch: MappingBatch) -> MappingBatch:
        """The mapping with loops of one iteration where a rule would have them if they turned."""
        positions = batch.positions.copy()
        for slot in self.arch.memory_slots:
            for depth, d in enumerate(self._inner(slot)):
                positions[slot, d] = INNERMOST - depth
        return MappingBatch(batch.factors, positions, batch.keep)

    def _inner(self, slot: int) -> list[int]:
        """Dimensions that a rule has innermost, the innermost first."""
        rule = self.rules.rule(self.arch, slot)
        return [
            self.einsum.dims.index(dim)
            for dim in rule.innermost
            if self.einsum.bounds.get(dim, 1) > 1 and rule.fixed.get(dim, 2) != 1
        ]

    def _best(
        self, more: Iterator[MappingBatch], rank: MappingRank
    ) -> tuple[MappingBatch, MappingRank] | None:
        """The best of some mappings, where it is better than what is known."""
        best: tuple[MappingBatch, MappingRank] | None = None
        try:
            for batch in more:
                self.budget.work(len(batch) * COUNTED)
                self.counted += len(batch)
                result = cost(self.einsum, self.arch, batch)
                values = value_of(result, self.objective)
                least = self.rules.least_utilisation * self.arch.units
                values[result.traffic.units < least] = np.inf
                row = best_of(values, result.cycles)
                reached = MappingRank(float(values[row]), float(result.cycles[row]))
                if reached.is_before(rank):
                    best, rank = (batch.take(slice(row, row + 1)), reached), reached
        except BudgetSpent:
            if best is None:
                raise
        return best

    def _neighbours(self, batch: MappingBatch) -> Iterator[Iterator[MappingBatch]]:
        """Groups of mappings, from those that are few to those that are many."""
        factors, turning = batch.factors[:, :, 0], [d for d, s in enumerate(self.sizes) if s > 1]
        near = {d: self._splits(d, factors) for d in turning}
        arrangements = list(self._arrangements(batch))
        for together in range(1, len(turning) + 1):
            for dims in itertools.combinations(turning, together):
                if math.prod(near[d].shape[1] for d in dims) <= MOST:
                    combined = self._combined(factors, dims, near)
                    as_ordered = MappingBatch(
                        combined, _repeated(batch.positions, combined), batch.keep
                    )
                    yield iter([as_ordered])
                    yield self._arranged(combined, arrangements)

    def _arranged(
        self, factors: F64, arrangements: Sequence[tuple[I8, Keep]]
    ) -> Iterator[MappingBatch]:
        for positions, keep in arrangements:
            yield MappingBatch(factors, _repeated(positions, factors), keep)

    def _arrangements(self, batch: MappingBatch) -> Iterator[tuple[I8, Keep]]:
        """Orders of loops, (slots, dims, 1), with what memories keep."""
        memories = self.arch.memory_slots
        choices = []
        for slot in memories:
            rows = []
            inner = [self.einsum.dims[d] for d in self._inner(slot)]
            for order in worthwhile_orders(self.einsum, inner):
                row = np.zeros(len(self.sizes), dtype=np.int8)
                row[list(order)] = np.arange(len(order), 0, -1)
                rows.append(row)
            turning = [d for d, size in enumerate(self.sizes) if size > 1]
            # Orders that differ in loops of one iteration only are the same.
            distinct = {tuple(np.argsort(row[turning]).tolist()): row for row in rows}
            choices.append(list(distinct.values()))
        if math.prod(len(rows) for rows in choices) <= MOST_ORDERS:
            orders = list(itertools.product(*choices))
        else:
            chosen_order = tuple(batch.positions[slot, :, 0] for slot in memories)
            orders = [
                (*chosen_order[:n], row, *chosen_order[n + 1 :])
                for n, rows in enumerate(choices)
                for row in rows
            ]
        for keep in sorted(self.keeps, key=lambda keep: keep != batch.keep):
            for each in orders:
                positions = np.zeros(batch.positions.shape, dtype=np.int8)
                positions[list(memories), :, 0] = each
                yield positions, keep

    def _combined(self, factors: F64, dims: tuple[int, ...], near: dict[int, F64]) -> F64:
        """Every combination of the splits of some dimensions, (slots, dims, n), that has room."""
        index = np.indices([near[d].shape[1] for d in dims]).reshape(len(dims), -1)
        combined = np.repeat(factors[:, :, None], index.shape[1], axis=2)
        for d, chosen in zip(dims, index, strict=True):
            combined[:, d] = near[d][:, chosen]
        fits = (combined.prod(axis=1) <= self.limits[:, None]).all(axis=0)
        return np.ascontiguousarray(combined[:, :, fits])

    def _splits(self, d: int, factors: F64) -> F64:
        """Ways to split a dimension, (slots, n): all, or those that change two loops."""
        way = tuple(int(f) for f in factors[:, d])
        ways = {way: None}
        every = self._every(d)
        ways |= dict.fromkeys(self._changed(d, way) if every is None else every)
        return np.array(list(ways), dtype=float).T

    def _every(self, d: int) -> list[tuple[int, ...]] | None:
        """All ways; None where they are too many."""
        parts: list[tuple[tuple[int, ...], int]] = [((), self.sizes[d])]
        for slot in reversed(self.slots):
            longer = []
            for inner, left in parts:
                options = [left] if slot == 0 else _lengths(left)
                longer += [
                    ((bound, *inner), math.ceil(left / bound))
                    for bound in options
                    if self._is_allowed(slot, d, bound)
                ]
            if len(longer) > MOST:
                return None
            parts = longer
        return [way for way, _ in parts]

    def _changed(self, d: int, current: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Ways in which two loops are of other lengths."""
        for outer, inner in itertools.permutations(self.slots, 2):
            others = math.prod(b for slot, b in enumerate(current) if slot not in (outer, inner))
            left = math.ceil(self.sizes[d] / others)
            for bound in _lengths(left):
                turns = math.ceil(left / bound)
                if self._is_allowed(inner, d, bound) and self._is_allowed(outer, d, turns):
                    way = list(current)
                    way[inner], way[outer] = bound, turns
                    yield tuple(way)

    def _is_allowed(self, slot: int, d: int, bound: int) -> bool:
        wanted = self.fixed[slot][d]
        most = min(self.most[slot][d], self.limits[slot])
        return bool(bound <= most and wanted in (0, bound))


def _lengths(left: int) -> list[int]:
    """Bounds of a loop over what is left of a dimension: of many, one for each number of turns.

    >>> _lengths(5), _lengths(20)
    ([1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 7, 10, 20])
    """
    if left <= SMALL:
        return list(range(1, left + 1))
    few = math.isqrt(left) + 1
    turns = {*range(1, few), *(math.ceil(left / b) for b in range(1, math.ceil(left / few) + 2))}
    return sorted({math.ceil(left / t) for t in turns})


def _repeated(positions: I8, factors: F64) -> I8:
    return np.repeat(positions, factors.shape[2], axis=2)
