"""What mappings move: reads, fills and updates of every tensor at every memory, counted exactly.

docs/explanation/accelerator-accounting.md derives the counts. All are totals over the instances
of a memory, in words, as arrays over mappings: nothing here loops over mappings.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from silicast.accelerator.architecture import Architecture, FanOut
from silicast.accelerator.einsum import Einsum, Rank, Tensor
from silicast.accelerator.mapping import MappingBatch
from silicast.core.numerics import F64

Flags = NDArray[np.bool_]

CHUNK = 8192
"""Mappings counted at a time: what is between two sums stays in the cache."""


@final
@dataclass(frozen=True)
class Traffic:
    """Counts of many mappings; zero where a memory does not keep a tensor.

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
) -> Traffic:
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
    return Traffic(
        *(
            np.concatenate([getattr(part, name) for part in parts], axis=-1)
            for name in Traffic.__dataclass_fields__
        )
    )


@final
@dataclass(frozen=True)
class Edge:
    """How one tensor comes to one place: a memory, or the compute units (``slot`` = slots)."""

    tensor: Tensor
    slot: int


class Count:
    """The counts of one chunk; every method answers for all of its mappings at once."""

    def __init__(
        self, einsum: Einsum, architecture: Architecture, batch: MappingBatch, sizes: F64 | None
    ) -> None:
        self.einsum = einsum
        own = np.array([float(size) for size in einsum.bounds.values()])[:, None]
        self.bounds = own if sizes is None else sizes
        """Sizes of the dimensions: one column, or one for every mapping."""
        self.arch = architecture
        self.batch = batch
        self.size = len(batch)
        self.slots = architecture.slots
        self.index = {dim: i for i, dim in enumerate(einsum.dims)}
        self.factors = batch.factors
        self.busy = batch.factors.max(axis=2) > 1
        """Loops that any mapping walks through more than once, shape (slots, dims)."""
        self.windows: dict[tuple[str, int], F64] = {}
        self.stays: dict[tuple[str, int], dict[tuple[int, int], Flags]] = {}
        self.seen: dict[tuple[str, int, frozenset[int]], F64] = {}

    @cached_property
    def tiles(self) -> F64:
        """Extent of the tile at the top of each slot, and of one point, (slots + 1, dims, n)."""
        found = np.ones((len(self.slots) + 1, *self.factors.shape[1:]))
        self.exact = bool((self.factors.prod(axis=0) == self.bounds).all())
        if not self.exact:
            self.factors = self.factors.copy()
        for slot in range(len(self.slots) - 1, -1, -1):
            if not self.exact:  # a loop ends where its dimension does
                turns = np.ceil(self.bounds / found[slot + 1])
                np.minimum(self.factors[slot], turns, out=self.factors[slot])
            np.multiply(found[slot + 1], self.factors[slot], out=found[slot])
        return found

    def extent(self, slot: int, dim: str) -> F64:
        """Of a tile at the top of ``slot``, never more than the dimension has."""
        index = self.index[dim]
        found: F64 = np.minimum(self.tiles[slot, index], self.bounds[index])
        return found

    def volume(self, tensor: Tensor, slot: int) -> F64:
        """Words of ``tensor``'s tile at the top of ``slot``."""
        found = np.ones(self.size)
        for dim in tensor.plain_dims:
            found *= self.extent(slot, dim)
        for rank in tensor.windows:
            found *= self.span(rank, slot)
        return found

    def span(self, rank: Rank, slot: int) -> F64:
        """Length of a window that a tile at the top of ``slot`` covers."""
        found = np.ones(self.size)
        for dim, step in rank:
            found += step * (self.extent(slot, dim) - 1.0)
        return found

    def staying(self, edge: Edge) -> dict[tuple[int, int], Flags]:
        """Loops during which the tile stays: those further in than every loop that moves it."""
        key = (edge.tensor.name, edge.slot)
        if key in self.stays:
            return self.stays[key]
        found: dict[tuple[int, int], Flags] = {}
        self.stays[key] = found
        moves = {self.index[dim] for dim in edge.tensor.dims}
        open_: Flags = np.ones(self.size, dtype=bool)
        for slot in range(edge.slot - 1, -1, -1):
            if self.slots[slot].is_spatial or not self.busy[slot].any():
                continue
            last: NDArray[np.int8] = np.full(self.size, -1, dtype=np.int8)
            position = self.batch.positions[slot]
            for dim in moves:
                if self.busy[slot, dim]:
                    turns = self.factors[slot, dim] > 1
                    np.maximum(last, np.where(turns, position[dim], -1), out=last)
            for dim in range(len(self.einsum.dims)):
                if dim not in moves and self.busy[slot, dim]:
                    found[slot, dim] = open_ & (position[dim] > last)
            open_ = open_ & (last < 0)
            if not open_.any():
                break
        return found

    def visits(
        self,
        dim: str,
        slot: int,
        staying: dict[tuple[int, int], Flags],
        merged: frozenset[int] = frozenset(),
    ) -> F64:
        """Times that tiles at the top of ``slot`` start along one dimension.

        Args:
            staying: loops that do not count, per mapping.
            merged: slots whose loops do not count, for all mappings.
        """
        index = self.index[dim]
        loops = [s for s in range(slot) if self.busy[s, index]]
        if any((s, index) in staying for s in loops):
            return self._visits(index, loops, staying, merged)
        key = (dim, slot, merged)
        if key not in self.seen:
            self.seen[key] = self._visits(index, loops, {}, merged)
        return self.seen[key]

    def _visits(
        self, index: int, loops: list[int], staying: dict[tuple[int, int], Flags],
        merged: frozenset[int],
    ) -> F64:  # fmt: skip
        tiles = self.tiles
        if self.exact:
            found = np.ones(self.size)
            for s in loops:
                if s in merged:
                    continue
                flag = staying.get((s, index))
                factor = self.factors[s, index]
                found *= factor if flag is None else np.where(flag, 1.0, factor)
            return found
        # The last tile of a loop may be cut short: count whole tiles, and follow the one rest.
        size = self.bounds[index]
        whole = (tiles[0, index] <= size).astype(float)
        rest = np.where(whole > 0, 0.0, size)
        for s in loops:
            inner = tiles[s + 1, index]
            fits = np.floor(rest / inner)
            if s in merged:
                counts: Flags | bool = False
            else:
                flag = staying.get((s, index))
                counts = True if flag is None else ~flag
            walked = whole * self.factors[s, index] + fits
            reached = whole + (fits > 0)
            left = rest - fits * inner
            whole = np.where(counts, walked, reached)
            rest = np.where(counts | (fits == 0), left, 0.0)
        visited: F64 = whole + (rest > 0)
        return visited

    def moved(self, edge: Edge, merged: frozenset[int] = frozenset()) -> F64:
        """Words of a tensor that come to all instances of a place.

        Args:
            merged: slots of fan-outs whose instances share what they all take.
        """
        tensor, slot = edge.tensor, edge.slot
        staying = {} if slot == len(self.slots) else self.staying(edge)
        found = np.ones(self.size)
        for dim in self.einsum.dims:
            if dim not in tensor.dims:
                found *= self.visits(dim, slot, staying, merged)
        for dim in tensor.plain_dims:
            found *= self.bounds[self.index[dim]]
        if tensor.windows:
            found *= self.window_words(edge)
            if merged:
                found *= self.shared(tensor, merged)
        return found

    def window_words(self, edge: Edge) -> F64:
        """Words along all windows together, over all tiles visited along their dimensions."""
        tensor, slot = edge.tensor, edge.slot
        key = (tensor.name, slot)
        if key not in self.windows:
            total = np.ones(self.size)
            for rank in tensor.windows:
                total *= self.swept(rank, slot)
            if slot < len(self.slots):
                for dim, step in sorted({term for rank in tensor.windows for term in rank}):
                    total -= self.kept_from_before(tensor, slot, dim, step)
            self.windows[key] = total
        return self.windows[key]

    def swept(self, rank: Rank, slot: int) -> F64:
        """Sum of a window's length over all tiles that are visited along its dimensions."""
        count = {dim: self.visits(dim, slot, {}) for dim, _ in rank}
        found = np.ones(self.size)
        for number in count.values():
            found *= number
        plain = found.copy()
        for dim, step in rank:
            others = plain / count[dim]
            found += step * others * (self.bounds[self.index[dim]] - count[dim])
        return found

    def kept_from_before(self, tensor: Tensor, slot: int, dim: str, step: int) -> F64:
        """Words along the windows that a tile need not fetch, since the last tile had them.

        Only the innermost loop in time that turns at all brings such a neighbour: after any
        other loop the window has moved elsewhere.
        """
        index = self.index[dim]
        run, shift = self.neighbours(slot, index)
        if run is None:
            return np.zeros(self.size)
        overlap = np.ones(self.size)
        for rank in tensor.windows:
            span = self.span(rank, slot)
            if any(other == dim for other, _ in rank):
                overlap *= np.maximum(0.0, span - step * shift)
            else:
                # Along the other windows the tiles are what they are, over all their visits.
                overlap *= self.swept(rank, slot)
        others = np.ones(self.size)
        for rank in tensor.windows:
            if any(other == dim for other, _ in rank):
                for other, _ in rank:
                    if other != dim:
                        others *= self.visits(other, slot, {})
        visited = self.visits(dim, slot, {})
        starts = self.run_starts(dim, slot, run)
        return np.where(overlap > 0, (visited - starts) * overlap * others, 0.0)

    def neighbours(
        self, slot: int, index: int
    ) -> tuple[dict[int, Flags] | None, F64]:  # fmt: skip
        """Loops over one dimension that follow each other as the innermost that turn.

        Returns:
            slot -> whether its loop belongs to the run; and by how much the tile moves.
        """
        run: dict[int, Flags] = {}
        open_: Flags = np.ones(self.size, dtype=bool)
        started: Flags = np.zeros(self.size, dtype=bool)
        shift = np.zeros(self.size)
        for s in range(slot - 1, -1, -1):
            if self.slots[s].is_spatial or not self.busy[s].any():
                continue
            position = self.batch.positions[s]
            factor = self.factors[s]
            innermost = np.full(self.size, -1, dtype=np.int8)
            others: Flags = np.zeros(self.size, dtype=bool)
            for dim in range(len(self.einsum.dims)):
                if dim != index and self.busy[s, dim]:
                    turns = factor[dim] > 1
                    others |= turns
                    np.maximum(innermost, np.where(turns, position[dim], -1), out=innermost)
            if self.busy[s, index]:
                joins = open_ & (factor[index] > 1) & (position[index] > innermost)
                run[s] = joins
                shift = np.where(joins & ~started, self.tiles[s + 1, index], shift)
                started = started | joins
            open_ = open_ & ~others
            if not open_.any():
                break
        return (run if started.any() else None), shift

    def run_starts(self, dim: str, slot: int, run: dict[int, Flags]) -> F64:
        """Times that a run of neighbouring tiles starts along its dimension."""
        index = self.index[dim]
        return self.visits(dim, slot, {(s, index): flag for s, flag in run.items()})

    def shared(self, tensor: Tensor, merged: frozenset[int]) -> F64:
        """Share of the window's tiles that differ among instances of one fan-out."""
        found = np.ones(self.size)
        for node in {self.slots[s].node for s in merged}:
            axes = [s for s in merged if self.slots[s].node == node]
            for rank in tensor.windows:
                inside = [
                    (dim, step) for dim, step in rank
                    if any(self.busy[s, self.index[dim]] for s in axes)
                ]  # fmt: skip
                if len(inside) == 2:
                    found *= self.different(inside, axes)
        return found

    def different(self, pair: list[tuple[str, int]], axes: list[int]) -> F64:
        """Share of an overlapping pair of dimensions' windows that differ, over a fan-out."""
        counts, strides = [], []
        for dim, step in pair:
            index = self.index[dim]
            number = np.ones(self.size)
            for s in axes:
                number *= self.factors[s, index]
            counts.append(number)
            strides.append(step * self.tiles[max(axes) + 1, index])
        return different(counts[0], counts[1], strides[0], strides[1])

    def once(self, tensor: Tensor, slot: int) -> F64:
        """Elements that each instance of a place meets at least once, summed over instances."""
        in_time = frozenset(s for s in range(slot) if not self.slots[s].is_spatial)
        found = np.ones(self.size)
        for dim in self.einsum.dims:
            if dim in tensor.dims:
                found *= self.bounds[self.index[dim]]
        for dim in self.einsum.dims:
            if dim not in tensor.dims:
                found *= self.visits(dim, slot, {}, in_time)
        return found

    def instances(self, slot: int) -> F64:
        """Instances that get work at a place."""
        found = np.ones(self.size)
        in_time = frozenset(s for s in range(slot) if not self.slots[s].is_spatial)
        for dim in self.einsum.dims:
            found *= self.visits(dim, slot, {}, in_time)
        return found

    def steps(self) -> F64:
        """Iterations of the loops in time, the longest instance's."""
        found = np.ones(self.size)
        in_space = frozenset(s for s, slot in enumerate(self.slots) if slot.is_spatial)
        for dim in self.einsum.dims:
            found *= self.visits(dim, len(self.slots), {}, in_space)
        return found

    def traffic(self) -> Traffic:
        """All counts."""
        _ = self.tiles
        memories, tensors = len(self.arch.memories), self.einsum.tensors
        shape = (memories, len(tensors), self.size)
        reads, fills, updates, tiles, distinct = (np.zeros(shape) for _ in range(5))
        fan_outs = [n for n, node in enumerate(self.arch.nodes) if isinstance(node, FanOut)]
        hops = np.zeros((len(fan_outs), len(tensors), self.size))
        end = len(self.slots)
        places = self.arch.memory_slots
        for t, tensor in enumerate(tensors):
            kept = [level for level in range(memories) if tensor.name in self.batch.keep[level]]
            for level in kept:
                tiles[level, t] = self.volume(tensor, places[level])
                if tensor.is_output:
                    distinct[level, t] = self.once(tensor, places[level])
            for position, level in enumerate(kept):
                inner = position == len(kept) - 1
                below = end if inner else places[kept[position + 1]]
                self._pass_on(t, level, Edge(tensor, below), reads, updates, hops, fan_outs)
                if tensor.is_output:
                    reads[level, t] = updates[level, t] - distinct[level, t]
                if not inner:
                    child = kept[position + 1]
                    came = self.moved(Edge(tensor, below))
                    fills[child, t] = came - distinct[child, t]
        used = np.stack([self.instances(place) for place in places])
        return Traffic(
            reads, fills, updates, tiles, distinct, used, self.instances(end), self.steps(), hops
        )

    def _pass_on(
        self, t: int, level: int, edge: Edge, reads: F64, updates: F64, hops: F64,
        fan_outs: list[int],
    ) -> None:  # fmt: skip
        """What goes between a memory and the next place of a tensor, through the fan-outs."""
        above = self.arch.memory_slots[level]
        merged: set[int] = set()
        for s in range(above + 1, edge.slot):
            slot = self.slots[s]
            if not slot.is_spatial:
                continue
            node = self.arch.nodes[slot.node]
            assert isinstance(node, FanOut)
            if node.reduction if edge.tensor.is_output else node.multicast:
                merged.add(s)
        words = self.moved(edge, frozenset(merged))
        (updates if edge.tensor.is_output else reads)[level, t] = words
        for number, node_index in enumerate(fan_outs):
            inside = [s for s in range(above + 1, edge.slot) if self.slots[s].node == node_index]
            if inside:
                hops[number, t] = words


def different(i: F64, j: F64, a: F64, b: F64) -> F64:
    """Distinct values of a * x + b * y, x < i and y < j, over i * j.

    Values repeat with (x + b/g, y - a/g), g = gcd(a, b); pairs that have such a partner inside
    are not new.

    >>> float(different(np.array([4.0]), np.array([3.0]), np.array([1.0]), np.array([1.0]))[0])
    0.5
    """
    divisor = np.gcd(a.astype(np.int64), b.astype(np.int64))
    again = np.maximum(0.0, i - b // divisor) * np.maximum(0.0, j - a // divisor)
    result: F64 = 1.0 - again / (i * j)
    return result
