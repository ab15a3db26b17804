"""Tiles that a bound is looked up for, and what may be done with tensors that are open there."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, final

import numpy as np

from silicast.accelerator.mapper._lattice import Lattice
from silicast.core.numerics import F64, I64

Mask = frozenset[int]
"""Open tensors."""
Rides = tuple[tuple[int, float], ...]
"""(Tensor, energy of a word) of edges further in that come anew only when an open one does."""
BLOCK = 1 << 18
"""Entries that are worked on at once."""


@final
@dataclass(frozen=True)
class LoopOrderGroup:
    """Orders of a memory's loops that leave the same tensors in place.

    Attributes:
        dims: loops that matter, innermost.
        stays: tensor -> those of them during which it stays.
        starts: loops that may stand innermost and slide a window.
        orders: numbers of the orders.
    """

    dims: tuple[int, ...]
    stays: tuple[tuple[int, frozenset[int]], ...]
    starts: tuple[int, ...]
    orders: tuple[int, ...]


@final
@dataclass(frozen=True)
class Option:
    """A way in which a memory's loops treat open tensors.

    Attributes:
        slot: of the memory.
        mask: open before.
        stay: of these, open after.
        group: loops that matter.
        is_whole: there are no other loops.
        rides: of those in ``stay``, after.
    """

    slot: int
    mask: Mask
    stay: Mask
    group: LoopOrderGroup
    is_whole: bool
    rides: Rides = ()


@final
class Target:
    """Places that some dimensions' extents are made to have.

    Attributes:
        indices: dimension -> indices of its divisors, one for each way.
        before: the part of the grid that can lead there, if there is one way.
        at: the part of a table that holds it, likewise.
    """

    def __init__(self, indices: dict[int, I64], ends: tuple[int, ...] = ()) -> None:
        self.indices = indices
        self.before = tuple(
            slice(0, int(indices[d][0]) + 1) if d in indices else slice(None)
            for d in range(len(ends))
        )
        self.at = tuple(
            slice(int(indices[d][0]), int(indices[d][0]) + 1) if d in indices else slice(0, end)
            for d, end in enumerate(ends)
        )


HERE = Target({})
"""Where a tile is."""


class Cells(Protocol):
    """Tiles for which something is looked up: the whole grid, or those of partial mappings."""

    def ways(self, dims: Sequence[int]) -> Iterator[Target]:
        """All indices of some dimensions, in blocks that are worked on at once."""

    def lookup(self, d: int, table: F64, target: Target) -> F64:
        """Entries [own place, target's place] of a table over one dimension's divisors."""

    def own(self, d: int, table: F64) -> F64:
        """Entries of a table over one dimension's divisors."""

    def pick(self, table: F64, target: Target) -> F64:
        """Entries of the tiles that have these indices instead of their own."""

    def part(self, values: F64, target: Target) -> F64:
        """Values of the cells that can lead to a target, of values of all."""

    def least(self, best: F64 | None, target: Target, cost: F64) -> F64:
        """The least by cell of ``best`` and of what the ways to a target cost."""


@final
class GridCorner:
    """A corner of the grid: one way after the other, arrays with the grid's axes."""

    def __init__(self, lattice: Lattice, ends: tuple[int, ...]) -> None:
        self.lattice = lattice
        self.ends = ends
        self.corner = tuple(slice(0, end) for end in ends)

    def cut(self, table: F64) -> F64:
        """The corner of an array over the grid, which may be broadcast."""
        cut: F64 = table[self.corner]
        return cut

    def ways(self, dims: Sequence[int]) -> Iterator[Target]:
        for js in itertools.product(*(range(self.lattice.shape[d]) for d in dims)):
            yield Target({d: np.array([j]) for d, j in zip(dims, js, strict=True)}, self.ends)

    def lookup(self, d: int, table: F64, target: Target) -> F64:
        end = int(target.indices[d][0]) + 1
        column: F64 = table[: min(self.ends[d], end), end - 1]
        return self.lattice.along(d, column)

    def own(self, d: int, table: F64) -> F64:
        return self.lattice.along(d, table[: self.ends[d]])

    def pick(self, table: F64, target: Target) -> F64:
        pick: F64 = table[target.at]
        return pick

    def part(self, values: F64, target: Target) -> F64:
        """See :class:`Cells`; what divides a divisor stands before it."""
        if values.ndim != len(self.ends):
            return values
        part: F64 = values[target.before]
        return part

    def least(self, best: F64 | None, target: Target, cost: F64) -> F64:
        if best is None:
            best = np.full(self.ends, np.inf)
        part = self.part(best, target)
        np.minimum(part, cost, out=part)
        return best


@final
class Places:
    """Tiles by their indices along some dimensions; of the others, all of a corner."""

    def __init__(self, indices: dict[int, I64], ends: tuple[int, ...]) -> None:
        self.indices = indices
        self.ends = ends
        self.corner = tuple(
            slice(None) if d in indices else slice(0, end) for d, end in enumerate(ends)
        )

    def __call__(self, table: F64) -> F64:
        """Their entries of an array over the grid, which may be broadcast."""
        if table.size == 1:
            return table
        call: F64 = table[self.corner]
        for d, positions in self.indices.items():
            if call.shape[d] > 1:
                call = call.take(positions, axis=d)
        return call

    def lower(self, table: F64, values: F64) -> None:
        """Lowers their entries of an array over the whole grid to values."""
        last = len(self.ends) - 1
        where = tuple(  # as np.ix_, in a third of its time
            _along(end, d, last)
            if (positions := self.indices.get(d)) is None
            else positions.reshape((-1,) + (1,) * (last - d))
            for d, end in enumerate(self.ends)
        )
        table[where] = np.minimum(table[where], values)


@lru_cache(maxsize=4096)
def _along(end: int, d: int, last: int) -> I64:
    """All indices before an end, along one axis of many."""
    return np.arange(end).reshape((-1,) + (1,) * (last - d))


@final
class PartialTiles:
    """Tiles of partial mappings: all ways at once, arrays of (mappings, ways)."""

    def __init__(self, lattice: Lattice, indices: I64) -> None:
        self.lattice = lattice
        self.indices = indices
        self.flat: I64 = lattice.strides @ indices

    def ways(self, dims: Sequence[int]) -> Iterator[Target]:
        if not dims:
            yield Target({})
            return
        grids = np.meshgrid(*(np.arange(self.lattice.shape[d]) for d in dims), indexing="ij")
        every = [grid.ravel() for grid in grids]
        step = max(1, BLOCK // max(1, self.flat.shape[0]))
        for begin in range(0, every[0].shape[0], step):
            yield Target(
                {
                    d: positions[begin : begin + step]
                    for d, positions in zip(dims, every, strict=True)
                }
            )

    def lookup(self, d: int, table: F64, target: Target) -> F64:
        result: F64 = table[self.indices[d]][:, target.indices[d]]
        return result

    def own(self, d: int, table: F64) -> F64:
        result: F64 = table[self.indices[d], None]
        return result

    def pick(self, table: F64, target: Target) -> F64:
        rows, ways = self.flat, np.zeros(1, dtype=np.int64)
        for d, positions in target.indices.items():
            rows = rows - self.lattice.strides[d] * self.indices[d]
            ways = ways + self.lattice.strides[d] * positions
        pick: F64 = table.ravel()[rows[:, None] + ways]
        return pick

    def part(self, values: F64, target: Target) -> F64:
        del target
        return values

    def least(self, best: F64 | None, target: Target, cost: F64) -> F64:
        del target
        least: F64 = cost.min(axis=1)
        return least if best is None else np.minimum(best, least)


@final
@dataclass(frozen=True)
class OpenTensorCosts:
    """What open tensors cost, arrays over cells by tensor.

    Attributes:
        close: if a loop moves them and each tile comes anew.
        uncounted: what the tables do not count of them, at least, if they stay open.
        overlap: (tensor, dimension) -> share of a window that a step along it keeps.
    """

    close: dict[int, F64]
    uncounted: dict[int, F64]
    overlap: dict[tuple[int, int], F64]
