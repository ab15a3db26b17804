"""What partial mappings cost at least, however they are completed."""

from __future__ import annotations

from functools import cached_property
from typing import final

import numpy as np

from silicast.accelerator._facts import Facts
from silicast.accelerator._states import States
from silicast.core.numerics import F64, I64


@final
class Bounds:
    """Bounds for the partial mappings of one search."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    @cached_property
    def grid(self) -> tuple[list[I64], F64, F64, F64]:
        """Divisors of each dimension; least cost outside the second memory, by its tile.

        Entry [i, j, ...] belongs to the divisors i, j, ... of the dimensions, and is the least
        over all tiles of the second memory that hold such a tile and fit.

        Returns:
            the divisors, those costs, all tiles (dims, n), and the cost of each, (n,).
        """
        sizes = [int(size) for size in self.facts.extents[:, 0]]
        divisors = [np.array([f for f in range(1, n + 1) if n % f == 0]) for n in sizes]
        shape = tuple(len(some) for some in divisors)
        if len(self.facts.arch.memories) < 2:
            return divisors, np.zeros(shape), np.ones((len(sizes), 1)), np.zeros(1)
        tiles = np.stack([part.ravel() for part in np.meshgrid(*divisors, indexing="ij")]).astype(
            float
        )
        total = self.outer_cost(tiles).reshape(shape)
        raw = total.ravel().copy()
        for axis, some in enumerate(divisors):
            moved = np.moveaxis(total, axis, 0)
            for i in range(len(some) - 2, -1, -1):
                for j in range(i + 1, len(some)):
                    if some[j] % some[i] == 0:
                        np.minimum(moved[i], moved[j], out=moved[i])
        return divisors, total, tiles, raw

    def outer_cost(self, tiles: F64) -> F64:
        """Least energy of the edges from the first memory into the second, by its tile."""
        place = self.facts.arch.memory_slots[1]
        inside = [t for t, kept in enumerate(self.facts.kept) if 1 in kept]
        shared = any(
            self.facts.slots[s].is_spatial and self.facts.limit(s) > 1 for s in range(place)
        )
        memory = self.facts.arch.memories[1]
        full = sum(
            (self.facts.volume(self.facts.tensors[t], tiles) for t in inside),
            np.zeros(tiles.shape[1]),
        )
        if shared:
            total = np.full(tiles.shape[1], 0.0)
            for t in inside:
                action = "update_pj" if t == self.facts.output else "read_pj"
                total += self.facts.sizes[t] * self.facts.word_pj(0, action)
            return np.where(full <= memory.usable_words, total, np.inf)
        factors = self.facts.extents / tiles
        turns = np.prod(factors, axis=0)
        best = np.full(tiles.shape[1], np.inf)
        for order in self.facts.orders(0):
            total = np.zeros(tiles.shape[1])
            spans = self.facts.spans(tiles)
            for t in inside:
                words = turns * self.facts.volume(self.facts.tensors[t], tiles)
                words = words / self.facts.stay(t, factors, order)
                words *= self.facts.slide(t, factors, tiles, spans, order, last=True)[1]
                pj = self.facts.fill_pj(t, place - 1) + self.facts.pass_pj(t, 0)
                total += words * pj
                if t == self.facts.output:
                    total -= self.facts.sizes[t] * (
                        self.facts.fill_pj(t, place - 1) + self.facts.word_pj(0, "read_pj")
                    )
            np.minimum(best, total, out=best)
        return np.where(full <= memory.usable_words, best, np.inf)

    def least_outside(self, tile: F64) -> F64:
        """Least cost of the edges between the first two memories for tiles inside the second."""
        divisors, total, _, _ = self.grid
        index = tuple(
            np.searchsorted(some, tile[d].astype(np.int64)) for d, some in enumerate(divisors)
        )
        result: F64 = total[index]
        return result

    def least(self, states: States, slot: int) -> tuple[F64, F64]:
        """Energy and cycles that no completion of the states decided down to ``slot`` is below."""
        energy, cycles = self.least_inside(states, slot)
        if len(self.facts.arch.memories) > 1:
            if slot > self.facts.arch.memory_slots[1]:
                energy = energy + self.least_outside(states.tile)
            elif slot == self.facts.arch.memory_slots[1]:
                energy = energy + self.outer_cost(states.tile)
        return energy, cycles

    def least_inside(self, states: States, slot: int) -> tuple[F64, F64]:
        """As :meth:`least`, without the edges from the first memory into the second."""
        left = self.facts.extents / states.tile
        energy = states.booked - states.credit * self.facts.outside(slot)
        memories = self.facts.arch.memory_slots
        for t in range(len(self.facts.tensors)):
            if slot == 0:
                break
            # The edge at the top; the edge between the first two memories is counted apart.
            apart = len(memories) > 1 and slot == memories[1] and 1 in self.facts.kept[t]
            still = np.prod(np.where(self.facts.moves[t], 1.0, left), axis=0)
            words = states.fills[t] / still
            if self.facts.tensors[t].windows:
                words = np.minimum(words, self.facts.sizes[t])
            with np.errstate(divide="ignore", invalid="ignore"):
                share = np.where(
                    states.open[t] & (states.fills[t] > 0), words / states.fills[t], 1.0
                )
            edge = states.waiting[t]
            if not apart:
                edge = edge + states.fills[t] * self.facts.fill_pj(t, slot - 1)
                edge = edge + states.passes[t] * (
                    self.facts.pass_pj(t, slot - 1) / self.facts.room(slot, t)
                )
            energy = energy + share * edge
            if t != self.facts.output:
                continue
            # First visits read nothing: the parent's reads are not all that passes it.
            parent = self.facts.parent_slot(t, slot - 1)
            if apart:
                energy = energy + self.facts.sizes[t] * self.facts.word_pj(slot, "fill_pj")
            else:
                energy = energy - self.facts.sizes[t] * self.facts.credit_pj(
                    parent, "read_pj"
                ) * self.facts.outside(parent)
        cycles = states.steps * np.maximum(1.0, np.prod(left, axis=0) / self.facts.outside(slot))
        cycles = np.ceil(
            np.maximum(cycles, self.facts.points / self.facts.arch.units)
            / self.facts.arch.compute.per_cycle
        )
        if self.facts.arch.idle_leaks:
            energy = energy + cycles * self.facts.idle_leak
        return energy, cycles
