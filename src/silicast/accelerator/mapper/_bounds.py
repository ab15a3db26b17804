"""What partial mappings cost at least, however they are completed."""

from __future__ import annotations

from typing import final

import numpy as np

from silicast.accelerator.mapper._cells import HERE, OpenTensorCosts, PartialTiles
from silicast.accelerator.mapper._facts import EinsumFacts
from silicast.accelerator.mapper._outside import Outside
from silicast.accelerator.mapper._states import States
from silicast.core.numerics import F64, I64


@final
class Bounds:
    """Bounds for the partial mappings of one search."""

    def __init__(self, facts: EinsumFacts) -> None:
        self.facts = facts
        self.outside = Outside(facts)

    def least(self, states: States, slot: int) -> tuple[F64, F64]:
        """Energy and cycles that no completion of the states decided down to ``slot`` is below."""
        cycles = self.least_cycles(states, slot)
        energy = states.booked + self.least_outside(states, slot)
        if self.facts.cycle_pj and not slot:
            energy = energy + cycles * self.facts.cycle_pj
        return energy, cycles

    def least_cycles(self, states: States, slot: int) -> F64:
        """Cycles of the units."""
        return self.cycles_of(states.steps, self.facts.extents / states.tile, slot)

    def instances(self, left: F64, slot: int) -> F64:
        """Instances that fan-outs outside ``slot`` can use at most, with ``left`` by dimension."""
        most: F64 = np.ones(left.shape[1])
        for s in range(slot):
            if self.facts.slots[s].is_spatial and self.facts.limit(s) > 1:
                dims = sorted(self.outside.tiles.active(s))
                most = most * np.minimum(self.facts.limit(s), np.prod(left[dims], axis=0))
        return most

    def cycles_of(self, steps: F64, left: F64, slot: int) -> F64:
        """Cycles of so many iterations in time, with ``left`` by dimension outside of ``slot``."""
        outside = np.prod(left, axis=0) / self.instances(left, slot)
        value: F64 = steps * np.maximum(1.0, outside) / self.facts.arch.compute.per_cycle
        return np.ceil(value) if self.facts.objective == "edp" else value

    def least_outside(self, states: States, slot: int) -> F64:
        """Energy that is not booked yet, less what first visits save."""
        outside = self.outside
        if slot == 0:
            return self.unshared(states, 0) - states.credit
        left = self.facts.extents / states.tile
        energy: F64 = self.sure(states, slot) - states.booked
        positions = outside.lattice.indices(states.tile)
        for mask, rows in self.masks(states):
            masked = states if len(rows) == len(states) else states.take(rows)
            energy[rows] += self._of_open(
                masked, slot, mask, PartialTiles(outside.lattice, positions[:, rows]), left[:, rows]
            )
        return energy

    def sure(self, states: States, slot: int) -> F64:
        """Energy of a completion, without what :meth:`least_outside` looks up for open tensors."""
        left = self.facts.extents / states.tile
        out = self.facts.output
        again = np.prod(np.where(self.facts.moves[out], 1.0, left), axis=0)
        copies = np.minimum(self.outside.tiles.copies(slot), again)
        energy: F64 = states.booked - (states.credit - self.outside.tiles.credit(slot)) * copies
        energy = energy + self.pending(states, slot, left) + self.unshared(states, slot)
        if self.facts.cycle_pj:
            energy = energy + self.least_cycles(states, slot) * self.facts.cycle_pj
        return energy

    def unshared(self, states: States, slot: int) -> F64 | float:
        """Reads by the units, above what they cost if clusters were full, for too few units."""
        if not self.outside.tiles.wide_reads:
            return 0.0
        inside = np.prod(states.tile, axis=0) / states.steps
        most = inside * self.instances(self.facts.extents / states.tile, slot)
        total: F64 = np.zeros(len(states))
        for instances, cluster, energy in self.outside.tiles.wide_reads:
            working = np.minimum(most, instances)
            total = total + energy * (np.minimum(cluster, instances / working) - 1.0)
        return total

    def pending(self, states: States, slot: int, left: F64) -> F64:
        """Least energy of words that closed tensors still pass to their parents."""
        outside = self.outside
        energy = np.zeros(len(states))
        for t in range(len(self.facts.tensors)):
            waiting = np.where(states.open[t], 0.0, states.passes[t])
            if waiting.any():
                still = np.prod(np.where(self.facts.moves[t], 1.0, left), axis=0)
                room = outside.tiles.room(slot, t)
                if not outside.tiles.overlapping(slot, t):
                    room = np.minimum(room, still)
                energy = energy + waiting * self.facts.pass_pj(t, slot - 1) / room
        return energy

    def _of_open(
        self, states: States, slot: int, mask: frozenset[int], cells: PartialTiles, left: F64
    ) -> F64:
        edges = self.edges(states, slot, mask, cells, left)
        if self.facts.slots[slot - 1].is_spatial:
            ahead = cells.pick(self.outside.table(slot, mask), HERE)
            for t in mask:
                ahead = ahead + edges.uncounted[t]
            return ahead[:, 0]
        ahead = self.outside.ahead(slot, mask, cells, edges)
        return ahead - self.time(slot, cells)

    def time(self, slot: int, cells: PartialTiles) -> F64 | float:
        """Price of time that the tables count again, of what :meth:`sure` does."""
        if not self.facts.cycle_pj:
            return 0.0
        return cells.pick(self.outside.tiles.whole_time(slot), HERE)[:, 0]

    def edges(
        self, states: States, slot: int, mask: frozenset[int], cells: PartialTiles, left: F64
    ) -> OpenTensorCosts:
        """What the open tensors ``mask`` of states cost."""
        outside, facts = self.outside, self.facts
        close, beyond, overlap = {}, {}, {}
        for t in mask:
            fill, pass_, room = (
                facts.fill_pj(t, slot - 1),
                facts.pass_pj(t, slot - 1),
                outside.tiles.room(slot, t),
            )
            fills, passes, waiting = states.fills[t], states.passes[t], states.waiting[t]
            still = np.prod(np.where(facts.moves[t], 1.0, left), axis=0)
            share = outside.share(t, np.maximum(fills, 1e-300), still)
            close[t] = waiting + fills * fill + passes * (pass_ / room)
            least_words = cells.pick(outside.tiles.every_word(t), HERE)[:, 0]
            beyond[t] = share * (
                waiting
                + np.maximum(0.0, fills - least_words) * fill
                + np.maximum(0.0, passes - least_words) * (pass_ / room)
            )
            if facts.slots[slot - 1].is_spatial or not states.fresh[t].any():
                continue
            spans = [states.spans[n] for n, (owner, _) in enumerate(facts.windows) if owner == t]
            for d, retained in outside.overlaps(t, spans, states.tile):
                overlap[t, d] = np.where(states.fresh[t], retained, 0.0)
        return OpenTensorCosts(
            {t: value[:, None] for t, value in close.items()},
            {t: value[:, None] for t, value in beyond.items()},
            {key: value[:, None] for key, value in overlap.items()},
        )

    def masks(self, states: States) -> list[tuple[frozenset[int], I64]]:
        """Rows by the tensors that are open."""
        flags = np.zeros(len(states), dtype=np.int64)
        for t, open_ in enumerate(states.open):
            flags += open_.astype(np.int64) << t
        return [
            (
                frozenset(t for t in range(len(states.open)) if flag >> t & 1),
                np.flatnonzero(flags == flag),
            )
            for flag in np.unique(flags)
        ]
