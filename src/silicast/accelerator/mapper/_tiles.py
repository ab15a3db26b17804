"""What a search asks of tiles: which a slot allows, what they hold, how their words are shared."""

from __future__ import annotations

import math
from functools import cached_property
from typing import final

import numpy as np

from silicast.accelerator.mapper._cells import GridCorner
from silicast.accelerator.mapper._facts import EinsumFacts
from silicast.accelerator.mapper._lattice import Lattice
from silicast.core.numerics import F64
from silicast.core.remembered import remembered


@final
class TileFacts:
    """Facts of all tiles of one search."""

    def __init__(self, facts: EinsumFacts) -> None:
        self.facts = facts
        bounds = facts.einsum.bounds
        self.lattice = Lattice(tuple(bounds), tuple(bounds.values()), facts.divisors)
        self.dims = range(len(facts.einsum.dims))
        self.free = [
            frozenset(d for d in self.dims if not facts.moves[t][d, 0])
            for t in range(len(facts.tensors))
        ]
        """Dimensions that do not index each tensor."""

    # What a place allows.

    @remembered
    def targets(self, slot: int, d: int) -> F64:
        """Whether a slot's loop may turn the i-th divisor into the j-th, (n, n)."""
        divisors = self.lattice.divisors[d]
        targets = np.zeros((len(divisors), len(divisors)), dtype=bool)
        for i, extent in enumerate(divisors):
            for factor in self.facts.choices(slot, d, int(divisors[-1] // extent)):
                targets[i, np.searchsorted(divisors, extent * factor)] = True
        return targets

    @remembered
    def active(self, slot: int) -> frozenset[int]:
        """Dimensions that a slot can loop over."""
        return frozenset(
            d
            for d in self.dims
            if len(self.lattice.divisors[d]) > 1
            and (self.targets(slot, d) & ~np.eye(len(self.lattice.divisors[d]), dtype=bool)).any()
        )

    @remembered
    def reachable(self, slot: int, d: int) -> tuple[bool, ...]:
        """Extents of a dimension that tiles at the top of a slot can have."""
        divisors = self.lattice.divisors[d]
        if slot == len(self.facts.slots):
            return (True, *(False for _ in divisors[1:]))
        before = np.array(self.reachable(slot + 1, d))
        result = (self.targets(slot, d) & before[:, None]).any(axis=0)
        level = self.facts.level_at.get(slot)
        if level is not None:
            tiles = np.ones((len(self.dims), len(divisors)))
            tiles[d] = divisors
            needed = np.zeros(len(divisors))
            for t, tensor in enumerate(self.facts.tensors):
                if level in self.facts.keepers[t]:
                    needed = needed + self.facts.volume(tensor, tiles) * self.facts.held(level, t)
            result &= needed <= self.facts.arch.memories[level].usable_words
        return tuple(bool(can) for can in result)

    @remembered
    def corner(self, slot: int) -> GridCorner:
        """The part of the grid that holds all tiles that can be at the top of a slot."""
        ends = []
        for d in self.dims:
            indices = np.flatnonzero(self.reachable(slot, d))
            ends.append(int(indices[-1]) + 1 if len(indices) else 1)
        return GridCorner(self.lattice, tuple(ends))

    @remembered
    def reach(self, slot: int, t: int) -> float:
        """Most by which one axis of a fan-out can divide what a tensor's instances share."""
        node = self.facts.slots[slot].node
        inside = frozenset().union(
            *(
                self.active(s)
                for s, position in enumerate(self.facts.slots)
                if position.node == node
            )
        )
        apart = set(self.free[t])
        for rank in self.facts.tensors[t].windows:
            both = {self.facts.index[dim] for dim, _ in rank} & inside
            apart |= both if len(both) > 1 else set()
        most = 1.0
        for d in apart & self.active(slot):
            ratios = 1.0 / self.lattice.ratio[d][self.targets(slot, d)]
            most *= float(ratios.max(initial=1.0))
        return min(most, self.facts.slots[slot].limit)

    @remembered
    def room(self, slot: int, t: int) -> float:
        """As :meth:`EinsumFacts.room`, of the dimensions that can be shared."""
        if slot == 0:
            return 1.0
        parent = self.facts.parent_slot(t, slot - 1)
        return math.prod(
            self.reach(s, t)
            for s in range(parent + 1, slot)
            if self.facts.slots[s].is_spatial and self.facts.sharing[s][t]
        )

    def overlapping(self, slot: int, t: int) -> bool:
        """Whether windows of instances of fan-outs outside may overlap as whole tiles do."""
        if slot == 0:
            return False
        parent = self.facts.parent_slot(t, slot - 1)
        return any(
            self.reach(s, t) > self._plain_reach(s, t)
            for s in range(parent + 1, slot)
            if self.facts.slots[s].is_spatial
        )

    def _plain_reach(self, slot: int, t: int) -> float:
        most = 1.0
        for d in self.free[t] & self.active(slot):
            ratios = 1.0 / self.lattice.ratio[d][self.targets(slot, d)]
            most *= float(ratios.max(initial=1.0))
        return min(most, self.facts.slots[slot].limit)

    @remembered
    def copies(self, slot: int) -> float:
        """Instances outside a slot that can meet the same outputs, at most."""
        return math.prod(
            self.reach(s, self.facts.output) for s in range(slot) if self.facts.slots[s].is_spatial
        )

    @remembered
    def credit(self, slot: int) -> float:
        """Energy that first visits save at the memories from a slot inwards, of one copy."""
        total = 0.0
        t = self.facts.output
        home = self.facts.home_slot(t)
        for level in self.facts.keepers[t]:
            position = self.facts.arch.memory_slots[level]
            if position >= slot:
                total += self.facts.credit_pj(position, "read_pj")
                total += self.facts.credit_pj(position, "fill_pj") if position != home else 0.0
        return total * self.facts.sizes[t]

    @cached_property
    def wide_reads(self) -> list[tuple[float, float, float]]:
        """Reads by the units at memories whose clusters share them.

        Returns:
            instances, those of a cluster, and the energy of all reads if clusters are full.
        """
        wide_reads = []
        end = len(self.facts.slots)
        for t in range(len(self.facts.tensors)):
            parent = self.facts.parent_slot(t, end - 1)
            level = self.facts.level_at[parent]
            memory = self.facts.arch.memories[level]
            shared = any(self.facts.sharing[s][t] for s in range(parent + 1, end))
            if memory.cluster > 1 and t != self.facts.output and not shared:
                energy = self.facts.points * self.facts.word_pj(parent, "read_pj", t)
                wide_reads.append(
                    (float(self.facts.arch.instances[level]), float(memory.cluster), energy)
                )
        return wide_reads

    # Over the grid.

    @remembered
    def turns(self) -> F64:
        """Visits of each tile."""
        turns = np.ones((1,) * len(self.dims))
        for left in self.lattice.left:
            turns = turns * left
        return turns

    @remembered
    def words(self, t: int) -> F64:
        """Words of a tensor if every visit of a tile brings it anew."""
        return self.turns() * self.lattice.volume(self.facts.tensors[t])

    @remembered
    def every_word(self, t: int) -> F64:
        """As :meth:`words`, of the grid's full shape."""
        return np.ascontiguousarray(np.broadcast_to(self.words(t), self.lattice.shape))

    @remembered
    def still(self, t: int) -> F64:
        """Visits of a tile that need not move a tensor."""
        still = np.ones((1,) * len(self.dims))
        for d in self.free[t]:
            still = still * self.lattice.left[d]
        return still

    @remembered
    def fits(self, slot: int) -> F64:
        """0 where a tile fits the memory of a slot, else infinite."""
        level = self.facts.level_at[slot]
        memory = self.facts.arch.memories[level]
        if memory.capacity_words is None:
            return np.zeros((1,) * len(self.dims))
        needed = np.zeros((1,) * len(self.dims))
        for t, levels in enumerate(self.facts.keepers):
            if level in levels:
                words = self.lattice.volume(self.facts.tensors[t]) * self.facts.held(level, t)
                needed = needed + memory.taken(words)
        return np.where(needed <= memory.usable_words, 0.0, np.inf)

    def leak(self, slot: int) -> float:
        """Energy that the working instances of a memory leak at least."""
        if self.facts.arch.idle_leaks:
            return 0.0
        memory = self.facts.arch.memories[self.facts.level_at[slot]]
        inside = math.prod(
            self.facts.limit(s)
            for s in range(slot, len(self.facts.slots))
            if self.facts.slots[s].is_spatial
        )
        per_cycle = self.facts.arch.compute.per_cycle
        return (memory.leak_pj_per_cycle or 0.0) / per_cycle * self.facts.points / inside

    @remembered
    def time(self, slot: int) -> F64:
        """What the time of tiles at the top of a slot costs, if all instances there are work.

        Inside the slot fan-outs are taken as full. Where the price of a cycle is 0, nothing.
        """
        time = np.zeros((1,) * len(self.dims))
        if not self.facts.cycle_pj:
            return time
        inside = 1.0
        most = np.ones((1,) * len(self.dims))
        for s, position in enumerate(self.facts.slots):
            if position.is_spatial and s >= slot:
                inside *= self.facts.limit(s)
            elif position.is_spatial and self.facts.limit(s) > 1:
                here = np.ones((1,) * len(self.dims))
                for d in self.active(s):
                    here = here * self.lattice.left[d]
                most = most * np.minimum(self.facts.limit(s), here)
        pj = self.facts.cycle_pj / self.facts.arch.compute.per_cycle * self.facts.points / inside
        least: F64 = pj / np.minimum(most, self.turns())
        return least

    @remembered
    def whole_time(self, slot: int) -> F64:
        """As :meth:`time`, of the grid's full shape."""
        return np.ascontiguousarray(np.broadcast_to(self.time(slot), self.lattice.shape))
