"""Which loops of a memory are worth trying: those whose least possible energy is smallest.

Loops are chosen a few dimensions at a time, the ones that leave tensors in place first. After each,
the tables of :mod:`silicast.accelerator.mapper._outside` say what the rest costs at least; what
exceeds
the limit, or the number that is kept, is dropped before the next dimension multiplies it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from silicast.accelerator.mapper._bounds import Bounds
from silicast.accelerator.mapper._cells import Option, PartialTiles
from silicast.accelerator.mapper._states import States
from silicast.core.numerics import F64, I64

MOST_HELD = 1 << 19
"""Partial choices that are held before the worst are dropped."""


@final
@dataclass(frozen=True)
class Choices:
    """Loops to try.

    Attributes:
        rows: partial mappings that they extend, (n,).
        factors: loop bounds, (dims, n).
        order: number of the slot's order, (n,).
        lost: no loops that were left out lead below it.
    """

    rows: I64
    factors: F64
    order: I64
    lost: float


@final
class _Pool:
    """Partial choices; the best of them are kept."""

    def __init__(self, ranking: _Ranking, keep: int) -> None:
        self.ranking = ranking
        self.keep = keep
        self.rows: list[I64] = []
        self.indices: list[I64] = []
        self.values: list[F64] = []
        self.option: list[I64] = []
        self.lost = math.inf
        self.held = 0

    def add(self, rows: I64, indices: I64, values: F64, option: I64) -> None:
        """Adds choices, (n,) and (dims, n); drops the worst where they are too many to hold."""
        self.rows.append(rows)
        self.indices.append(indices)
        self.values.append(values)
        self.option.append(option)
        self.held += len(rows)
        if self.held > max(MOST_HELD, 2 * self.keep):
            rows, indices, values, option = self.best()
            self.add(rows, indices, values, option)

    def best(self) -> tuple[I64, I64, F64, I64]:
        """Those that are kept; empties the pool."""
        if not self.rows:
            none = np.zeros(0, dtype=np.int64)
            return none, np.zeros((0, 0), dtype=np.int64), np.zeros(0), none
        rows, values = np.concatenate(self.rows), np.concatenate(self.values)
        positions = np.concatenate(self.indices, axis=1)
        option = np.concatenate(self.option)
        self.rows, self.indices, self.values, self.option, self.held = [], [], [], [], 0
        rank = self.ranking(rows, positions, values)
        chosen = np.flatnonzero(rank < self.ranking.known)
        if len(chosen) > self.keep:
            order = chosen[np.argsort(rank[chosen], kind="stable")]
            self.lost = min(self.lost, float(rank[order[self.keep]]))
            chosen = order[: self.keep]
        return rows[chosen], positions[:, chosen], values[chosen], option[chosen]


@final
class _Ranking:
    """The objective of partial choices at least: their energy, and the time that loops take."""

    def __init__(self, bounds: Bounds, states: States, slot: int, known: float) -> None:
        self.bounds = bounds
        self.known = known
        self.slot = slot
        self.tiles = np.prod(states.tile, axis=0)
        self.steps = states.steps
        self.cycles = bounds.least_cycles(states, slot + 1)
        facts = bounds.facts
        self.counted: F64 | None = None
        if facts.cycle_pj:
            lattice = bounds.outside.lattice
            flat = lattice.strides @ lattice.indices(states.tile)
            self.counted = bounds.outside.tiles.whole_time(slot + 1).ravel()[flat]
        self.has_time = facts.objective == "edp" or facts.cycle_pj > 0

    @property
    def most(self) -> F64:
        """Energy that a choice must be below for each partial mapping that it extends."""
        if self.bounds.facts.objective == "edp":
            return self.known / self.cycles
        return np.full(len(self.cycles), self.known)

    def __call__(self, rows: I64, indices: I64, energy: F64) -> F64:
        """Objectives of choices, (n,), (dims, n), (n,)."""
        if not self.has_time:
            return energy
        facts = self.bounds.facts
        tiles = np.ones(indices.shape)
        for d, divisors in enumerate(self.bounds.outside.lattice.divisors):
            tiles[d] = divisors[indices[d]]
        turns = np.prod(tiles, axis=0) / self.tiles[rows]
        cycles = self.bounds.cycles_of(self.steps[rows] * turns, facts.extents / tiles, self.slot)
        if self.counted is None:
            return energy * np.maximum(cycles, self.cycles[rows])
        outside, strides = self.bounds.outside, self.bounds.outside.lattice.strides
        counted = (
            outside.tiles.whole_time(self.slot).ravel()[strides @ indices] - self.counted[rows]
        )
        more = (cycles - self.cycles[rows]) * facts.cycle_pj
        energy = energy + np.maximum(0.0, more - counted)
        if facts.objective == "edp":
            return energy * np.maximum(cycles, self.cycles[rows])
        return energy


def promising(bounds: Bounds, states: States, slot: int, known: float, keep: int) -> Choices:
    """Loops of the memory of ``slot`` that may lead to objectives below ``known``.

    Args:
        states: decided down to ``slot + 1``.
        keep: loops that are kept, at most.
    """
    lattice = bounds.outside.lattice
    positions = lattice.indices(states.tile)
    left = bounds.facts.extents / states.tile
    sure = bounds.sure(states, slot + 1)
    options: list[Option] = []
    ranking = _Ranking(bounds, states, slot, known)
    most = ranking.most
    pool = _Pool(ranking, keep)
    for mask, rows in bounds.masks(states):
        cells = PartialTiles(lattice, positions[:, rows])
        sure[rows] -= bounds.time(slot + 1, cells)
        edges = bounds.edges(states.take(rows), slot + 1, mask, cells, left[:, rows])
        room = (most - sure)[rows, None]
        for option in bounds.outside.options(slot, mask, edges):
            for target, cost in bounds.outside.costs(option, cells, edges):
                row, way = np.nonzero(cost < room)
                to = positions[:, rows[row]]
                for d, divisors in target.indices.items():
                    to[d] = divisors[way]
                pool.add(
                    rows[row], to, cost[row, way] + sure[rows[row]], np.full(len(row), len(options))
                )
            options.append(option)
    done = _Pool(ranking, keep)
    rows, to, values, numbers = pool.best()
    for number in np.unique(numbers):
        mine = np.flatnonzero(numbers == number)
        _finish(bounds, options[number], number, rows[mine], to[:, mine], values[mine], most, done)
    rows, to, values, numbers = done.best()
    return _with_orders(bounds, options, positions, rows, to, numbers, min(pool.lost, done.lost))


def _finish(
    bounds: Bounds,
    option: Option,
    number: int,
    rows: I64,
    to: I64,
    values: F64,
    most: F64,
    done: _Pool,
) -> None:
    """Decides the dimensions that an option leaves to its table, one after the other."""
    outside, slot = bounds.outside, option.slot
    lattice = outside.lattice
    decided = frozenset(option.group.dims)
    left = (
        []
        if option.is_whole
        else sorted(outside.tiles.active(slot) - decided, key=lambda d: lattice.shape[d])
    )
    pool = _Pool(done.ranking, done.keep)
    for d in left:
        flat = lattice.strides @ to
        sure = values - outside.reduced(slot, option.stay, decided).ravel()[flat]
        decided = decided | {d}
        ways = np.arange(lattice.shape[d])
        there = flat[:, None] + lattice.strides[d] * (ways - to[d][:, None])
        value = sure[:, None] + outside.reduced(slot, option.stay, decided).ravel()[there]
        allowed = outside.tiles.targets(slot, d)[to[d]]
        row, way = np.nonzero(allowed & (value < most[rows, None]))
        to = to[:, row]
        to[d] = way
        pool.add(rows[row], to, value[row, way], np.full(len(row), number))
        rows, to, values, _ = pool.best()
    done.lost = min(done.lost, pool.lost)
    done.add(rows, to, values, np.full(len(rows), number))


def _with_orders(
    bounds: Bounds,
    options: list[Option],
    indices: I64,
    rows: I64,
    to: I64,
    option: I64,
    lost: float,
) -> Choices:
    """Every choice with the orders of its option; each once."""
    lattice = bounds.outside.lattice
    again: list[I64] = [np.zeros(0, dtype=np.int64)]
    order: list[I64] = [np.zeros(0, dtype=np.int64)]
    for number in np.unique(option):
        mine = np.flatnonzero(option == number)
        for each in options[number].group.orders:
            again.append(mine)
            order.append(np.full(len(mine), each))
    chosen, orders = np.concatenate(again), np.concatenate(order)
    rows = rows[chosen]
    if not len(rows):
        return Choices(rows, np.ones((len(indices), 0)), orders, lost)
    to = to[:, chosen]
    key = (rows * lattice.cells + lattice.strides @ to) * (int(orders.max()) + 1) + orders
    _, first = np.unique(key, return_index=True)
    rows, to, orders = rows[first], to[:, first], orders[first]
    factors = np.ones(to.shape)
    for d, divisors in enumerate(lattice.divisors):
        factors[d] = divisors[to[d]] / divisors[indices[d, rows]]
    return Choices(rows, factors, orders, lost)
