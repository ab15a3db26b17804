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
from collections.abc import Iterator, Sequence
from functools import cache
from typing import final

import numpy as np

from silicast.accelerator._cells import Cells, Edges, Grid, Group, Mask, Option, Rows, Target
from silicast.accelerator._facts import Facts
from silicast.accelerator._lattice import Lattice
from silicast.core.numerics import F64, I64


@final
class Outside:
    """The tables of one search."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.lattice = Lattice(facts.einsum.dims, tuple(facts.einsum.bounds.values()))
        self.dims = range(len(facts.einsum.dims))
        self.free = [
            frozenset(d for d in self.dims if not facts.moves[t][d, 0])
            for t in range(len(facts.tensors))
        ]
        """Dimensions that do not index each tensor."""
        self.grid = Grid(self.lattice)

    # What a place allows.

    @cache  # noqa: B019 - lives as long as its search
    def targets(self, slot: int, d: int) -> F64:
        """Whether a slot's loop may turn the i-th divisor into the j-th, (n, n)."""
        some = self.lattice.divisors[d]
        found = np.zeros((len(some), len(some)), dtype=bool)
        for i, extent in enumerate(some):
            for factor in self.facts.choices(slot, d, int(some[-1] // extent)):
                found[i, np.searchsorted(some, extent * factor)] = True
        return found

    @cache  # noqa: B019
    def active(self, slot: int) -> frozenset[int]:
        """Dimensions that a slot can loop over."""
        return frozenset(
            d for d in self.dims
            if len(self.lattice.divisors[d]) > 1
            and (self.targets(slot, d) & ~np.eye(len(self.lattice.divisors[d]), dtype=bool)).any()
        )  # fmt: skip

    @cache  # noqa: B019
    def reach(self, slot: int, t: int) -> float:
        """Most by which one axis of a fan-out can divide what a tensor's instances share."""
        node = self.facts.slots[slot].node
        inside = frozenset().union(*(
            self.active(s) for s, place in enumerate(self.facts.slots)
            if place.node == node
        ))  # fmt: skip
        apart = set(self.free[t])
        for rank in self.facts.tensors[t].windows:
            both = {self.facts.index[dim] for dim, _ in rank} & inside
            apart |= both if len(both) > 1 else set()
        most = 1.0
        for d in apart & self.active(slot):
            ratios = 1.0 / self.lattice.ratio[d][self.targets(slot, d)]
            most *= float(ratios.max(initial=1.0))
        return min(most, self.facts.slots[slot].limit)

    @cache  # noqa: B019
    def room(self, slot: int, t: int) -> float:
        """As :meth:`Facts.room`, of the dimensions that can be shared."""
        if slot == 0:
            return 1.0
        parent = self.facts.parent_slot(t, slot - 1)
        return math.prod(
            self.reach(s, t) for s in range(parent + 1, slot)
            if self.facts.slots[s].is_spatial and self.facts.sharing[s][t]
        )  # fmt: skip

    def overlapping(self, slot: int, t: int) -> bool:
        """Whether windows of instances of fan-outs outside may overlap as whole tiles do."""
        if slot == 0:
            return False
        parent = self.facts.parent_slot(t, slot - 1)
        return any(
            self.reach(s, t) > self._plain_reach(s, t) for s in range(parent + 1, slot)
            if self.facts.slots[s].is_spatial
        )  # fmt: skip

    def _plain_reach(self, slot: int, t: int) -> float:
        most = 1.0
        for d in self.free[t] & self.active(slot):
            ratios = 1.0 / self.lattice.ratio[d][self.targets(slot, d)]
            most *= float(ratios.max(initial=1.0))
        return min(most, self.facts.slots[slot].limit)

    @cache  # noqa: B019
    def copies(self, slot: int) -> float:
        """Instances outside a slot that can meet the same outputs, at most."""
        return math.prod(
            self.reach(s, self.facts.output) for s in range(slot) if self.facts.slots[s].is_spatial
        )

    @cache  # noqa: B019
    def credit(self, slot: int) -> float:
        """Energy that first visits save at the memories from a slot inwards, of one copy."""
        total = 0.0
        t = self.facts.output
        for level in self.facts.kept[t]:
            place = self.facts.arch.memory_slots[level]
            if place >= slot:
                total += self.facts.credit_pj(place, "read_pj")
                total += self.facts.credit_pj(place, "fill_pj") if place else 0.0
        return total * self.facts.sizes[t]

    # Over the grid.

    @cache  # noqa: B019
    def turns(self) -> F64:
        """Visits of each tile."""
        found = np.ones((1,) * len(self.dims))
        for left in self.lattice.left:
            found = found * left
        return found

    @cache  # noqa: B019
    def words(self, t: int) -> F64:
        """Words of a tensor if every visit of a tile brings it anew."""
        return self.turns() * self.lattice.volume(self.facts.tensors[t])

    @cache  # noqa: B019
    def every_word(self, t: int) -> F64:
        """As :meth:`words`, of the grid's full shape."""
        return np.ascontiguousarray(np.broadcast_to(self.words(t), self.lattice.shape))

    @cache  # noqa: B019
    def still(self, t: int) -> F64:
        """Visits of a tile that need not move a tensor."""
        found = np.ones((1,) * len(self.dims))
        for d in self.free[t]:
            found = found * self.lattice.left[d]
        return found

    @cache  # noqa: B019
    def fits(self, slot: int) -> F64:
        """0 where a tile fits the memory of a slot, else infinite."""
        level = self.facts.level_at[slot]
        memory = self.facts.arch.memories[level]
        if memory.capacity_words is None:
            return np.zeros((1,) * len(self.dims))
        needed = np.zeros((1,) * len(self.dims))
        for t, kept in enumerate(self.facts.kept):
            if level in kept:
                needed = needed + memory.taken(self.lattice.volume(self.facts.tensors[t]))
        return np.where(needed <= memory.usable_words, 0.0, np.inf)

    def leak(self, slot: int) -> float:
        """Energy that the working instances of a memory leak at least."""
        if self.facts.arch.idle_leaks:
            return 0.0
        memory = self.facts.arch.memories[self.facts.level_at[slot]]
        inside = math.prod(
            self.facts.limit(s) for s in range(slot, len(self.facts.slots))
            if self.facts.slots[s].is_spatial
        )  # fmt: skip
        per_cycle = self.facts.arch.compute.per_cycle
        return (memory.leak_pj_per_cycle or 0.0) / per_cycle * self.facts.points / inside

    # Tables.

    @cache  # noqa: B019
    def table(self, slot: int, mask: Mask) -> F64:
        """Least that the slots outside ``slot`` add, by the tile at its top."""
        if slot == 0:
            found = np.full(self.lattice.shape, np.inf)
            found.ravel()[-1] = -self.credit(0)
            return found
        outer = slot - 1
        if self.facts.slots[outer].is_spatial:
            return self._in_space(slot, mask)
        close, waits, overlap = {}, {}, {}
        for t in mask:
            close[t] = self.words(t) * (
                self.facts.fill_pj(t, outer) + self.facts.pass_pj(t, outer) / self.room(slot, t)
            )
            waits[t] = close[t] * self.share(t, self.words(t), self.still(t))
            for d, kept in self.overlaps(t, None, self.lattice.extent):
                overlap[t, d] = kept
        rest = {t: np.zeros((1,) * len(self.dims)) for t in mask}
        found = self.ahead(slot, mask, self.grid, Edges(close, rest, waits, overlap))
        return np.ascontiguousarray(np.broadcast_to(found, self.lattice.shape))

    def share(self, t: int, words: F64, still: F64) -> F64:
        """Least share of words that still move, whatever stands outside."""
        if not self.facts.tensors[t].windows:
            return 1.0 / still
        return np.minimum(words / still, self.facts.sizes[t]) / words

    def overlaps(
        self, t: int, spans: Sequence[F64] | None, extent: Sequence[F64] | F64
    ) -> Iterator[tuple[int, F64]]:  # fmt: skip
        """Share of a window that a step along each of its dimensions keeps."""
        tensor = self.facts.tensors[t]
        found: dict[int, F64] = {}
        for number, rank in enumerate(tensor.windows):
            span = self.lattice.span(rank) if spans is None else spans[number]
            for dim, step in rank:
                d = self.facts.index[dim]
                kept = np.maximum(0.0, span - step * extent[d]) / span
                found[d] = found[d] * kept if d in found else kept
        yield from found.items()

    def _in_space(self, slot: int, mask: Mask) -> F64:
        """Through one axis of a fan-out."""
        outer = slot - 1
        table = self.table(outer, mask)
        out = self.facts.output
        found = np.full(self.lattice.shape, np.inf)
        dims = sorted(self.active(outer))
        limit = self.facts.slots[outer].limit
        copies = np.minimum(self.copies(outer), self.still(out))
        extra = {t: self._extra(outer, t) for t in mask}
        closed = {
            t: self._passing(slot, t) for t in range(len(self.free))
            if t not in mask and self.room(slot, t) > 1 and not self.overlapping(slot, t)
        }  # fmt: skip
        for steps in self._steps(outer, dims, limit):
            inner, above = self._shifted(steps)
            cost = table[above]
            for t in mask:
                fewer = np.broadcast_to(self.words(t), self.lattice.shape)[inner]
                moved, per_word = extra[t]
                cost = cost + (fewer - moved[above]) * per_word[above]
            for t, (least, before, after) in closed.items():
                shared = math.prod(step for d, step in steps.items() if d in self.free[t])
                shared = shared if self.facts.sharing[outer][t] else 1
                cost = cost + least[inner] * (after[above] / shared - before[inner])
            again = math.prod(step for d, step in steps.items() if d in self.free[out])
            if again > 1:
                more = np.broadcast_to(copies, self.lattice.shape)[above]
                cost = cost - self.credit(slot) * (again - 1.0) * more
            found[inner] = np.minimum(found[inner], cost)
        return found

    def _passing(self, slot: int, t: int) -> tuple[F64, F64, F64]:
        """Of a closed tensor, whose words the fan-outs outside still share.

        Returns:
            least energy of the words that pass, and what share of it is left at best, as it is
            inside and outside of the next fan-out's axis.
        """
        words = self.words(t)
        if self.facts.child_slot(t, slot - 1) == len(self.facts.slots):
            inside = math.prod(
                self.reach(s, t) for s in range(slot, len(self.facts.slots))
                if self.facts.slots[s].is_spatial and self.facts.sharing[s][t]
            )  # fmt: skip
            words = np.maximum(words, self.facts.points / inside)
        shares = [
            1.0 / np.minimum(self.room(place, t), self.still(t)) for place in (slot, slot - 1)
        ]  # fmt: skip
        energy = words * self.facts.pass_pj(t, slot - 1)
        whole = [np.broadcast_to(some, self.lattice.shape) for some in (energy, *shares)]
        return whole[0], whole[1], whole[2]

    def _extra(self, slot: int, t: int) -> tuple[F64, F64]:
        """Words that the table outside counts, and what each beyond them costs at least."""
        words = np.broadcast_to(self.words(t), self.lattice.shape)
        share = np.broadcast_to(self.share(t, self.words(t), self.still(t)), self.lattice.shape)
        energy = self.facts.fill_pj(t, slot)
        if not self.facts.sharing[slot][t]:
            energy += self.facts.pass_pj(t, slot) / self.room(slot, t)
        return words, share * energy

    def _steps(self, slot: int, dims: list[int], limit: float) -> Iterator[dict[int, int]]:
        """Loop bounds of one axis, without those of one."""
        choices = []
        for d in dims:
            ratios = 1.0 / self.lattice.ratio[d][self.targets(slot, d)]
            choices.append(sorted({round(float(r)) for r in ratios}))

        def walk(position: int, room: float) -> Iterator[dict[int, int]]:
            if position == len(dims):
                yield {}
                return
            for step in choices[position]:
                if step <= room:
                    for rest in walk(position + 1, room / step):
                        yield {dims[position]: step, **rest}

        yield from walk(0, limit)

    def _shifted(self, steps: dict[int, int]) -> tuple[tuple[I64, ...], tuple[I64, ...]]:
        """Places of the tiles that can grow by these steps, and of what they grow to."""
        inner, above = [], []
        for d, some in enumerate(self.lattice.divisors):
            step = steps.get(d, 1)
            here = np.flatnonzero(some[-1] % (some * step) == 0)
            inner.append(here)
            above.append(np.searchsorted(some, some[here] * step))
        return np.ix_(*inner), np.ix_(*above)

    @cache  # noqa: B019
    def beyond(self, slot: int, after: Mask) -> F64:
        """Least outside a memory's loops, by the tile at its own top; ``after`` are still open."""
        level = self.facts.level_at[slot]
        kept = frozenset(t for t in range(len(self.free)) if level in self.facts.kept[t])
        mask = (after | kept) if slot else frozenset()
        return self.table(slot, mask) + (self.fits(slot) + self.leak(slot))

    @cache  # noqa: B019
    def reduced(self, slot: int, after: Mask, dims: frozenset[int]) -> F64:
        """Least of :meth:`beyond` over all that the slot's other loops may do."""
        found = self.beyond(slot, after)
        for d in self.dims:
            if d in dims or found.shape[d] == 1:
                continue
            moved = np.moveaxis(found, d, 0)
            allowed = self.targets(slot, d)
            result = np.full(moved.shape, np.inf)
            for i in range(moved.shape[0]):
                choices = np.flatnonzero(allowed[i])
                if len(choices):
                    result[i] = moved[choices].min(axis=0)
            found = np.moveaxis(result, 0, d)
        return np.ascontiguousarray(found)

    @cache  # noqa: B019
    def groups(self, slot: int, mask: Mask) -> tuple[Group, ...]:
        """Groups of a memory's orders, for what is open."""
        found: dict[tuple[tuple[int, ...], tuple[tuple[int, frozenset[int]], ...]], list[int]] = {}
        starts: dict[object, set[int]] = {}
        slides = {
            self.facts.index[dim] for t in mask for rank in self.facts.tensors[t].windows
            for dim, _ in rank
        }  # fmt: skip
        for number, order in enumerate(self.facts.orders(slot)):
            turning = [d for d in order if d in self.active(slot)]
            stays = []
            longest = 0
            for t in sorted(mask):
                own = list(itertools.takewhile(self.free[t].__contains__, turning))
                longest = max(longest, len(own))
                if own:
                    stays.append((t, frozenset(own)))
            first = set(turning[:1]) & slides
            key = (tuple(sorted(set(turning[:longest]) | first)), tuple(stays))
            found.setdefault(key, []).append(number)
            starts.setdefault(key, set()).update(first)
        return tuple(
            Group(*key, tuple(sorted(starts[key])), tuple(orders)) for key, orders in found.items()
        )

    def ahead(self, slot: int, mask: Mask, cells: Cells, edges: Edges) -> F64:
        """Least that the memory outside ``slot`` and all outside it add."""
        best: F64 | None = None
        for option in self.options(slot - 1, mask, edges):
            for _, cost in self.costs(option, cells, edges):
                least = cost.min(axis=1) if isinstance(cells, Rows) else cost
                best = least if best is None else np.minimum(best, least)
        assert best is not None
        return best

    def options(self, outer: int, mask: Mask, edges: Edges) -> Iterator[Option]:
        """Ways in which the loops of a memory can treat open tensors."""
        zero: Mask = frozenset()
        for group in self.groups(outer, mask):
            yield Option(outer, mask, zero, group, is_whole=False)
        taken: set[frozenset[int]] = set()
        for size in range(len(mask), 0, -1):
            for some in itertools.combinations(sorted(mask), size):
                dims = self.active(outer)
                for t in some:
                    dims = dims & self.free[t]
                if dims not in taken:
                    taken.add(dims)
                    group = self._together(outer, mask - frozenset(some), dims, edges)
                    yield Option(outer, mask, frozenset(some), group, is_whole=True)
        # A run of neighbours that nothing else interrupts may go on outside.
        for d in sorted({d for _, d in edges.overlap} if outer else ()):
            if d in self.active(outer) and not any(d in self.free[o] for o in mask):
                yield Option(
                    outer, mask, zero, self._together(outer, mask, frozenset({d}), edges),
                    is_whole=True,
                )  # fmt: skip

    def _together(
        self, outer: int, mask: Mask, dims: frozenset[int], edges: Edges
    ) -> Group:  # fmt: skip
        """All loops over some dimensions, and no other; ``mask`` closes."""
        stays = tuple((t, dims & self.free[t]) for t in sorted(mask) if dims & self.free[t])
        starts = tuple(sorted(d for d in dims if any((t, d) in edges.overlap for t in mask)))
        orders = []
        for number, order in enumerate(self.facts.orders(outer)):
            turning = [d for d in order if d in self.active(outer)]
            if set(turning[: len(dims)]) == dims:
                orders.append(number)
        every = tuple(range(len(self.facts.orders(outer))))
        return Group(tuple(sorted(dims)), stays, starts, tuple(orders) or every)

    def costs(self, option: Option, cells: Cells, edges: Edges) -> Iterator[tuple[Target, F64]]:
        """Least cost of an option, by the tile that its loops lead to."""
        outer, group = option.slot, option.group
        stays = dict(group.stays)
        level = self.facts.level_at[outer]
        last = outer == 0
        plain = np.zeros(1)
        changing = []
        for t in sorted(option.mask):
            if t in option.stay and not last:
                kept = level in self.facts.kept[t]
                plain = plain + (edges.waits[t] if kept else edges.rest[t])
                continue
            slides = [d for d in group.starts if (t, d) in edges.overlap]
            still = group.dims if t in option.stay else tuple(stays.get(t, ()))
            if still or slides:
                changing.append((t, still, slides))
            else:
                plain = plain + edges.close[t]
        if option.is_whole:
            table = self.beyond(outer, option.stay)
            for d in self.active(outer) - set(group.dims):
                plain = plain + self._standing(outer, d, cells)
        else:
            table = self.reduced(outer, option.stay, frozenset(group.dims))
        for target, ratios, allowed in self._targets(outer, group.dims, cells):
            cost = cells.pick(table, target) + plain + allowed
            for t, still, slides in changing:
                edge = edges.close[t]
                for d in still:
                    edge = edge * ratios[d]
                if slides:
                    edge = edge * _least([
                        self._slid(ratios[d], edges.overlap[t, d], option) for d in slides
                    ])  # fmt: skip
                cost = cost + edge
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
    ) -> Iterator[tuple[Target, dict[int, F64], F64]]:  # fmt: skip
        """Tiles that loops over some dimensions may lead to; infinite where they may not."""
        for target in cells.ways(dims):
            ratios = {d: cells.of(d, self.lattice.ratio[d], target) for d in dims}
            allowed = np.zeros(1)
            for d in dims:
                allowed = allowed + cells.of(d, self._barred(outer, d), target)
            yield target, ratios, allowed

    @cache  # noqa: B019
    def _barred(self, outer: int, d: int) -> F64:
        return np.where(self.targets(outer, d), 0.0, np.inf)

    def _standing(self, outer: int, d: int, cells: Cells) -> F64:
        """Infinite where a slot must loop over a dimension."""
        return cells.own(d, np.ascontiguousarray(np.diagonal(self._barred(outer, d))))


def _least(some: Sequence[F64]) -> F64:
    found = some[0]
    for each in some[1:]:
        found = np.minimum(found, each)
    return found
