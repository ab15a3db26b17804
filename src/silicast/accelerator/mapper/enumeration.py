"""All mappings of an einsum that could be the best on some design of the same levels.

What a mapping moves does not depend on capacities, port widths and energies. So the mappings of a
family of designs are counted once; those that another one beats in every count are dropped, and
each design asks the rest. Loop bounds that divide their dimensions are enumerated, which are those
that the mapper searches.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from silicast.accelerator.counting.accounting import AccessCounts, Flags, account
from silicast.accelerator.counting.cost import (
    MappingCost,
    Objective,
    cost_of,
    value_of,
    word_ratios,
)
from silicast.accelerator.counting.einsum import Einsum
from silicast.accelerator.counting.mapping import Keep, LoopNest, MappingBatch, keep_patterns
from silicast.accelerator.design.architecture import Architecture, FanOut, Memory
from silicast.accelerator.mapper.constraints import Constraints
from silicast.accelerator.mapper.mapper import no_mapping
from silicast.accelerator.mapper.orders import worthwhile_orders
from silicast.core.dominance import front
from silicast.core.errors import over_limit
from silicast.core.numerics import F64, I64

MOST = 20_000_000
"""Mappings that are counted for one einsum."""

PIECE = 32_768


@final
@dataclass(frozen=True)
class Best:
    """The best mapping of a design.

    Attributes:
        nest: its loops.
        cost: what it costs, a batch of one.
        value: of the objective.
    """

    nest: LoopNest
    cost: MappingCost
    value: float


@final
@dataclass(frozen=True)
class DesignFamily:
    """Designs that are alike but for meshes, capacities, port widths, energies and clock.

    Attributes:
        largest: one of them, with the largest meshes of all.
        capacities: words that tiles may fill of each memory, ascending; of all designs.
    """

    largest: Architecture
    capacities: tuple[tuple[float, ...], ...]

    @staticmethod
    def from_architecture(architecture: Architecture) -> DesignFamily:
        """The family whose only member is one architecture."""
        return DesignFamily(architecture, tuple((m.usable_words,) for m in architecture.memories))

    def with_(self, architecture: Architecture) -> DesignFamily:
        """The family with one more; itself where it holds all that is asked of it."""
        if skeleton(architecture) != skeleton(self.largest):
            raise ValueError("a design of another family")
        capacities = tuple(
            tuple(sorted({*sizes, memory.usable_words}))
            for sizes, memory in zip(self.capacities, architecture.memories, strict=True)
        )
        nodes = []
        for sizes, node in zip(self.largest.nodes, architecture.nodes, strict=True):
            if isinstance(sizes, FanOut) and isinstance(node, FanOut):
                mesh = tuple(max(sides) for sides in zip(sizes.mesh, node.mesh, strict=True))
                sizes = replace(sizes, mesh=mesh)  # noqa: PLW2901
            nodes.append(sizes)
        family = DesignFamily(replace(self.largest, nodes=tuple(nodes)), capacities)
        return self if family == self else family

    @property
    def roomy(self) -> Architecture:
        """The largest, with the largest capacities."""
        most = iter(self.capacities)
        nodes = []
        for node in self.largest.nodes:
            if isinstance(node, Memory):
                words = next(most)[-1]
                node = replace(  # noqa: PLW2901
                    node, capacity_words=None if math.isinf(words) else words * node.buffers
                )
            nodes.append(node)
        return replace(self.largest, nodes=tuple(nodes))


def skeleton(architecture: Architecture) -> tuple[object, ...]:
    """What designs of one family have in common; can be a key."""
    parts: list[object] = [architecture.ramps]
    for node in architecture.nodes:
        if isinstance(node, FanOut):
            parts.append((node.name, len(node.mesh), node.multicast, node.reduction, node.systolic))
        else:
            ports = tuple((port.name, port.actions, port.tensors) for port in node.ports)
            parts.append(
                (node.name, node.tensor_bits, node.block_words, node.cluster, node.exposes_fills,
                 node.keeps, node.may_bypass, ports)
            )  # fmt: skip
    return tuple(parts)


@final
@dataclass(frozen=True)
class CountedMappings:
    """Mappings of one einsum of which one is the best for each design of a family.

    Attributes:
        einsum: that is mapped.
        family: of the designs.
        constraints: that all keep to.
        batches: mappings by what memories keep.
        traffics: of each batch.
        counted: mappings that were counted in all.
    """

    einsum: Einsum
    family: DesignFamily
    constraints: Constraints
    batches: tuple[MappingBatch, ...]
    traffics: tuple[AccessCounts, ...]
    counted: int

    def __len__(self) -> int:
        return sum(len(batch) for batch in self.batches)

    def best(self, architecture: Architecture, objective: Objective) -> Best:
        """The best mapping of one design.

        Raises:
            SilicastError: no mapping fits.
        """
        number, row, _ = self.chosen(architecture, objective)
        batch = self.batches[number].take(np.array([row]))
        cost = cost_of(self.einsum, architecture, _rows(self.traffics[number], np.array([row])))
        nest = batch.nest(0, self.einsum, architecture)
        return Best(nest, cost, float(value_of(cost, objective)[0]))

    def chosen(
        self, architecture: Architecture, objective: Objective
    ) -> tuple[int, int, MappingCost]:
        """Number of the batch and row of the best mapping, and what the whole batch costs.

        Raises:
            SilicastError: no mapping fits.
        """
        best: tuple[int, int, MappingCost] | None = None
        least = math.inf
        for number, (batch, traffic) in enumerate(zip(self.batches, self.traffics, strict=True)):
            if not len(batch):
                continue
            cost = cost_of(self.einsum, architecture, traffic)
            values = np.where(
                _on_the_mesh(batch, architecture), value_of(cost, objective), math.inf
            )
            row = int(values.argmin())
            if values[row] < least:
                least, best = float(values[row]), (number, row, cost)
        if best is None:
            raise no_mapping(self.einsum, architecture, self.constraints)
        return best


def counted_mappings(
    einsum: Einsum, family: DesignFamily, constraints: Constraints
) -> CountedMappings:
    """Counts the mappings of a family of designs.

    Raises:
        SilicastError: contradictory constraints, or more than :data:`MOST` mappings.

    >>> from silicast.accelerator.design.architecture import Compute, Memory
    >>> from silicast.accelerator.counting.einsum import matmul
    >>> chip = Architecture("x", (Memory("dram"), Memory("buffer", 64)), Compute("mac"))
    >>> family = DesignFamily.from_architecture(chip)
    >>> mappings = counted_mappings(matmul(m=4, n=4, k=4), family, Constraints())
    >>> mappings.counted, len(mappings)
    (243, 1)
    """
    largest = family.roomy
    if largest.knows_zeros:
        raise over_limit(
            "counts once are of dense tensors, and this design leaves zeros out",
            "evaluation.mappings",
            'search them instead: mappings = "search"',
        )
    constraints.check(largest, einsum)
    splits = [_splits(einsum, dim, largest, constraints) for dim in range(len(einsum.dims))]
    factors = _together(splits, einsum, largest)
    orders = list(_orders(einsum, largest, constraints, factors))
    patterns = list(keep_patterns(einsum, largest, constraints.homes))
    total = factors.shape[2] * len(orders) * len(patterns)
    if total > MOST:
        raise over_limit(
            f"{einsum.name} has {total:,} mappings, more than {MOST:,}",
            "evaluation.mappings",
            'search them instead: mappings = "search"',
        )
    batches, traffics = [], []
    for keep in patterns:
        batch, traffic = _unbeaten(einsum, family, factors, orders, keep)
        batches.append(batch)
        traffics.append(traffic)
    return CountedMappings(einsum, family, constraints, tuple(batches), tuple(traffics), total)


def _splits(einsum: Einsum, dim: int, architecture: Architecture, rules: Constraints) -> I64:
    """Ways to split a dimension over all slots, (slots, ways)."""
    name, size = einsum.dims[dim], einsum.bounds[einsum.dims[dim]]
    parts: list[tuple[tuple[int, ...], int]] = [((), size)]
    for slot in range(len(architecture.slots) - 1, -1, -1):
        rule = rules.rule(architecture, slot)
        fixed = rule.fixed.get(name)
        most = min(rule.most.get(name, size), architecture.slots[slot].limit)
        longer = []
        for inner, left in parts:
            wanted = [min(fixed, size)] if fixed is not None else range(1, left + 1)
            if slot == 0:
                wanted = [left] if fixed is None or min(fixed, size) == left else []
            longer += [((f, *inner), left // f) for f in wanted if left % f == 0 and f <= most]
        parts = longer
    return (
        np.array([way for way, _ in parts], dtype=np.int64).reshape(-1, len(architecture.slots)).T
    )


def _together(splits: list[I64], einsum: Einsum, architecture: Architecture) -> F64:
    """All combinations that meshes and memories have room for, (slots, dims, mappings)."""
    slots = len(architecture.slots)
    limits = np.array([slot.limit for slot in architecture.slots])[:, None]
    together = np.ones((slots, 0, 1))
    for ways in splits:
        used = together.prod(axis=1)
        left = np.repeat(np.arange(together.shape[2]), ways.shape[1])
        right = np.tile(np.arange(ways.shape[1]), together.shape[2])
        spatial = np.isfinite(limits[:, 0])
        fits = (used[:, left] * ways[:, right] <= limits)[spatial].all(axis=0)
        left, right = left[fits], right[fits]
        together = np.concatenate([together[:, :, left], ways[:, None, right]], axis=1)
        together = together[:, :, _have_room(together, einsum, architecture)]
    return together


def _have_room(factors: F64, einsum: Einsum, architecture: Architecture) -> Flags:
    """Whether the tiles that every mapping keeps fit, if dimensions not split yet are 1."""
    flags: Flags = np.ones(factors.shape[2], dtype=bool)
    ones = np.ones(factors.shape[2])
    for slot, memory in zip(architecture.memory_slots, architecture.memories, strict=True):
        if memory.capacity_words is None:
            continue
        inside = factors[slot:].prod(axis=0)
        extents = {dim: inside[i] if i < len(inside) else ones for i, dim in enumerate(einsum.dims)}
        words = np.zeros(factors.shape[2])
        for tensor in einsum.tensors:
            if memory.must_keep(tensor.name):
                volume = ones.copy()
                for rank in tensor.ranks:
                    volume *= 1.0 + sum(step * (extents[dim] - 1.0) for dim, step in rank)
                words += volume * memory.words_of(tensor.name)
        flags &= words <= memory.usable_words
    return flags


def _orders(
    einsum: Einsum, architecture: Architecture, rules: Constraints, factors: F64
) -> Iterator[dict[int, tuple[int, ...]]]:
    """Slot of a memory -> its loops that ever turn, innermost first."""
    choices: dict[int, list[tuple[int, ...]]] = {}
    for slot in architecture.memory_slots:
        turns = {d for d in range(len(einsum.dims)) if (factors[slot, d] > 1).any()}
        rule = rules.rule(architecture, slot)
        inner = [d for d in rule.innermost if d in einsum.bounds]
        fixed = [d for d in inner if rule.fixed.get(d, 2) != 1 and einsum.bounds[d] > 1]
        orders = worthwhile_orders(einsum, fixed)
        choices[slot] = list(dict.fromkeys(tuple(d for d in o if d in turns) for o in orders))
    for each in itertools.product(*choices.values()):
        yield dict(zip(choices, each, strict=True))


def _unbeaten(
    einsum: Einsum,
    family: DesignFamily,
    factors: F64,
    orders: list[dict[int, tuple[int, ...]]],
    keep: Keep,
) -> tuple[MappingBatch, AccessCounts]:
    """Mappings that no other one beats whatever the design, with what they move."""
    architecture = family.roomy
    batches: list[MappingBatch] = []
    traffics: list[AccessCounts] = []
    for order in orders:
        positions = np.zeros(factors.shape[:2], dtype=np.int8)
        for slot, dims in order.items():
            positions[slot, list(dims)] = np.arange(len(dims), 0, -1)
        for start in range(0, factors.shape[2], PIECE):
            piece = np.ascontiguousarray(factors[:, :, start : start + PIECE])
            batch = MappingBatch(
                piece, np.repeat(positions[:, :, None], piece.shape[2], axis=2), keep
            )
            traffic = account(einsum, architecture, batch)
            batch, traffic = _kept(einsum, batch, traffic, family)
            batches.append(batch)
            traffics.append(traffic)
    if not batches:
        empty = MappingBatch(factors[:, :, :0], np.zeros(factors[:, :, :0].shape, np.int8), keep)
        return empty, account(einsum, architecture, empty)
    return _kept(einsum, MappingBatch.joined(batches), _joined(traffics), family)


def _kept(
    einsum: Einsum, batch: MappingBatch, traffic: AccessCounts, family: DesignFamily
) -> tuple[MappingBatch, AccessCounts]:
    """Of mappings that use equally many instances, those that no other one beats in any count."""
    counts = _counts(einsum, traffic, family)
    rows = np.flatnonzero(np.isfinite(counts).all(axis=1))
    counts = counts[rows]
    counts = counts[:, (counts != counts[:1]).any(axis=0)]
    slots = family.largest.slots
    spatial = [s for s, slot in enumerate(slots) if slot.is_spatial]
    # Only mappings that take the same part of every mesh can stand in for each other.
    sides = batch.factors[spatial].prod(axis=1)[:, rows]
    used = np.vstack([traffic.used[:, rows], traffic.units[None, rows], sides])
    _, group = np.unique(used, axis=1, return_inverse=True)
    left = [
        members[front(counts[members])]
        for number in range(int(group.max(initial=-1)) + 1)
        for members in [np.flatnonzero(group == number)]
    ]
    best = rows[np.sort(np.concatenate(left))] if left else rows
    return batch.take(best), _rows(traffic, best)


def _counts(einsum: Einsum, traffic: AccessCounts, family: DesignFamily) -> F64:
    """Everything that a cost grows with, (mappings, counts); infinite where tiles fit nowhere."""
    architecture = family.largest
    ratios = word_ratios(einsum, architecture)[:, :, None]
    reads, fills, updates, held = (
        each * ratios for each in (traffic.reads, traffic.fills, traffic.updates, traffic.tiles)
    )
    columns: list[F64] = [traffic.steps, *traffic.hops.sum(axis=1)]
    for level, memory in enumerate(architecture.memories):
        tiles = held[level]
        sizes = np.array([*family.capacities[level], math.inf])
        # Tiles that fit the same capacities are as good as each other.
        index = np.searchsorted(sizes, tiles.sum(axis=0))
        columns.append(np.where(index == len(sizes) - 1, math.inf, index))
        for words in (reads[level], fills[level], updates[level]):
            each = np.ceil(words / traffic.used[level] / memory.block_words)
            columns.append(each.sum(axis=0))
        for port in memory.ports:
            mine = [t for t, n in enumerate(einsum.names) if not port.tensors or n in port.tensors]
            kinds = {"read": reads, "fill": fills, "update": updates}
            columns += [kinds[action][level, mine].sum(axis=0) for action in port.actions]
            if architecture.ramps:
                columns.append(tiles[mine].sum(axis=0))
    columns += _folds(einsum, traffic, architecture)
    return np.stack(columns, axis=1)


def _folds(einsum: Einsum, traffic: AccessCounts, architecture: Architecture) -> list[F64]:
    """How often a systolic mesh is filled anew with what stays in it, by memory."""
    folds = []
    for node in architecture.nodes:
        if not (isinstance(node, FanOut) and node.systolic in einsum.names):
            continue
        t = einsum.names.index(node.systolic)
        for level in range(len(architecture.memories)):
            tiles = traffic.tiles[level, t]
            fills = traffic.fills[level, t] + traffic.distinct[level, t]
            folds.append(np.divide(fills, tiles, out=np.zeros_like(fills), where=tiles > 0))
    return folds


def _on_the_mesh(batch: MappingBatch, architecture: Architecture) -> Flags:
    """Whether each mapping's loops in space find instances."""
    flags: Flags = np.ones(len(batch), dtype=bool)
    for number, slot in enumerate(architecture.slots):
        if slot.is_spatial:
            flags &= batch.factors[number].prod(axis=0) <= slot.limit
    return flags


def _rows(traffic: AccessCounts, rows: I64) -> AccessCounts:
    return AccessCounts(
        **{name: getattr(traffic, name)[..., rows] for name in AccessCounts.__dataclass_fields__}
    )


def _joined(parts: list[AccessCounts]) -> AccessCounts:
    return AccessCounts(
        **{
            name: np.concatenate([getattr(part, name) for part in parts], axis=-1)
            for name in AccessCounts.__dataclass_fields__
        }
    )
