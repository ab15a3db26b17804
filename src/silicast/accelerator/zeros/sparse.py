"""What mappings move once zeros are left out: by formats, by skipping and by gating.

The dense counts of :mod:`~silicast.accelerator.counting.accounting` are taken times the chance
that an access is needed. A tile
that goes from one memory to the next is needed if, of every tensor that its transfer depends on,
the values that meet it while it stays are not all zero; tiles of a tensor lie independently of
those of the others. Formulas: docs/explanation/accelerator-accounting.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import final

import numpy as np

from silicast.accelerator.counting.accounting import AccessCounts, Count, Edge
from silicast.accelerator.counting.einsum import Einsum, EinsumTensor
from silicast.accelerator.counting.mapping import MappingBatch
from silicast.accelerator.design.architecture import Architecture, FanOut, Memory
from silicast.accelerator.zeros._ranks import RankWords, describe
from silicast.core.numerics import F64

_NOISE = 1e-13
"""Of a product of two numbers: no word is added for what rounding makes of a whole number."""


@final
@dataclass(frozen=True)
class AccessOutcome:
    """What becomes of the accesses of one kind, words of one instance that works.

    Attributes:
        actual: happen.
        gated: take their time, and next to no energy.
        skipped: take neither. Values that a format leaves out are in none of the three.
        accesses: of blocks of words, for those that happen.
    """

    actual: F64
    gated: F64
    skipped: F64
    accesses: F64


@final
@dataclass(frozen=True)
class Formatted:
    """Words that describe one tensor in one memory, one instance that works.

    Attributes:
        stored: at most, shape (ranks, 2: metadata and payload, mappings), outermost rank first.
        reads, fills, updates: of those that happen, same shape; ``skipped`` and ``gated``: reads.
    """

    stored: F64
    reads: F64
    fills: F64
    updates: F64
    skipped: F64
    gated: F64

    def total(self, action: str) -> F64:
        """Words of all ranks, (mappings,)."""
        total: F64 = getattr(self, action).sum(axis=(0, 1))
        return total


@final
@dataclass(frozen=True)
class SparseTraffic:
    """Counts of many mappings with their zeros left out; arrays (memories, tensors, mappings).

    Attributes:
        reads, fills, updates: of one instance that works.
        stored: values that one instance holds at most.
        formats: (memory, tensor) -> what describes it there.
        computes: multiplications of all units, an outcome of (mappings,).
        expanded, compressed: words that a memory recodes on their way from and to the one above,
            one instance.
        steps: cycles that the units need, with the waiting for the one that is behind, (mappings,).
    """

    reads: AccessOutcome
    fills: AccessOutcome
    updates: AccessOutcome
    stored: F64
    formats: dict[tuple[int, int], Formatted]
    computes: AccessOutcome
    expanded: F64
    compressed: F64
    steps: F64


def account_zeros(
    einsum: Einsum,
    architecture: Architecture,
    batch: MappingBatch,
    traffic: AccessCounts,
    sizes: F64 | None = None,
) -> SparseTraffic:
    """What is left of the dense counts of a batch.

    Args:
        traffic: of the same batch; sizes: as of :func:`.account`.
    """
    return _Zeros(einsum, architecture, batch, traffic, sizes).counts()


@final
@dataclass(frozen=True)
class _Needs:
    """Of one tensor on its way inwards: tensor -> chance that what meets its tile is not all zero.

    Tiles further in lie within those further out, so that the least chance is that of both.
    """

    skip: dict[str, F64] = field(default_factory=dict)
    every: dict[str, F64] = field(default_factory=dict)
    """Of skipping and gating together."""


class _Zeros:
    def __init__(
        self,
        einsum: Einsum,
        architecture: Architecture,
        batch: MappingBatch,
        traffic: AccessCounts,
        sizes: F64 | None,
    ) -> None:
        self.einsum = einsum
        self.arch = architecture
        self.batch = batch
        self.traffic = traffic
        self.count = Count(einsum, architecture, batch, sizes)
        self.size = len(batch)
        self.ones = np.ones(self.size)
        shape = traffic.reads.shape
        self.outcomes = {
            action: AccessOutcome(*(np.zeros(shape) for _ in range(4)))
            for action in ("reads", "fills", "updates")
        }
        self.stored = traffic.tiles.copy()
        self.blocks: dict[tuple[int, int], F64] = {}
        """(memory, tensor) -> expected accesses of blocks for a tile without its zeros."""
        self.expanded, self.compressed = np.zeros(shape), np.zeros(shape)
        self.formats: dict[tuple[int, int], Formatted] = {}
        self.exists: dict[str, F64] = {}
        """Tensor -> chance that its value is not zero, where a product needs that to happen."""

    @cached_property
    def whole(self) -> dict[str, tuple[int, ...]]:
        return {t.name: t.shape(self.einsum.bounds) for t in self.einsum.tensors}

    def counts(self) -> SparseTraffic:
        for t, tensor in enumerate(self.einsum.tensors):
            self.follow(t, tensor)
        computes, steps = self.products()
        outcomes = self.outcomes
        return SparseTraffic(
            outcomes["reads"], outcomes["fills"], outcomes["updates"], self.stored, self.formats,
            computes, self.expanded, self.compressed, steps,
        )  # fmt: skip

    def follow(self, t: int, tensor: EinsumTensor) -> None:
        """One tensor, from the outermost memory that keeps it to the units."""
        levels = [
            level
            for level in range(len(self.arch.memories))
            if tensor.name in self.batch.keep[level]
        ]
        described = {level: self.described(t, tensor, level) for level in levels}
        needs = _Needs()
        arriving = self.ones, self.ones
        for position, level in enumerate(levels):
            words = described[level]
            share = self.ones if words is None else words.share
            above = None if position == 0 else described[levels[position - 1]]
            if position:
                self.arrive(t, level, share, arriving, words, above)
            child = levels[position + 1] if position + 1 < len(levels) else None
            self.need(tensor, level, child, needs)
            arriving = self.chances(needs)
            self.leave(t, tensor, level, share, arriving, words)
        if not tensor.is_output and levels:
            self.require(tensor, needs, described[levels[-1]])

    def described(self, t: int, tensor: EinsumTensor, level: int) -> RankWords | None:
        """What a format stores of the tensor's tile; fills in what it takes of the memory."""
        memory = self.arch.memories[level]
        chosen = memory.format_of(tensor.name)
        if chosen is None:
            return None
        words = describe(self.count, tensor, chosen, self.arch.memory_slots[level], self.whole)
        self.stored[level, t] = words.most
        if chosen.leaves_out_zeros and memory.block_words > 1:
            tile = self.tile(tensor, self.count.tiles[self.arch.memory_slots[level]])
            self.blocks[level, t] = tensor.density.blocks(
                tile, self.whole[tensor.name], memory.block_words
            )
        return words

    def tile(self, tensor: EinsumTensor, extents: F64) -> tuple[F64, ...]:
        """Lengths of a tensor's indices over tiles of these extents, (dims, mappings)."""
        lengths = []
        for index, rank in enumerate(tensor.ranks):
            length = np.ones(self.size)
            for dim, step in rank:
                length = length + step * (extents[self.count.index[dim]] - 1.0)
            lengths.append(np.minimum(length, float(self.whole[tensor.name][index])))
        return tuple(lengths)

    def need(self, tensor: EinsumTensor, level: int, child: int | None, needs: _Needs) -> None:
        """Adds what the memory, or one further in that it passes by, makes a transfer need."""
        last = len(self.arch.memories) if child is None else child
        for inner in range(level, last):
            if inner != level and tensor.is_output:
                break  # results are left out where they are kept
            for rule in self.arch.memories[inner].eliminations:
                if rule.target != tensor.name:
                    continue
                extents = self.while_it_stays(tensor, level, child)
                for name in rule.conditions:
                    if name not in self.einsum.names:
                        continue
                    other = self.einsum.tensor(name)
                    tile = self.tile(other, extents)
                    chance = 1.0 - other.density.empty(tile, self.whole[name])
                    if rule.kind == "skip":
                        needs.skip[name] = np.minimum(needs.skip.get(name, self.ones), chance)
                    needs.every[name] = np.minimum(needs.every.get(name, self.ones), chance)

    def while_it_stays(self, tensor: EinsumTensor, level: int, child: int | None) -> F64:
        """Extents of what meets one tile of a tensor, from its coming to the next, (dims, n)."""
        slots = self.arch.slots
        slot = len(slots) if child is None else self.arch.memory_slots[child]
        extents = self.count.tiles[slot].copy()
        if child is not None:
            for (s, dim), stays in self.count.staying(Edge(tensor, slot)).items():
                extents[dim] *= np.where(stays, self.count.factors[s, dim], 1.0)
        for s in range(self.arch.memory_slots[level] + 1, slot):
            node = self.arch.nodes[slots[s].node]
            if not isinstance(node, FanOut):
                continue
            if node.reduction if tensor.is_output else node.multicast:
                for name, index in self.count.index.items():
                    if name not in tensor.dims:
                        extents[index] *= self.count.factors[s, index]
        while_it_stays: F64 = np.minimum(extents, self.count.bounds)
        return while_it_stays

    def chances(self, needs: _Needs) -> tuple[F64, F64]:
        """(that a transfer is not skipped, that it happens)."""
        not_skipped, happens = self.ones, self.ones
        for chance in needs.skip.values():
            not_skipped = not_skipped * chance
        for chance in needs.every.values():
            happens = happens * chance
        return not_skipped, happens

    def leave(
        self,
        t: int,
        tensor: EinsumTensor,
        level: int,
        share: F64,
        chances: tuple[F64, F64],
        words: RankWords | None,
    ) -> None:
        """Reads for what is further in, and results that come from there."""
        reads = self.split("reads", t, level, share, chances, downwards=tensor.is_output)
        updates = self.split("updates", t, level, share, chances)
        if words is not None:
            self.describe_traffic(t, level, words, chances, {"reads": reads, "updates": updates})

    def arrive(
        self,
        t: int,
        level: int,
        share: F64,
        chances: tuple[F64, F64],
        words: RankWords | None,
        above: RankWords | None,
    ) -> None:
        """Fills from the memory above, and what is recoded on the way."""
        fills = self.split("fills", t, level, share, chances)
        if words is not None:
            self.describe_traffic(t, level, words, chances, {"fills": fills})
        if self.arch.memories[level].recodes and words is None and above is not None:
            self.expanded[level, t] = self.outcomes["fills"].actual[level, t]
            if self.einsum.tensors[t].is_output:
                outer = self.outer(t, level)
                used = self.traffic.used[level]
                whole = self.traffic.updates[outer, t] / used
                self.compressed[level, t] = np.ceil(whole * above.share)

    def outer(self, t: int, level: int) -> int:
        """The next memory further out that keeps a tensor."""
        name = self.einsum.names[t]
        return max(other for other in range(level) if name in self.batch.keep[other])

    def split(
        self,
        action: str,
        t: int,
        level: int,
        share: F64,
        chances: tuple[F64, F64],
        downwards: bool = False,
    ) -> F64:
        """Sorts the words of one kind of access; returns the dense count of one instance.

        Words of an instance are whole: what happens is rounded up, reads of results down.
        """
        used = self.traffic.used[level]
        dense: F64 = getattr(self.traffic, action)[level, t] / used
        not_skipped, happens = chances
        held = _up(dense, share)
        if downwards:
            actual = np.where(happens < 1.0, held - np.ceil(dense * share * (1.0 - happens)), held)
            actual = np.maximum(0.0, actual)
        else:
            actual = _up(dense, share * happens)
        left_out = held - actual
        timed = np.where(not_skipped > happens, _up(dense, share * not_skipped), actual)
        outcome = self.outcomes[action]
        outcome.actual[level, t] = actual
        outcome.gated[level, t] = np.where(
            not_skipped >= 1.0, left_out, np.clip(timed - actual, 0.0, left_out)
        )
        outcome.skipped[level, t] = left_out - outcome.gated[level, t]
        outcome.accesses[level, t] = self.accesses(t, level, actual, dense, happens)
        return dense

    def accesses(self, t: int, level: int, actual: F64, dense: F64, happens: F64) -> F64:
        """Accesses of blocks: a tile without its zeros seldom fills its last block."""
        block = self.arch.memories[level].block_words
        whole: F64 = np.ceil(actual / block)
        if (level, t) not in self.blocks:
            return whole
        tile, needed = self.traffic.tiles[level, t], self.blocks[level, t]
        if self.arch.scales_blocks:
            held = tile * self.einsum.tensors[t].density.share
            scaled: F64 = whole * np.maximum(1.0, needed / (held / block))
            return scaled
        return _up(needed * (dense / tile), happens)

    def describe_traffic(
        self, t: int, level: int, words: RankWords, chances: tuple[F64, F64], dense: dict[str, F64]
    ) -> None:
        """Metadata goes with its tile: as often, and left out as often."""
        not_skipped, happens = chances
        tile = self.traffic.tiles[level, t]
        nothing = np.zeros_like(words.held)
        formatted = self.formats.get(
            (level, t), Formatted(np.ceil(words.at_most), *(nothing for _ in range(5)))
        )
        parts = {name: getattr(formatted, name) for name in Formatted.__dataclass_fields__}
        for action, count in dense.items():
            every = words.held * (count / tile)
            parts[action] = np.ceil(every * happens)
            if action == "reads":
                parts["skipped"] = np.ceil(every * (1.0 - not_skipped))
                parts["gated"] = np.ceil(every * (not_skipped - happens))
        self.formats[level, t] = Formatted(**parts)

    def require(self, tensor: EinsumTensor, needs: _Needs, innermost: RankWords | None) -> None:
        """A product needs its operand to have come to the unit."""
        for name, chance in needs.every.items():
            self.exists[name] = np.minimum(self.exists.get(name, self.ones), chance)
        if innermost is not None:
            nonzero = self.exists.get(tensor.name, self.ones)
            self.exists[tensor.name] = np.minimum(nonzero, innermost.share)

    def products(self) -> tuple[AccessOutcome, F64]:
        """Multiplications, and the cycles that they take."""
        points = np.broadcast_to(np.prod(self.count.bounds, axis=0), (self.size,))
        exists = self.ones
        for chance in self.exists.values():
            exists = exists * chance
        happen, gated, skipped = _up(points, exists), np.zeros(self.size), np.zeros(self.size)
        compute = self.arch.compute
        if compute.on_zero != "multiply":
            nonzero = self.ones
            for tensor in self.einsum.tensors:
                if not tensor.is_output:
                    share = self.exists.get(tensor.name, self.ones)
                    nonzero = nonzero * np.minimum(share, tensor.density.share)
            there = happen
            happen = _up(points, np.minimum(exists, nonzero))
            if compute.on_zero == "gate":
                gated = there - happen
            else:
                skipped = there - happen
                exists = np.minimum(exists, nonzero)
        timed = happen + gated
        steps = np.where(timed == points, self.traffic.steps, timed * self.traffic.steps / points)
        return AccessOutcome(happen, gated, skipped, happen), steps * self.imbalance()

    def imbalance(self) -> F64:
        """How much longer the busiest instance of fan-outs that wait takes than the mean one."""
        total = self.ones
        skips = {name for name, chance in self.exists.items() if (chance < 1.0).any()}
        if self.arch.compute.on_zero == "skip":
            skips |= {t.name for t in self.einsum.tensors if not t.is_output}
        for number, node in enumerate(self.arch.nodes):
            if not (isinstance(node, FanOut) and node.waits):
                continue
            axes = [s for s, slot in enumerate(self.arch.slots) if slot.node == number]
            spread = np.zeros(self.size)
            for tensor in self.einsum.tensors:
                if tensor.name not in skips or tensor.density.is_dense:
                    continue
                units = self.ones
                for s in axes:
                    for dim in tensor.dims:
                        units = units * self.count.factors[s, self.count.index[dim]]
                tile = self.tile(tensor, self.count.tiles[max(axes) + 1])
                more = tensor.density.imbalance(tile, self.whole[tensor.name], units) - 1.0
                # Independent spreads add as squares.
                spread = spread + more * more
            total = total * (1.0 + np.sqrt(spread))
        return total


def _up(count: F64, chance: F64) -> F64:
    """Expected words, rounded up; exactly ``count`` where nothing is left out."""
    result: F64 = np.where(chance >= 1.0, count, np.ceil(count * chance * (1.0 - _NOISE)))
    return result


def holds(memory: Memory, stored: F64, described: F64) -> F64:
    """Words that an instance has left once a tile and what describes it are in it.

    Args:
        stored: values of all tensors, words; described: words of metadata, of all tensors.
    """
    if memory.metadata is None:
        described = np.ceil(described)
        return memory.usable_words - stored - described
    holds: F64 = memory.usable_words - stored
    if memory.metadata.capacity_words is not None:
        holds = np.minimum(holds, memory.metadata.capacity_words / memory.buffers - described)
    return holds
