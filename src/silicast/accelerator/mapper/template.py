"""A mapping for sizes that were not searched: a searched mapping, cut and stretched.

Loops are cut from the innermost outwards where a dimension is shorter than they reach, and then
evened out: 384 in two turns of 256 are two of 192. What is
left of a longer one is taken by loops that the mapping has: in space as far as the axis goes, then
by the longest in time where tiles still fit, else by those of main memory. Instances that a shorter
dimension leaves without work take turns of loops inside of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from silicast.accelerator.counting.accounting import Place
from silicast.accelerator.counting.einsum import Einsum, EinsumTensor, Rank
from silicast.accelerator.counting.mapping import MappingBatch
from silicast.accelerator.design.architecture import Architecture
from silicast.accelerator.mapper.constraints import Constraints
from silicast.core import xp
from silicast.core.numerics import F64

Number = Any
"""A number, or an array of one for every row."""


@final
@dataclass(frozen=True, eq=False)
class Template:
    """A searched mapping.

    Attributes:
        einsum, arch, rules: what was mapped, on what, and under which rules.
        batch: the mapping, a batch of one.
        sizes: of the dimensions, (dims,).
        gap: how much less time another mapping may take, relative to this one's.
    """

    einsum: Einsum
    arch: Architecture
    rules: Constraints
    batch: MappingBatch
    sizes: F64
    gap: float

    @cached_property
    def bounds(self) -> dict[Place, float]:
        """Loops that turn, innermost first."""
        factor = self.batch.factors[:, :, 0]
        turn = [(slot, dim) for slot, dim in np.argwhere(factor > 1.0).tolist()]
        turn.sort(key=lambda loop: (loop[0], self.position(loop)), reverse=True)
        return {position: float(factor[position]) for position in turn}

    def position(self, position: Place) -> int:
        """Of a loop among those of its slot: larger = further in. Main memory's new loops stand
        outside.
        """
        slot, dim = position
        if self.batch.factors[slot, dim, 0] > 1.0:
            return len(self.einsum.dims) + int(self.batch.positions[slot, dim, 0])
        return dim

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """Loops that may turn for some sizes, outermost first."""
        main = [(0, dim) for dim in range(len(self.einsum.dims))]
        every = {*self.bounds, *main}
        return tuple(sorted(every, key=lambda loop: (loop[0], self.position(loop))))

    @cached_property
    def growing(self) -> list[list[Place]]:
        """Loops that take what a larger size leaves over, of each dimension in this order: those in
        space; then the longest in time, further out where two are alike. Those of main memory, and
        those that a rule fixes, are left out.
        """
        growing: list[list[Place]] = []
        rules = self.rules.on(self.einsum)
        for dim, name in enumerate(self.einsum.dims):
            loops = [
                (0.0 if self.arch.slots[slot].is_spatial else -bound, slot)
                for (slot, d), bound in self.bounds.items()
                if slot and d == dim and name not in rules.rule(self.arch, slot).fixed
            ]
            in_time = [(bound, slot) for bound, slot in loops if bound < 0.0]
            in_space = [(bound, slot) for bound, slot in loops if bound == 0.0]
            growing.append([(slot, dim) for _, slot in [*sorted(in_space), *sorted(in_time)]])
        return growing

    @cached_property
    def most(self) -> dict[Place, float]:
        """Longest loops that rules allow."""
        rules, dims = self.rules.on(self.einsum), self.einsum.dims
        return {
            (slot, dim): float(rules.rule(self.arch, slot).most.get(dims[dim], math.inf))
            for row in self.growing
            for slot, dim in row
        }

    @cached_property
    def rooms(self) -> list[tuple[int, float, list[EinsumTensor]]]:
        """Memories on the chip that can be full: slot, words of room, and tensors kept.

        Banks hold one tensor only: each tensor may leave one of them nearly empty.
        """
        rooms = []
        for level, memory in enumerate(self.arch.memories):
            if level and memory.capacity_words is not None:
                tensors = [t for t in self.einsum.tensors if t.name in self.batch.keep[level]]
                wasted = len(tensors) * ((memory.bank_words or 1.0) - 1.0)
                rooms.append((self.arch.memory_slots[level], memory.usable_words - wasted, tensors))
        return rooms

    def fitted(self, sizes: Sequence[Number]) -> dict[Place, Number]:
        """The loop bounds for other sizes: numbers, or arrays of shape (rows,); those that are
        not there are 1. No loop is longer than what its inner ones leave of its dimension.
        """
        factors: dict[Place, Number] = {}
        covered: list[Number] = [1.0] * len(sizes)
        for position, bound in self.bounds.items():
            dim = position[1]
            factors[position] = xp.minimum(bound, xp.ceil(sizes[dim] / covered[dim]))
            covered[dim] = covered[dim] * factors[position]
        for outer, inner in self.pairs:
            self._spread(factors, sizes, outer, inner)
        for dim, size in enumerate(sizes):
            short = covered[dim] < size
            if short.__class__ is not np.ndarray:
                if short:
                    self._grow(factors, covered[dim], sizes, dim)
            elif len(rows := np.flatnonzero(short)):
                few = {position: _rows_of(bound, rows) for position, bound in factors.items()}
                self._grow(few, _rows_of(covered[dim], rows), [each[rows] for each in sizes], dim)
                for position in [position for position in few if position[1] == dim]:
                    every = factors.get(position)
                    every = np.ones(len(size)) if every is None else every
                    every[rows] = few[position]
                    factors[position] = every
        for dim, size in enumerate(sizes):
            self._even(factors, size, dim)
        return factors

    def _even(self, factors: dict[Place, Number], size: Number, dim: int) -> None:
        """Shortens loops in time whose last turns would find nothing left, the longest first: the
        turns outside stay as many and become alike. No count rises, for every tile is at most as
        large as it was.
        """
        covered: Number = 1.0
        for position, bound in factors.items():
            if position[1] == dim:
                covered = covered * bound
        for position in self.growing[dim]:
            if not xp.any_of(covered > size):
                return
            factor = factors.get(position)
            if factor is None or self.arch.slots[position[0]].is_spatial:
                continue
            others = covered / factor
            factors[position] = xp.minimum(factor, xp.ceil(size / others))
            covered = others * factors[position]

    @cached_property
    def pairs(self) -> list[tuple[Place, Place]]:
        """Loops in space with those in time inside of them over the same dimension."""
        slots = self.arch.slots
        return [
            (outer, inner)
            for outer in self.bounds
            for inner in self.bounds
            if outer[0] < inner[0]
            and outer[1] == inner[1]
            and outer in self.most
            and inner in self.most
            and slots[outer[0]].is_spatial
            and not slots[inner[0]].is_spatial
        ]

    def _spread(
        self, factors: dict[Place, Number], sizes: Sequence[Number], outer: Place, inner: Place
    ) -> None:
        """Turns in time go to instances that a shorter dimension, or others, leave without work,
        where both together stay within what was searched.
        """
        free: Number = min(self.arch.slots[outer[0]].limit, self.most[outer])
        for other, bound in factors.items():
            if other[0] == outer[0] and other != outer:
                free = xp.floor(free / bound)
        both = factors[outer] * factors[inner]
        turns = xp.ceil(both / free)
        wide = xp.ceil(both / turns)
        searched = self.bounds[outer] * self.bounds[inner]
        better = (turns < factors[inner]) & (turns * wide <= searched)
        if xp.any_of(better):
            factors[inner] = xp.where(better, turns, factors[inner])
            factors[outer] = xp.where(better, wide, factors[outer])
            dim = outer[1]
            covered = self._cut(factors, sizes[dim], dim)
            if (0, dim) in factors:
                factors[0, dim] = xp.minimum(factors[0, dim], xp.ceil(sizes[dim] / covered))

    @staticmethod
    def _cut(factors: dict[Place, Number], size: Number, dim: int) -> Number:
        """Cuts loops over a dimension that are longer than what those inside leave.

        Returns:
            what all but main memory's cover.
        """
        covered: Number = 1.0
        for position in sorted(
            (position for position in factors if position[1] == dim), reverse=True
        ):
            if position[0]:
                factors[position] = xp.minimum(factors[position], xp.ceil(size / covered))
                covered = covered * factors[position]
        return covered

    def _grow(
        self, factors: dict[Place, Number], covered: Number, sizes: Sequence[Number], dim: int
    ) -> None:
        """Lengthens loops of a dimension until they cover it, or none can be longer; main memory's
        take what is left.
        """
        size, tiles = sizes[dim], _Tiles(self, factors, sizes, dim)
        for position in self.growing[dim]:
            if not xp.any_of(covered < size):
                break
            factor = factors.get(position, 1.0)
            wanted = xp.ceil(size / (covered / factor))
            most = xp.minimum(wanted, tiles.longest(position, factor))
            # The same number of turns outside, all nearly alike.
            turns = xp.ceil(wanted / xp.maximum(most, 1.0))
            longer = xp.maximum(factor, xp.minimum(most, xp.ceil(wanted / turns)))
            covered = covered / factor * longer
            factors[position] = longer
            tiles.grow(position[0], longer / factor)
        covered = self._cut(factors, size, dim)
        factors[0, dim] = xp.ceil(size / covered)

    def mappings(self, sizes: F64) -> MappingBatch:
        """The mapping for each of many sizes, (dims, rows)."""
        factors = np.ones((*self.batch.factors.shape[:2], sizes.shape[1]))
        positions = np.zeros(factors.shape, dtype=np.int8)
        for position, bound in self.fitted(list(sizes)).items():
            factors[position] = bound
        for position in self.places:
            positions[position] = self.position(position)
        return MappingBatch(factors, positions, self.batch.keep)


def _rows_of(values: Number, rows: NDArray[np.int64]) -> Number:
    return values[rows] if values.__class__ is np.ndarray else values


@final
class _Tiles:
    """Room for longer loops of one dimension, the others being as they are."""

    def __init__(
        self, template: Template, factors: Mapping[Place, Number], sizes: Sequence[Number], dim: int
    ) -> None:
        self.template, self.factors, self.sizes, self.dim = template, factors, sizes, dim
        self.extents = {at: self._extent(at, dim) for at, _, _ in template.rooms}
        """Of the tile at the top of each memory that can be full, along the dimension."""

    def _extent(self, at: int, dim: int) -> Number:
        number: Number = 1.0
        for (slot, d), bound in self.factors.items():
            if d == dim and slot >= at:
                number = number * bound
        return number

    def grow(self, slot: int, times: Number) -> None:
        """A loop of a slot is so many times as long."""
        for at in self.extents:
            if at <= slot:
                self.extents[at] = self.extents[at] * times

    @cached_property
    def filling(self) -> list[tuple[int, Number, Number]]:
        """Of each memory: its slot, the words that are left for what grows with the dimension, and
        by how many words that grows for each step along it.
        """
        filling = []
        dims = self.template.einsum.dims
        for at, room, tensors in self.template.rooms:
            whole = [
                1.0 if d == self.dim else xp.minimum(self._extent(at, d), size)
                for d, size in enumerate(self.sizes)
            ]
            fixed: Number = 0.0
            slope: Number = 0.0
            for tensor in tensors:
                volume: Number = 1.0
                per_step: Number = 0.0
                for rank in tensor.ranks:
                    span, step = _span(rank, dims, whole, self.dim)
                    per_step = per_step * span + volume * step
                    volume = volume * span
                fixed, slope = fixed + volume, slope + per_step
            filling.append((at, room - fixed, slope))
        return filling

    def longest(self, position: Place, number: Number) -> Number:
        """How long a loop can be at most: instances of its axis, rules, and tiles that fit."""
        slot = self.template.arch.slots[position[0]]
        most: Number = slot.limit
        if slot.is_spatial:
            for other, bound in self.factors.items():
                if other[0] == position[0] and other != position:
                    most = xp.floor(most / bound)
        most = xp.minimum(most, self.template.most[position])
        for at, left, slope in self.filling:
            if at <= position[0]:
                turns = xp.floor(left / xp.maximum(slope * (self.extents[at] / number), 1.0))
                fits = xp.where(left >= slope * self.sizes[self.dim], math.inf, turns)
                most = xp.minimum(most, fits)
        return most


def _span(
    rank: Rank, dims: Sequence[str], whole: Sequence[Number], dim: int
) -> tuple[Number, float]:
    """Length of a window less what grows with a dimension, and by how much that grows."""
    span: Number = 1.0
    step = 0.0
    for name, times in rank:
        d = dims.index(name)
        if d == dim:
            step = float(times)
            span = span - step
        else:
            span = span + times * (whole[d] - 1.0)
    return span, step
