"""Tiles that a bound is looked up for, and what may be done with tensors that are open there."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, final

import numpy as np

from silicast.accelerator._lattice import Lattice
from silicast.core.numerics import F64, I64

Mask = frozenset[int]
"""Open tensors."""
BLOCK = 1 << 20
"""Entries that are worked on at once."""


@final
@dataclass(frozen=True)
class Group:
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
    """

    slot: int
    mask: Mask
    stay: Mask
    group: Group
    is_whole: bool


Target = dict[int, I64]
"""Dimension -> places of its divisors, one for each way."""


class Cells(Protocol):
    """Tiles for which something is looked up: the whole grid, or those of partial mappings."""

    def ways(self, dims: Sequence[int]) -> Iterator[Target]:
        """All places of some dimensions, in blocks that are worked on at once."""

    def of(self, d: int, table: F64, target: Target) -> F64:
        """Entries [own place, target's place] of a table over one dimension's divisors."""

    def own(self, d: int, table: F64) -> F64:
        """Entries of a table over one dimension's divisors."""

    def pick(self, table: F64, target: Target) -> F64:
        """Entries of the tiles that have these places instead of their own."""


@final
class Grid:
    """The whole grid: one way after the other, arrays with the grid's axes."""

    def __init__(self, lattice: Lattice) -> None:
        self.lattice = lattice

    def ways(self, dims: Sequence[int]) -> Iterator[Target]:
        """See :class:`Cells`."""
        for js in itertools.product(*(range(self.lattice.shape[d]) for d in dims)):
            yield {d: np.array([j]) for d, j in zip(dims, js, strict=True)}

    def of(self, d: int, table: F64, target: Target) -> F64:
        """See :class:`Cells`."""
        column: F64 = table[:, target[d][0]]
        return self.lattice.along(d, column)

    def own(self, d: int, table: F64) -> F64:
        """See :class:`Cells`."""
        return self.lattice.along(d, table)

    def pick(self, table: F64, target: Target) -> F64:
        """See :class:`Cells`."""
        found: F64 = table[tuple(
            slice(target[d][0], target[d][0] + 1) if d in target else slice(None)
            for d in range(table.ndim)
        )]  # fmt: skip
        return found


@final
class Rows:
    """Tiles of partial mappings: all ways at once, arrays of (mappings, ways)."""

    def __init__(self, lattice: Lattice, places: I64) -> None:
        self.lattice = lattice
        self.places = places
        self.flat: I64 = lattice.strides @ places

    def ways(self, dims: Sequence[int]) -> Iterator[Target]:
        """See :class:`Cells`."""
        if not dims:
            yield {}
            return
        grids = np.meshgrid(*(np.arange(self.lattice.shape[d]) for d in dims), indexing="ij")
        every = [grid.ravel() for grid in grids]
        step = max(1, BLOCK // max(1, self.flat.shape[0]))
        for begin in range(0, every[0].shape[0], step):
            yield {
                d: places[begin : begin + step] for d, places in zip(dims, every, strict=True)
            }  # fmt: skip

    def of(self, d: int, table: F64, target: Target) -> F64:
        """See :class:`Cells`."""
        found: F64 = table[self.places[d]][:, target[d]]
        return found

    def own(self, d: int, table: F64) -> F64:
        """See :class:`Cells`."""
        found: F64 = table[self.places[d], None]
        return found

    def pick(self, table: F64, target: Target) -> F64:
        """See :class:`Cells`."""
        rows, ways = self.flat, np.zeros(1, dtype=np.int64)
        for d, places in target.items():
            rows = rows - self.lattice.strides[d] * self.places[d]
            ways = ways + self.lattice.strides[d] * places
        found: F64 = table.ravel()[rows[:, None] + ways]
        return found


@final
@dataclass(frozen=True)
class Edges:
    """What open tensors cost, arrays over cells by tensor.

    Attributes:
        close: if a loop moves them and each tile comes anew.
        rest: what the tables do not count of them, at least, if they stay open.
        waits: as ``close`` at least, whatever stands outside.
        overlap: (tensor, dimension) -> share of a window that a step along it keeps.
    """

    close: dict[int, F64]
    rest: dict[int, F64]
    waits: dict[int, F64]
    overlap: dict[tuple[int, int], F64]
