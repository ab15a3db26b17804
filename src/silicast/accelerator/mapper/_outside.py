"""What everything outside a tile costs at least: tables over all tiles, from the outermost slot in.

A table belongs to a slot and to the tensors that are still *open* there: no loop in time has
moved them since their innermost memory. Its entry for a tile is the least, over all decisions of
the slots outside, of what they add: edges of those slots, and of what open tensors cost. An open
tensor's words are taken as if its tile at the child were the whole tile, which is a lower bound; a
partial mapping adds what it knows better. The entries follow from those of the next slot outside:
loops that leave the same tensors in place are tried together, all others cost nothing but the
table's entry, so its least over larger tiles is enough.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import final

import numpy as np

from silicast.accelerator.mapper._cells import (
    Cells,
    GridCorner,
    LoopOrderGroup,
    Mask,
    OpenTensorCosts,
    Option,
    Places,
    Rides,
    Target,
)
from silicast.accelerator.mapper._facts import EinsumFacts
from silicast.accelerator.mapper._tiles import TileFacts
from silicast.core.numerics import F64
from silicast.core.remembered import remembered

SHIFTS = 10
"""Operations on arrays for one way to spread work over an axis."""


@final
class Outside:
    """The tables of one search."""

    def __init__(self, facts: EinsumFacts) -> None:
        self.facts = facts
        self.tiles = TileFacts(facts)
        self.lattice = self.tiles.lattice
        self.dims = self.tiles.dims
        self.free = self.tiles.free
        self.ways: dict[
            tuple[int, tuple[int, ...], tuple[int, ...]], list[tuple[Target, dict[int, F64], F64]]
        ] = {}

    # Tables.

    @remembered
    def table(self, slot: int, mask: Mask, rides: Rides = ()) -> F64:
        """Least that the slots outside ``slot`` add, by the tile at its top.

        Raises:
            BudgetSpent: as all that is asked of tables.
        """
        self.facts.budget.hold(self.lattice.cells)
        if slot == 0:
            table = np.full(self.lattice.shape, np.inf)
            table.ravel()[-1] = -self.tiles.credit(0)
            return table
        outer = slot - 1
        if self.facts.slots[outer].is_spatial:
            return self._in_space(slot, mask, rides)
        close, overlap, riding = {}, {}, dict(rides)
        grid = self.tiles.corner(slot)
        for t in mask:
            close[t] = grid.cut(self.tiles.words(t)) * (
                self.facts.fill_pj(t, outer)
                + self.facts.pass_pj(t, outer) / self.tiles.room(slot, t)
                + riding.get(t, 0.0)
            )
            for d, retained in self.overlaps(t, None, self.lattice.extent):
                overlap[t, d] = grid.cut(retained)
        zero = {t: np.zeros((1,) * len(self.dims)) for t in mask}
        table = np.full(self.lattice.shape, np.inf)
        ahead = self.ahead(slot, mask, grid, OpenTensorCosts(close, zero, overlap), rides)
        table[grid.corner] = ahead - Places({}, grid.ends)(self.tiles.time(slot))
        return table

    def share(self, t: int, words: F64, still: F64) -> F64:
        """Least share of words that still move, whatever stands outside."""
        if not self.facts.tensors[t].windows:
            return 1.0 / still
        return np.minimum(words / still, self.facts.sizes[t]) / words

    def overlaps(
        self, t: int, spans: Sequence[F64] | None, extent: Sequence[F64] | F64
    ) -> Iterator[tuple[int, F64]]:
        """Share of a window that a step along each of its dimensions keeps."""
        tensor = self.facts.tensors[t]
        table: dict[int, F64] = {}
        for number, rank in enumerate(tensor.windows):
            span = self.lattice.span(rank) if spans is None else spans[number]
            for dim, step in rank:
                d = self.facts.index[dim]
                share = np.maximum(0.0, span - step * extent[d]) / span
                table[d] = table[d] * share if d in table else share
        yield from table.items()

    def _in_space(self, slot: int, mask: Mask, rides: Rides) -> F64:
        """Through one axis of a fan-out."""
        outer = slot - 1
        table = self.table(outer, mask, rides)
        out = self.facts.output
        space = np.full(self.lattice.shape, np.inf)
        dims = sorted(self.tiles.active(outer))
        limit = self.facts.slots[outer].limit
        copies = np.minimum(self.tiles.copies(outer), self.tiles.still(out))
        extra = {t: self._extra(outer, t, dict(rides).get(t, 0.0)) for t in mask}
        closed = {
            t: self._passing(slot, t)
            for t in range(len(self.free))
            if t not in mask
            and self.tiles.room(slot, t) > 1
            and not self.tiles.overlapping(slot, t)
        }
        for steps in self._steps(outer, dims, limit):
            inner, above = self._shifted(steps, self.tiles.corner(slot).ends)
            cost = above(table)
            self.facts.budget.work(cost.size * SHIFTS, SHIFTS)
            for t, (words, per_word, energy, moving) in extra.items():
                if not moving.isdisjoint(steps):
                    cost = cost + (inner(words) - above(words)) * above(per_word)
                    continue
                shared = math.prod(step for d, step in steps.items() if d in self.free[t])
                if shared > 1:
                    cost = cost + above(energy) * (shared - 1.0)
            for t, (least, before, after) in closed.items():
                shared = math.prod(step for d, step in steps.items() if d in self.free[t])
                shared = shared if self.facts.sharing[outer][t] else 1
                cost = cost + inner(least) * (above(after) / shared - inner(before))
            if self.facts.cycle_pj:
                emptier = self.facts.limit(outer) / math.prod(steps.values())
                cost = cost + above(self.tiles.time(outer)) * emptier - inner(self.tiles.time(slot))
            again = math.prod(step for d, step in steps.items() if d in self.free[out])
            if again > 1:
                cost = cost - self.tiles.credit(slot) * (again - 1.0) * above(copies)
            inner.lower(space, cost)
        return space

    def _passing(self, slot: int, t: int) -> tuple[F64, F64, F64]:
        """Of a closed tensor, whose words the fan-outs outside still share.

        Returns:
            least energy of the words that pass, and what share of it is left at best, as it is
            inside and outside of the next fan-out's axis.
        """
        words = self.tiles.words(t)
        if self.facts.child_slot(t, slot - 1) == len(self.facts.slots):
            inside = math.prod(
                self.tiles.reach(s, t)
                for s in range(slot, len(self.facts.slots))
                if self.facts.slots[s].is_spatial and self.facts.sharing[s][t]
            )
            words = np.maximum(words, self.facts.points / inside)
        shares = [
            1.0 / np.minimum(self.tiles.room(position, t), self.tiles.still(t))
            for position in (slot, slot - 1)
        ]
        energy = words * self.facts.pass_pj(t, slot - 1)
        return energy, shares[0], shares[1]

    def _extra(self, slot: int, t: int, ride: float) -> tuple[F64, F64, F64, frozenset[int]]:
        """Words that the table outside counts, and what each beyond them costs at least; what all
        of them cost, and the dimensions of the tensor's windows.
        """
        words = self.tiles.words(t)
        share = self.share(t, words, self.tiles.still(t))
        energy = self.facts.fill_pj(t, slot) + ride
        if not self.facts.sharing[slot][t]:
            energy += self.facts.pass_pj(t, slot) / self.tiles.room(slot, t)
        per_word = share * energy
        return words, per_word, words * per_word, self.facts.moved_windows(t)

    def _steps(self, slot: int, dims: list[int], limit: float) -> Iterator[dict[int, int]]:
        """Loop bounds of one axis, without those of one."""
        choices = []
        for d in dims:
            ratios = 1.0 / self.lattice.ratio[d][self.tiles.targets(slot, d)]
            choices.append(sorted({round(float(r)) for r in ratios}))

        def walk(position: int, room: float) -> Iterator[dict[int, int]]:
            if position == len(dims):
                yield {}
                return
            for step in choices[position]:
                if step <= room:
                    for inner in walk(position + 1, room / step):
                        yield inner if step == 1 else {dims[position]: step, **inner}

        yield from walk(0, limit)

    def _shifted(self, steps: dict[int, int], ends: tuple[int, ...]) -> tuple[Places, Places]:
        """Places of the tiles that can grow by these steps, and of what they grow to."""
        inner, above = {}, {}
        for d, step in steps.items():
            inner[d], above[d] = self.lattice.grown(d, step, ends[d])
        return Places(inner, ends), Places(above, ends)

    @remembered
    def beyond(self, slot: int, after: Mask, rides: Rides = ()) -> F64:
        """Least outside a memory's loops, by the tile at its own top; ``after`` are still open."""
        level = self.facts.level_at[slot]
        tensors = frozenset(t for t in range(len(self.free)) if level in self.facts.keepers[t])
        mask = (after | tensors) if slot else frozenset()
        return self.table(slot, mask, rides if slot else ()) + (
            self.tiles.fits(slot) + self.tiles.time(slot) + self.tiles.leak(slot)
        )

    @remembered
    def reduced(self, slot: int, after: Mask, dims: frozenset[int]) -> F64:
        """Least of :meth:`beyond` over all that the slot's other loops may do."""
        beyond = self.beyond(slot, after)
        for d in self.dims:
            if d in dims or beyond.shape[d] == 1:
                continue
            moved = np.moveaxis(beyond, d, 0)
            self.facts.budget.work(beyond.size * 2, moved.shape[0])
            allowed = self.tiles.targets(slot, d)
            result = np.full(moved.shape, np.inf)
            for i in range(moved.shape[0]):
                choices = np.flatnonzero(allowed[i])
                if len(choices):
                    result[i] = moved[choices].min(axis=0)
            beyond = np.moveaxis(result, 0, d)
        self.facts.budget.hold(beyond.size)
        return np.ascontiguousarray(beyond)

    @remembered
    def groups(self, slot: int, mask: Mask) -> tuple[LoopOrderGroup, ...]:
        """Groups of a memory's orders, for what is open."""
        table: dict[tuple[tuple[int, ...], tuple[tuple[int, frozenset[int]], ...]], list[int]] = {}
        starts: dict[object, set[int]] = {}
        slides = {
            self.facts.index[dim]
            for t in mask
            for rank in self.facts.tensors[t].windows
            for dim, _ in rank
        }
        for number, order in enumerate(self.facts.orders(slot)):
            turning = [d for d in order if d in self.tiles.active(slot)]
            stays = []
            longest = 0
            for t in sorted(mask):
                still = list(itertools.takewhile(self.free[t].__contains__, turning))
                longest = max(longest, len(still))
                if still:
                    stays.append((t, frozenset(still)))
            first = set(turning[:1]) & slides
            key = (tuple(sorted(set(turning[:longest]) | first)), tuple(stays))
            table.setdefault(key, []).append(number)
            starts.setdefault(key, set()).update(first)
        return tuple(
            LoopOrderGroup(*key, tuple(sorted(starts[key])), tuple(orders))
            for key, orders in table.items()
        )

    def ahead(
        self, slot: int, mask: Mask, cells: Cells, edges: OpenTensorCosts, rides: Rides = ()
    ) -> F64:
        """Least that the memory outside ``slot`` and all outside it add."""
        best: F64 | None = None
        for option in self.options(slot - 1, mask, edges, rides):
            for target, cost in self.costs(option, cells, edges):
                best = cells.least(best, target, cost)
        assert best is not None
        return best

    def options(
        self, outer: int, mask: Mask, edges: OpenTensorCosts, rides: Rides = ()
    ) -> Iterator[Option]:
        """Ways in which the loops of a memory can treat open tensors."""
        zero: Mask = frozenset()
        for group in self.groups(outer, mask):
            yield Option(outer, mask, zero, group, is_whole=False)
        taken: set[frozenset[int]] = set()
        for size in range(len(mask), 0, -1):
            for staying in itertools.combinations(sorted(mask), size):
                dims = self.tiles.active(outer)
                for t in staying:
                    dims = dims & self.free[t]
                if dims not in taken:
                    taken.add(dims)
                    group = self._together(outer, mask - frozenset(staying), dims, edges)
                    after = self._riding(outer, staying, dict(rides))
                    yield Option(outer, mask, frozenset(staying), group, True, after)
        # A run of neighbours that nothing else interrupts may go on outside.
        for d in sorted({d for _, d in edges.overlap} if outer else ()):
            if d in self.tiles.active(outer) and not any(d in self.free[o] for o in mask):
                yield Option(
                    outer,
                    mask,
                    zero,
                    self._together(outer, mask, frozenset({d}), edges),
                    is_whole=True,
                )

    def _riding(self, outer: int, stay: Sequence[int], rides: dict[int, float]) -> Rides:
        """What comes anew with the edges of tensors that stay, once a memory keeps them."""
        level, riding = self.facts.level_at[outer], []
        for t in stay:
            ride = rides.get(t, 0.0)
            if level in self.facts.keepers[t]:
                ride += self.facts.fill_pj(t, outer) + self.facts.pass_pj(t, outer)
            if ride and outer:
                riding.append((t, ride))
        return tuple(riding)

    def _together(
        self, outer: int, mask: Mask, dims: frozenset[int], edges: OpenTensorCosts
    ) -> LoopOrderGroup:
        """All loops over some dimensions, and no other; ``mask`` closes."""
        stays = tuple((t, dims & self.free[t]) for t in sorted(mask) if dims & self.free[t])
        starts = tuple(sorted(d for d in dims if any((t, d) in edges.overlap for t in mask)))
        orders = []
        for number, order in enumerate(self.facts.orders(outer)):
            turning = [d for d in order if d in self.tiles.active(outer)]
            if set(turning[: len(dims)]) == dims:
                orders.append(number)
        every = tuple(range(len(self.facts.orders(outer))))
        return LoopOrderGroup(tuple(sorted(dims)), stays, starts, tuple(orders) or every)

    def costs(
        self, option: Option, cells: Cells, edges: OpenTensorCosts
    ) -> Iterator[tuple[Target, F64]]:
        """Least cost of an option, by the tile that its loops lead to."""
        outer, group = option.slot, option.group
        stays = dict(group.stays)
        last = outer == 0
        plain = np.zeros(1)
        changing = []
        for t in sorted(option.mask):
            if t in option.stay and not last:
                plain = plain + edges.uncounted[t]
                continue
            slides = [d for d in group.starts if (t, d) in edges.overlap]
            still = group.dims if t in option.stay else tuple(stays.get(t, ()))
            if still or slides:
                changing.append((t, still, slides))
            else:
                plain = plain + edges.close[t]
        if option.is_whole:
            table = self.beyond(outer, option.stay, option.rides)
            for d in self.tiles.active(outer) - set(group.dims):
                plain = plain + self._standing(outer, d, cells)
        else:
            table = self.reduced(outer, option.stay, frozenset(group.dims))
        for target, ratios, allowed in self._targets(outer, group.dims, cells):
            cost = cells.pick(table, target) + (cells.part(plain, target) + allowed)
            for t, still, slides in changing:
                share = _product([ratios[d] for d in still])
                if slides:
                    share = share * _least(
                        [
                            self._slid(ratios[d], cells.part(edges.overlap[t, d], target), option)
                            for d in slides
                        ]
                    )
                cost = cost + cells.part(edges.close[t], target) * share
            self.facts.budget.work(cost.size * 2, 4)
            yield target, cost

    def _slid(self, ratio: F64, overlap: F64, option: Option) -> F64:
        """Share of a window's words that still move when a loop over its dimension is innermost.

        A loop outside may go on with the run, if no other stands between.
        """
        if option.is_whole and option.slot:
            return np.where(ratio < 1, 1.0 - overlap, 1.0)
        return 1.0 - (1.0 - ratio) * overlap

    def _targets(
        self, outer: int, dims: tuple[int, ...], cells: Cells
    ) -> Iterable[tuple[Target, dict[int, F64], F64]]:
        """Tiles that loops over some dimensions may lead to; infinite where they may not."""
        if not isinstance(cells, GridCorner):
            return self._ways(outer, dims, cells)
        key = (outer, dims, cells.ends)
        if key not in self.ways:
            self.ways[key] = list(self._ways(outer, dims, cells))
        return self.ways[key]

    def _ways(
        self, outer: int, dims: tuple[int, ...], cells: Cells
    ) -> Iterator[tuple[Target, dict[int, F64], F64]]:
        for target in cells.ways(dims):
            ratios = {d: cells.lookup(d, self.lattice.ratio[d], target) for d in dims}
            allowed = np.zeros(1)
            for d in dims:
                allowed = allowed + cells.lookup(d, self._barred(outer, d), target)
            if (allowed < np.inf).any():
                yield target, ratios, allowed

    @remembered
    def _barred(self, outer: int, d: int) -> F64:
        return np.where(self.tiles.targets(outer, d), 0.0, np.inf)

    def _standing(self, outer: int, d: int, cells: Cells) -> F64:
        """Infinite where a slot must loop over a dimension."""
        return cells.own(d, np.ascontiguousarray(np.diagonal(self._barred(outer, d))))


def _product(factors: Sequence[F64]) -> F64:
    if not factors:
        return np.ones(1)
    product = factors[0]
    for each in factors[1:]:
        product = product * each
    return product


def _least(arrays: Sequence[F64]) -> F64:
    least = arrays[0]
    for each in arrays[1:]:
        least = np.minimum(least, each)
    return least
