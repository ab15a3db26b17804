"""What mappings move: reads, fills and updates of every tensor at every memory, counted exactly.

docs/explanation/accelerator-accounting.md derives the counts. All are totals over the instances
of a memory, in words: of many mappings at once, as arrays, or of all mappings with the same loops,
as formulas of their bounds (:mod:`~silicast.accelerator.counting.closed_form`). Nothing here
loops over mappings.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import final

import numpy as np
from numpy.typing import NDArray

from silicast.accelerator.counting.einsum import Einsum, EinsumTensor, Rank
from silicast.accelerator.counting.formula import Number, ceil, floor, gcd, maximum, minimum
from silicast.accelerator.counting.mapping import MappingBatch
from silicast.accelerator.design.architecture import Architecture, FanOut
from silicast.core.numerics import F64

Flags = NDArray[np.bool_]
Flag = bool | Flags
"""What holds for all mappings, for none, or for some of them."""
Place = tuple[int, int]
"""Slot and dimension of a loop."""
NO_LOOPS: Mapping[Place, Flag] = MappingProxyType({})

CHUNK = 8192
"""Mappings counted at a time: what is between two sums stays in the cache."""


@final
@dataclass(frozen=True)
class AccessCounts:
    """Counts of many mappings; zero where a memory does not keep a tensor.

    Those of formulas have no axis of mappings.

    Attributes:
        reads, fills, updates: words, all instances together, shape (memories, tensors, mappings).
        tiles: words of one instance's tile, same shape.
        distinct: words of its output that one instance meets at least once, all instances
            together, same shape; zero for operands.
        used: instances of each memory that work, shape (memories, mappings).
        units: compute units that work, shape (mappings,).
        steps: iterations of the loops in time, shape (mappings,).
        hops: words that cross each fan-out's tensors, shape (fan-outs, tensors, mappings).
    """

    reads: F64
    fills: F64
    updates: F64
    tiles: F64
    distinct: F64
    used: F64
    units: F64
    steps: F64
    hops: F64

    def __len__(self) -> int:
        return int(self.steps.shape[0])


def account(
    einsum: Einsum, architecture: Architecture, batch: MappingBatch, sizes: F64 | None = None
) -> AccessCounts:
    """Counts what each mapping of a batch moves.

    Args:
        batch: of mappings that cover the einsum; whether their tiles fit is not asked here.
        sizes: of the dimensions, (dims, mappings), where every mapping is of a problem of its own;
            left out, the einsum's.
    """
    if len(batch) <= CHUNK:
        return Count(einsum, architecture, batch, sizes).traffic()
    pieces = [slice(start, start + CHUNK) for start in range(0, len(batch), CHUNK)]
    parts = [
        Count(
            einsum, architecture, batch.take(rows), None if sizes is None else sizes[:, rows]
        ).traffic()
        for rows in pieces
    ]
    return AccessCounts(
        *(
            np.concatenate([getattr(part, name) for part in parts], axis=-1)
            for name in AccessCounts.__dataclass_fields__
        )
    )


@final
@dataclass(frozen=True)
class Edge:
    """How one tensor comes to one place: a memory, or the compute units (``slot`` = slots)."""

    tensor: EinsumTensor
    slot: int


class Count:
    """The counts of one chunk; every method answers for all of its mappings at once.

    Args:
        batch: which loops turn, in which order.
        sizes: of the dimensions, (dims, mappings); left out, the einsum's.
        factors: of the loops, (slots, dims), as quantities of a formula: none is longer than what
            is left of its dimension. Left out, those of the batch.
    """

    def __init__(
        self,
        einsum: Einsum,
        architecture: Architecture,
        batch: MappingBatch,
        sizes: Sequence[Number] | F64 | None,
        factors: NDArray[np.object_] | None = None,
    ) -> None:
        self.einsum = einsum
        column = np.array([float(size) for size in einsum.bounds.values()])[:, None]
        self.bounds = column if sizes is None else sizes
        """Sizes of the dimensions: one column, or one for every mapping."""
        self.arch = architecture
        self.batch = batch
        self.size = len(batch)
        self.slots = architecture.slots
        self.index = {dim: i for i, dim in enumerate(einsum.dims)}
        self.exact = factors is None and bool((batch.factors.prod(axis=0) == self.bounds).all())
        self.factors = batch.factors if factors is None else factors
        self.tiles = np.full(
            (len(self.slots) + 1, *self.factors.shape[1:]), 1.0, self.factors.dtype
        )
        """Extent of the tile at the top of each slot, and of one point, (slots + 1, dims, n)."""
        cuts = factors is None and not self.exact
        if cuts:
            self.factors = self.factors.copy()
        for slot in range(len(self.slots) - 1, -1, -1):
            if cuts:  # a loop ends where its dimension does
                turns = np.ceil(self.bounds / self.tiles[slot + 1])
                np.minimum(self.factors[slot], turns, out=self.factors[slot])
            np.multiply(self.tiles[slot + 1], self.factors[slot], out=self.tiles[slot])
        self.turns: NDArray[np.bool_] = np.greater(
            self.factors if factors is None else batch.factors, 1.0
        )
        """Loops of more than one iteration, shape (slots, dims, mappings)."""
        self.busy: NDArray[np.bool_] = np.any(self.turns, axis=2)
        """Loops that turn in any mapping, shape (slots, dims)."""
        self.windows: dict[tuple[str, int], Number] = {}
        self.stays: dict[tuple[str, int], dict[Place, Flag]] = {}
        self.seen: dict[tuple[int, tuple[int, ...], tuple[Flag, ...]], Number] = {}

    def extent(self, slot: int, dim: str) -> Number:
        """Of a tile at the top of ``slot``, never more than the dimension has."""
        index = self.index[dim]
        return minimum(self.tiles[slot, index], self.bounds[index])

    def volume(self, tensor: EinsumTensor, slot: int) -> Number:
        """Words of ``tensor``'s tile at the top of ``slot``."""
        words = math.prod([self.extent(slot, dim) for dim in tensor.plain_dims], start=1.0)
        return words * math.prod([self.span(rank, slot) for rank in tensor.windows], start=1.0)

    def span(self, rank: Rank, slot: int) -> Number:
        """Length of a window that a tile at the top of ``slot`` covers."""
        length: Number = 1.0
        for dim, step in rank:
            length = length + float(step) * (self.extent(slot, dim) - 1.0)
        return length

    def staying(self, edge: Edge) -> dict[Place, Flag]:
        """Loops during which the tile stays: those further in than every loop that moves it."""
        key = (edge.tensor.name, edge.slot)
        if key in self.stays:
            return self.stays[key]
        stays: dict[Place, Flag] = {}
        self.stays[key] = stays
        moves = {self.index[dim] for dim in edge.tensor.dims}
        open_: Flags = np.ones(self.size, dtype=bool)
        for slot in range(edge.slot - 1, -1, -1):
            if self.slots[slot].is_spatial or not self.busy[slot].any():
                continue
            last = self.innermost(slot, moves)
            for dim in range(len(self.einsum.dims)):
                if dim not in moves and self.busy[slot, dim]:
                    flag = settled(open_ & (self.batch.positions[slot, dim] > last))
                    if flag is not False:
                        stays[slot, dim] = flag
            open_ = open_ & (last < 0)
            if not open_.any():
                break
        return stays

    def innermost(self, slot: int, dims: set[int]) -> NDArray[np.int8]:
        """Position of the innermost loop of a slot that turns over one of the dimensions, or -1."""
        last = np.full(self.size, -1, dtype=np.int8)
        for dim in dims:
            if self.busy[slot, dim]:
                turns = self.turns[slot, dim]
                np.maximum(last, np.where(turns, self.batch.positions[slot, dim], -1), out=last)
        return last

    def visits(
        self,
        dim: str,
        slot: int,
        staying: Mapping[Place, Flag] = NO_LOOPS,
        merged: frozenset[int] = frozenset(),
    ) -> Number:
        """Times that tiles at the top of ``slot`` start along one dimension.

        Args:
            staying: loops that do not count, per mapping.
            merged: slots whose loops do not count, for all mappings.
        """
        index = self.index[dim]
        loops = [s for s in range(slot) if self.busy[s, index]]
        without = [True if s in merged else staying.get((s, index), False) for s in loops]
        while without and without[-1] is True:  # whole or cut, a tile that does not count is one
            slot = loops.pop()
            without.pop()
        if not all(flag.__class__ is bool for flag in without):
            return self._visits(index, loops, without, slot)
        key = (index, tuple(loops), tuple(without))
        if key not in self.seen:
            self.seen[key] = self._visits(index, loops, without, slot)
        return self.seen[key]

    def _visits(self, index: int, loops: list[int], without: list[Flag], slot: int) -> Number:
        if not loops:
            return 1.0
        if self.exact:
            factors = zip(without, [self.factors[s, index] for s in loops], strict=True)
            return math.prod(
                [chosen(flag, 1.0, factor) for flag, factor in factors if flag is not True],
                start=1.0,
            )
        if all(flag is False for flag in without):
            return ceil(self.bounds[index] / self.tiles[slot, index])
        return self._walked(index, loops, without, slot)

    def _walked(self, index: int, loops: list[int], without: list[Flag], slot: int) -> Number:
        """Visits where loops that do not count stand outside of some that do: whole tiles, and the
        one that is cut short.
        """
        whole: Number = 0.0
        remaining: Number = self.bounds[index]
        start = 0
        while start < len(loops):
            flag, end = without[start], start + 1
            while end < len(loops) and flag.__class__ is bool and without[end] is flag:
                end += 1
            # The tile at the top of the next loop; loops of one turn between change nothing.
            inner = self.tiles[loops[end] if end < len(loops) else slot, index]
            if start == 0 and flag is True and self.turns[loops[0], index].all():
                whole, remaining = 1.0, 0.0  # it turns, so that its first tile is whole
            else:
                fits = floor(remaining / inner)
                turns = math.prod([self.factors[s, index] for s in loops[start:end]], start=1.0)
                fits_any = minimum(fits, 1.0)
                whole, remaining = (
                    chosen(flag, whole + fits_any, whole * turns + fits),
                    chosen(flag, remaining * (1.0 - fits_any), remaining - fits * inner),
                )
            start = end
        return whole + minimum(remaining, 1.0)

    def moved(self, edge: Edge, merged: frozenset[int] = frozenset()) -> Number:
        """Words of a tensor that come to all instances of a place.

        Args:
            merged: slots of fan-outs whose instances share what they all take.
        """
        tensor, slot = edge.tensor, edge.slot
        staying = NO_LOOPS if slot == len(self.slots) else self.staying(edge)
        words = self._over_others(tensor, slot, staying, merged)
        words = words * math.prod(
            [self.bounds[self.index[d]] for d in tensor.plain_dims], start=1.0
        )
        if tensor.windows:
            words = words * self.window_words(edge)
            if merged:
                words = words * self.shared(edge, merged)
        return words

    def _over_others(
        self, tensor: EinsumTensor, slot: int, staying: Mapping[Place, Flag], merged: frozenset[int]
    ) -> Number:
        """Visits along the dimensions that the tensor does not have."""
        others = [dim for dim in self.einsum.dims if dim not in tensor.dims]
        return math.prod([self.visits(dim, slot, staying, merged) for dim in others], start=1.0)

    def window_words(self, edge: Edge) -> Number:
        """Words along all windows together, over all tiles visited along their dimensions."""
        tensor, slot = edge.tensor, edge.slot
        key = (tensor.name, slot)
        if key not in self.windows:
            total = math.prod([self.swept(rank, slot) for rank in tensor.windows], start=1.0)
            if slot < len(self.slots):
                for dim, step in sorted({term for rank in tensor.windows for term in rank}):
                    total = total - self.kept_from_before(tensor, slot, dim, step)
            self.windows[key] = total
        return self.windows[key]

    def swept(self, rank: Rank, slot: int) -> Number:
        """Sum of a window's length over all tiles that are visited along its dimensions."""
        count = {dim: self.visits(dim, slot) for dim, _ in rank}
        total = math.prod(count.values(), start=1.0)
        for dim, step in rank:
            others = math.prod([n for other, n in count.items() if other != dim], start=1.0)
            total = total + float(step) * others * (self.bounds[self.index[dim]] - count[dim])
        return total

    def kept_from_before(self, tensor: EinsumTensor, slot: int, dim: str, step: int) -> Number:
        """Words along the windows that a tile need not fetch, since the last tile had them.

        Only the innermost loop in time that turns at all brings such a neighbour: after any
        other loop the window has moved elsewhere.
        """
        total: Number = 0.0
        merged: dict[Place, Flag] = {}
        for run, shift in self.neighbours(slot, self.index[dim]):
            before = self.visits(dim, slot, merged)
            merged |= run
            words = before - self.visits(dim, slot, merged)
            for rank in tensor.windows:
                if any(other == dim for other, _ in rank):
                    span = self.span(((dim, step),), slot) - float(step) * shift
                    others = tuple(term for term in rank if term[0] != dim)
                    words = words * self._above_zero(others, span, slot)
                else:
                    # Along the other windows the tiles are what they are, over all their visits.
                    words = words * self.swept(rank, slot)
            total = total + words
        return total

    def _above_zero(self, terms: Rank, span: Number, slot: int) -> Number:
        """Sum, over all tiles visited along a window's terms, of what ``span`` and they leave above
        zero. Of each term all tiles are whole but the last, which may be cut short.
        """
        if self.exact or not terms:
            for dim, step in terms:
                span = span + float(step) * (self.extent(slot, dim) - 1.0)
            visits = [self.visits(dim, slot) for dim, _ in terms]
            return math.prod(visits, start=1.0) * maximum(0.0, span)
        (dim, step), *others = terms
        count, whole = self.visits(dim, slot), self.extent(slot, dim)
        last = self.bounds[self.index[dim]] - (count - 1.0) * whole
        return (count - 1.0) * self._above_zero(
            tuple(others), span + float(step) * (whole - 1.0), slot
        ) + self._above_zero(tuple(others), span + float(step) * (last - 1.0), slot)

    def neighbours(self, slot: int, index: int) -> list[tuple[dict[Place, Flag], Number]]:
        """Loops over one dimension that follow each other as the innermost that turn.

        Returns:
            the loops of each run, further out one after the other; and by how much its steps move
            the tile. A new run begins where instances between share the dimension: from one's last
            tile to its next is further.
        """
        runs: list[tuple[dict[Place, Flag], Number]] = []
        run: dict[Place, Flag] = {}
        open_: Flags = np.ones(self.size, dtype=bool)
        started: Flags = np.zeros(self.size, dtype=bool)
        shift: Number = 0.0
        travelled: Number = 0.0  # from the first tile of the loops further in to their last
        others = set(range(len(self.einsum.dims))) - {index}
        for s in range(slot - 1, -1, -1):
            if not self.busy[s].any():
                continue
            if self.slots[s].is_spatial:
                if run and (self.turns[s, index] & open_).any():
                    runs.append((run, shift))
                    run, shift, started = {}, 0.0, np.zeros(self.size, dtype=bool)
                continue
            innermost = self.innermost(s, others)
            if self.busy[s, index]:
                inside = self.turns[s, index] & (self.batch.positions[s, index] > innermost)
                joins = open_ & inside
                flag = settled(joins)
                if flag is not False:
                    run[s, index] = flag
                    first = settled(joins & ~started)
                    if first is not False:
                        shift = chosen(first, self.tiles[s + 1, index] - travelled, shift)
                    travel = self.tiles[s, index] - self.tiles[s + 1, index]
                    travelled = travelled + chosen(flag, travel, 0.0)
                    started = started | joins
            open_ = open_ & (innermost < 0)
            if not open_.any():
                break
        return [*runs, (run, shift)] if run else runs

    def shared(self, edge: Edge, merged: frozenset[int]) -> Number:
        """Share of the window's tiles that differ among instances of one fan-out."""
        share: Number = 1.0
        for node in sorted({self.slots[s].node for s in merged}):
            slots = [s for s in sorted(merged) if self.slots[s].node == node]
            for rank in edge.tensor.windows:
                inside = [
                    (self.index[dim], float(step))
                    for dim, step in rank
                    if any(self.busy[s, self.index[dim]] for s in slots)
                ]
                if len(inside) == 2:
                    share = share * self._apart(slots, edge.slot, inside[0], inside[1])
        return share

    def _apart(
        self, slots: list[int], end: int, first: tuple[int, float], second: tuple[int, float]
    ) -> Number:
        """Share of the tiles of a fan-out that no other instance takes, two dimensions of a window
        side by side in it.

        Args:
            slots: of the fan-out; end: where the tiles are; first, second: dimension, and step
                of the window along it.
        """
        (i, a), (j, b) = first, second
        below = slots[-1] + 1
        again: Number = 0.0
        tiles: Number = 0.0
        for count, x in self._side_by_side(slots, end, i):
            for times, y in self._side_by_side(slots, end, j):
                same = repeated(x, y, a * self.tiles[below, i], b * self.tiles[below, j])
                again = again + count * times * same
                tiles = tiles + count * times * (x * y)
        return 1.0 - again / tiles

    def _side_by_side(self, slots: list[int], end: int, index: int) -> list[tuple[Number, Number]]:
        """How often so many instances of a fan-out have a tile along a dimension: all; of one that
        is cut short, those of the last time, which one fewer have once the last has no more.
        """
        whole = math.prod([self.factors[s, index] for s in slots], start=1.0)
        if self.exact:
            return [(1.0, whole)]
        size, tile = self.bounds[index], self.tiles[slots[-1] + 1, index]
        groups = ceil(size / self.tiles[slots[0], index])
        steps = tile / self.tiles[end, index]
        left = size - (groups - 1.0) * whole * tile
        full = ceil(left / tile) - 1.0
        longer = ceil((left - full * tile) / self.tiles[end, index])
        return [((groups - 1.0) * steps, whole), (longer, full + 1.0), (steps - longer, full)]

    def _in_time(self, slot: int) -> frozenset[int]:
        return frozenset(s for s in range(slot) if not self.slots[s].is_spatial)

    def once(self, tensor: EinsumTensor, slot: int) -> Number:
        """Elements that each instance of a place meets at least once, summed over instances."""
        elements = math.prod(
            [self.bounds[self.index[d]] for d in self.einsum.dims if d in tensor.dims], start=1.0
        )
        return elements * self._over_others(tensor, slot, NO_LOOPS, self._in_time(slot))

    def instances(self, slot: int) -> Number:
        """Instances that get work at a place."""
        in_time = self._in_time(slot)
        visits = [self.visits(dim, slot, NO_LOOPS, in_time) for dim in self.einsum.dims]
        return math.prod(visits, start=1.0)

    def steps(self) -> Number:
        """Iterations of the loops in time, the longest instance's."""
        end = len(self.slots)
        in_space = frozenset(range(end)) - self._in_time(end)
        visits = [self.visits(dim, end, NO_LOOPS, in_space) for dim in self.einsum.dims]
        return math.prod(visits, start=1.0)

    def _zeros(self, *shape: int) -> F64:
        return np.full((*shape, *self.factors.shape[2:]), 0.0, self.factors.dtype)

    def traffic(self) -> AccessCounts:
        memories, tensors = len(self.arch.memories), self.einsum.tensors
        fan_outs = [n for n, node in enumerate(self.arch.nodes) if isinstance(node, FanOut)]
        reads, fills, updates, tiles, distinct = (
            self._zeros(memories, len(tensors)) for _ in range(5)
        )
        hops, used = self._zeros(len(fan_outs), len(tensors)), self._zeros(memories)
        end, positions = len(self.slots), self.arch.memory_slots
        for t, tensor in enumerate(tensors):
            levels = [level for level in range(memories) if tensor.name in self.batch.keep[level]]
            for level in levels:
                tiles[level, t] = self.volume(tensor, positions[level])
                if tensor.is_output:
                    distinct[level, t] = self.once(tensor, positions[level])
            for level, child in itertools.zip_longest(levels, levels[1:]):
                edge = Edge(tensor, end if child is None else positions[child])
                words = self.moved(edge, self._merged(level, edge))
                (updates if tensor.is_output else reads)[level, t] = words
                between = {self.slots[s].node for s in range(positions[level] + 1, edge.slot)}
                for number, node in enumerate(fan_outs):
                    if node in between:
                        hops[number, t] = words
                if tensor.is_output:
                    reads[level, t] = updates[level, t] - distinct[level, t]
                if child is not None:
                    fills[child, t] = self.moved(edge) - distinct[child, t]
        for level, position in enumerate(positions):
            used[level] = self.instances(position)
        whole = self._zeros(2)
        whole[0], whole[1] = self.instances(end), self.steps()
        return AccessCounts(reads, fills, updates, tiles, distinct, used, whole[0], whole[1], hops)

    def _merged(self, level: int, edge: Edge) -> frozenset[int]:
        """Slots of fan-outs between a memory and the next place whose instances share words."""
        merged = set()
        for s in range(self.arch.memory_slots[level] + 1, edge.slot):
            node = self.arch.nodes[self.slots[s].node]
            if not isinstance(node, FanOut):
                continue
            if node.reduction if edge.tensor.is_output else node.multicast:
                merged.add(s)
        return frozenset(merged)


def settled(flags: Flags) -> Flag:
    """One answer where all mappings have it."""
    if flags.all():
        return True
    return flags if flags.any() else False


def chosen(flag: Flag, a: Number, b: Number) -> Number:
    """``a`` where the flag is set, else ``b``."""
    if flag.__class__ is bool:
        return a if flag else b
    return np.where(flag, a, b)


def different(i: Number, j: Number, a: Number, b: Number) -> Number:
    """Distinct values of a * x + b * y, x < i and y < j, over i * j.

    Values repeat with (x + b/g, y - a/g), g = gcd(a, b); pairs that have such a partner inside
    are not new.

    >>> float(different(np.array([4.0]), np.array([3.0]), np.array([1.0]), np.array([1.0]))[0])
    0.5
    """
    return 1.0 - repeated(i, j, a, b) / (i * j)


def repeated(i: Number, j: Number, a: Number, b: Number) -> Number:
    """Of i x j values of a * x + b * y, those that another pair has, too; see :func:`different`.

    >>> float(repeated(np.array([4.0]), np.array([3.0]), np.array([1.0]), np.array([1.0]))[0])
    6.0
    """
    divisor = gcd(a, b)
    return maximum(0.0, i - b / divisor) * maximum(0.0, j - a / divisor)
