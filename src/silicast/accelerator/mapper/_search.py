"""One search through the mappings that keep the same tensors: a beam with a bound on what it drops.

See :mod:`silicast.accelerator.mapper._states` for what a partial mapping knows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from silicast.accelerator.counting.accounting import different
from silicast.accelerator.counting.cost import (
    UNRANKED,
    MappingRank,
    Objective,
    best_of,
    cost,
    value_of,
)
from silicast.accelerator.counting.mapping import MappingBatch
from silicast.accelerator.design.architecture import Architecture, Memory
from silicast.accelerator.mapper._bounds import Bounds
from silicast.accelerator.mapper._facts import EinsumFacts
from silicast.accelerator.mapper._guided import promising
from silicast.accelerator.mapper._states import Flags, States, undominated
from silicast.accelerator.mapper.budget import COUNTED, STATE
from silicast.core.numerics import F64, I64

PARENTS = 500
"""Partial mappings that are extended at a time."""
CHOICES = 4
"""Loops of a memory that are tried for each partial mapping kept."""
STUCK = 1 << 20
"""Stands for the window of an edge that cannot slide; larger than any window."""
CHUNK = 512
FINALISTS = 65_536
"""Complete mappings that are counted exactly, so many at a time, and at most."""
FEW = 1024
"""At most on designs that leave zeros out, which take long to count."""


@final
@dataclass(frozen=True)
class MappingSearchResult:
    """What one search found.

    Attributes:
        batch: the best mapping, or None: none fits, or none can beat what was known.
        rank: its objective and time.
        bound: no mapping of this pattern is below it, unless the one known before is.
        cheapest: where prices stand for the objective, the mapping whose sum of them is least.
    """

    batch: MappingBatch | None
    rank: MappingRank
    bound: float
    cheapest: MappingBatch | None = None


@final
class MappingSearch:
    """A search for the best mapping of one einsum."""

    def __init__(
        self, facts: EinsumFacts, architecture: Architecture, objective: Objective
    ) -> None:
        """Of complete mappings, ``objective`` on ``architecture`` decides."""
        self.facts = facts
        self.arch = architecture
        self.objective = objective
        self.is_proof = facts.objective == objective
        self.bounds = Bounds(facts)
        self.tried = 0
        """Partial mappings that were tried so far."""

    def _expand(self, states: States, slot: int) -> tuple[I64, F64]:
        """Rows to extend, and loop bounds: every choice that fits, (m,) and (dims, m)."""
        position = self.facts.slots[slot]
        rows = np.arange(len(states))
        factors = np.ones((len(self.facts.einsum.dims), len(states)))
        memory = None if position.is_spatial else self.facts.arch.nodes[position.node]
        inside = (
            []
            if position.is_spatial
            else [
                (self.facts.tensors[t], self.facts.held(self.facts.level_at[slot], t))
                for t, levels in enumerate(self.facts.keepers)
                if self.facts.level_at[slot] in levels
            ]
        )
        for d in range(len(self.facts.einsum.dims)):
            left = np.rint(self.facts.extents[d, 0] / states.tile[d, rows]).astype(np.int64)
            kinds, kind = np.unique(left, return_inverse=True)
            options = [self.facts.choices(slot, d, int(value)) for value in kinds]
            if all(len(option) == 1 and option[0] == 1 for option in options):
                continue
            counts = np.array([len(option) for option in options])
            starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
            flat = np.concatenate(options).astype(float) if options else np.zeros(0)
            each = counts[kind]
            again = np.repeat(np.arange(len(rows)), each)
            within = np.arange(len(again)) - np.repeat(np.cumsum(each) - each, each)
            rows, factors = rows[again], factors[:, again]
            factors[d] = flat[starts[kind][again] + within]
            fits: Flags
            if position.is_spatial:
                fits = np.prod(factors, axis=0) <= position.limit
            elif isinstance(memory, Memory) and memory.capacity_words is not None:
                tile = states.tile[:, rows] * factors
                needed = sum(
                    (memory.taken(self.facts.volume(t, tile) * share) for t, share in inside),
                    np.zeros(len(rows)),
                )
                fits = needed <= memory.usable_words
            else:
                continue
            rows, factors = rows[fits], factors[:, fits]
        return rows, factors

    def extend(self, states: States, slot: int, known: float, keep: int) -> tuple[States, float]:
        """Ways to decide one more slot that may still be below ``known``.

        Returns:
            the states, and the least objective of those that were left out for being too many.
        """
        if self.facts.slots[slot].is_spatial:
            rows, factors = self._expand(states, slot)
            none = np.zeros(len(rows), dtype=np.int64)
            chosen = replace(states.take(rows), parent=rows, factors=factors, order=none)
            return self._in_space(chosen, slot), math.inf
        result = promising(self.bounds, states, slot, known, keep)
        parts = []
        for number in np.unique(result.order):
            mine = np.flatnonzero(result.order == number)
            rows = result.rows[mine]
            chosen = replace(
                states.take(rows),
                parent=rows,
                factors=result.factors[:, mine],
                order=result.order[mine],
            )
            parts.append(self._in_time(chosen, slot, int(number)))
        if not parts:
            return states.take(np.zeros(0, dtype=np.int64)), result.lost
        return States.joined(parts), result.lost

    def _in_space(self, states: States, slot: int) -> States:
        factors = states.factors
        passes = states.passes.copy()
        credit, slack = states.credit, states.slack
        for t in range(len(self.facts.tensors)):
            apart = np.prod(np.where(self.facts.moves[t], 1.0, factors), axis=0)
            if t == self.facts.output:
                credit = credit * apart
            if self.facts.sharing[slot][t]:
                same, hidden = self._overlapping(t, states, slot)
                passes[t] *= same / apart
                # What two axes share between them is not known before both are: as much as it
                # may be.
                slack = slack + passes[t] * self.facts.pass_pj(t, slot) * (1.0 - 1.0 / hidden)
                passes[t] /= hidden
        return replace(
            states, tile=states.tile * factors, passes=passes, credit=credit, slack=slack
        )

    def _overlapping(self, t: int, states: States, slot: int) -> tuple[F64, F64]:
        """Share of different windows along an axis, and most by which a second axis divides it."""
        share, hidden = np.ones(len(states)), np.ones(len(states))
        facts = self.facts
        others = [
            s
            for s, position in enumerate(facts.slots)
            if position.is_spatial and position.node == facts.slots[slot].node and s != slot
        ]
        for rank in facts.tensors[t].windows:
            ends = [(facts.index[dim], step) for dim, step in rank]
            crosses = any(
                facts.limit(s) > 1 and facts.rules[s].fixed.get(facts.einsum.dims[d], 2) > 1
                for s in others
                for d, _ in ends
            )
            if crosses:
                for d, _ in ends:
                    hidden = hidden * states.factors[d]
            elif len(ends) == 2:
                (d, first), (o, second) = ends
                share = share * different(
                    states.factors[d],
                    states.factors[o],
                    first * states.tile[d],
                    second * states.tile[o],
                )
        return share, hidden

    def _in_time(self, states: States, slot: int, number: int) -> States:
        """Loops of a memory in one order, then the memory itself as the new top."""
        factors, level = states.factors, self.facts.level_at[slot]
        turns = np.prod(factors, axis=0)
        tile = states.tile * factors
        booked, credit = states.booked.copy(), states.credit
        waiting, fills, passes = states.waiting.copy(), states.fills.copy(), states.passes.copy()
        spans, tile_spans, inner = states.spans.copy(), self.facts.spans(tile), states.inner.copy()
        open_, fresh, slack = states.open.copy(), states.fresh.copy(), states.slack
        visits = np.prod(self.facts.extents / tile, axis=0)
        memory = self.facts.arch.memories[level]
        for t, tensor in enumerate(self.facts.tensors):
            moves = np.any((factors > 1) & self.facts.moves[t], axis=0)
            share, more = self._share(t, states, slot, number)
            slack = slack + more
            fresh[t] &= turns == 1
            for words in (fills, passes, waiting):
                words[t] *= share
            open_[t] &= ~moves
            booked += np.where(open_[t], 0.0, waiting[t])
            waiting[t] = np.where(open_[t], waiting[t], 0.0)
            keeps = level in self.facts.keepers[t]
            edge = fills[t] * self.facts.fill_pj(t, slot)
            more_fill, more_pass = self.facts.hidden_pj(t, slot)
            slack = slack + fills[t] * more_fill
            settled = keeps or self.facts.room(slot, t) == 1.0
            if settled:
                slack = slack + passes[t] * more_pass
                edge = edge + passes[t] * self.facts.pass_pj(t, slot)
            booked += np.where(open_[t], 0.0, edge)
            owned = [n for n, (owner, _) in enumerate(self.facts.windows) if owner == t]
            self._wait(inner, spans, owned, open_[t], fresh[t], keeps=keeps)
            if not keeps:
                fills[t] = np.where(open_[t], fills[t], 0.0)
                if settled:
                    passes[t] = np.where(open_[t], passes[t], 0.0)
                continue
            waiting[t] += np.where(open_[t], edge, 0.0)
            if tensor.is_output:
                saved = self.facts.credit_pj(slot, "read_pj")
                if slot != self.facts.home_slot(t):
                    saved += self.facts.credit_pj(slot, "fill_pj")
                credit = credit + self.facts.sizes[t] * saved
                if memory.cluster > 1:
                    slack = slack + self.facts.sizes[t] * saved * self.facts.outside(slot)
            fills[t] = passes[t] = visits * self.facts.volume(tensor, tile)
            open_[t] = fresh[t] = True
            spans[owned] = tile_spans[owned]
            if slot == 0:
                booked += waiting[t]
                waiting[t] = fills[t] = passes[t] = 0.0
        steps = states.steps * turns
        leak = self._leak(memory, np.prod(tile, axis=0) / steps)
        return replace(
            states, tile=tile, booked=booked + leak, steps=steps, credit=credit, waiting=waiting,
            fills=fills, passes=passes, spans=spans, inner=inner, slack=slack, open=open_,
            fresh=fresh, order=np.full(len(states), number),
        )  # fmt: skip

    def _wait(
        self,
        inner: F64,
        spans: F64,
        windows: list[int],
        is_open: Flags,
        is_fresh: Flags,
        *,
        keeps: bool,
    ) -> None:
        """Notes which windows wait, at a memory that ``keeps`` them or not."""
        for n in windows:
            # What waits cannot slide once another loop stands outside of it.
            now = np.where(is_fresh, spans[n], STUCK)
            further = inner[n] * (STUCK + 1) + now if keeps else inner[n]
            inner[n] = np.where(is_open, further, 0.0)

    def _leak(self, memory: Memory, inside: F64) -> F64 | float:
        """Energy that a level's working instances leak, with so many units below each."""
        if self.facts.arch.idle_leaks:
            return 0.0  # of all instances, over the whole time: counted with the bound
        per_cycle = self.facts.arch.compute.per_cycle
        return (memory.leak_pj_per_cycle or 0.0) / per_cycle * self.facts.points / inside

    def _share(self, t: int, states: States, slot: int, number: int) -> tuple[F64, F64]:
        """Share of a tensor's words that still move under a slot's loops, at least.

        Returns:
            the share, and the energy by which it may be too low.
        """
        facts, order, factors = self.facts, self.facts.orders(slot)[number], states.factors
        share = np.where(states.open[t], 1.0 / facts.stay(t, factors, order), 1.0)
        if not facts.tensors[t].windows:
            return share, np.zeros(len(states))
        least, ended = facts.slide(t, factors, states.tile, states.spans, order, last=slot == 0)
        edge = states.fills[t] * facts.fill_pj(t, slot) + states.passes[t] * facts.pass_pj(t, slot)
        slides = states.open[t] & states.fresh[t]
        # Edges further in have smaller windows, which may share less.
        slack = share * (edge * (ended - least) + states.waiting[t] * (1.0 - least))
        return np.where(slides, share * least, share), np.where(slides, slack, 0.0)

    def start(self) -> States:
        """The mapping of which nothing is decided: the operands of one multiplication."""
        dims, tensors = len(self.facts.einsum.dims), len(self.facts.tensors)
        return States(
            tile=np.ones((dims, 1)), booked=np.array([self.facts.start_pj]), steps=np.ones(1),
            credit=np.zeros(1), waiting=np.zeros((tensors, 1)), fills=np.zeros((tensors, 1)),
            passes=np.full((tensors, 1), self.facts.points),
            spans=np.ones((len(self.facts.windows), 1)),
            inner=np.zeros((len(self.facts.windows), 1)), slack=np.zeros(1),
            open=np.zeros((tensors, 1), dtype=bool), fresh=np.zeros((tensors, 1), dtype=bool),
            parent=np.zeros(1, dtype=np.int64), factors=np.ones((dims, 1)),
            order=np.zeros(1, dtype=np.int64),
        )  # fmt: skip

    def run(self, width: int, known: float, effort: float = math.inf) -> MappingSearchResult:
        """Searches with so many partial mappings a slot.

        Args:
            known: what a mapping reaches; those that cannot be below are dropped.
            effort: partial mappings that may be tried; after that they are dropped unextended.

        Raises:
            BudgetSpent: before anything complete was counted.
        """
        states, dropped, values = self.start(), math.inf, np.array([self.facts.floor])
        last = self.tried + effort
        history: list[States] = []
        for slot in range(len(self.facts.slots) - 1, -1, -1):
            states, values, lost = self._advance(states, values, slot, width, known, last)
            dropped = min(dropped, lost)
            history.append(states)
            if not len(states):
                return MappingSearchResult(None, UNRANKED, min(dropped, known))
        order = np.argsort(values, kind="stable")
        batch, rank, uncounted = self._counted(history, order, values)
        cheapest = None if self.facts.prices is None else self._trace(history, order[:1])
        bound = min(dropped, rank.value, uncounted, known)
        if self.facts.hides_time:  # what was beaten by its steps may be faster than what beat it
            bound = min(bound, float(values[order[0]]))
        return MappingSearchResult(batch, rank, bound, cheapest)

    def _counted(
        self, history: list[States], order: I64, values: F64
    ) -> tuple[MappingBatch | None, MappingRank, float]:
        """The best of complete mappings, counted exactly; those that cannot be it are not.

        Returns:
            the best, its rank, and the least bound of those that were not counted.
        """
        best, batch = UNRANKED, None
        most = FINALISTS if self.is_proof else CHUNK
        if self.arch.knows_zeros:
            most = min(most, FEW)
        for begin in range(0, min(len(order), most), CHUNK):
            rows = order[begin : begin + CHUNK]
            if self.is_proof and values[rows[0]] >= best.value:
                return batch, best, best.value
            if begin and self.facts.budget.is_spent:
                return batch, best, float(values[rows[0]])
            self.facts.budget.left -= len(rows) * COUNTED
            complete = self._trace(history, rows)
            counted = cost(self.facts.einsum, self.arch, complete)
            exact = value_of(counted, self.objective)
            first = best_of(exact, counted.cycles)
            rank = MappingRank(float(exact[first]), float(counted.cycles[first]))
            if rank.value < math.inf and rank.is_before(best):
                best, batch = rank, complete.take(slice(first, first + 1))
        least = float(values[order[most]]) if len(order) > most else math.inf
        least = least if self.is_proof else float(values[order[0]])
        return batch, best, least

    def _advance(
        self, states: States, known_of: F64, slot: int, width: int, known: float, last: float
    ) -> tuple[States, F64, float]:
        """Decides one slot.

        Args:
            known_of: what no completion of each is below, (n,).

        Returns:
            the partial mappings kept, what none of their completions is below, and the least of
            that of those dropped.
        """
        parts: list[States] = []
        values: list[F64] = []
        if self.tried > last:
            return *_none(states), float(known_of.min())
        lost = math.inf
        step = PARENTS if self.facts.slots[slot].is_spatial else width
        for begin in range(0, len(states), step):
            rows = np.arange(begin, min(begin + step, len(states)))
            if begin and self.tried > last:
                lost = min(lost, float(known_of[begin:].min()))
                break
            more, left_out = self.extend(states.take(rows), slot, known, CHOICES * width)
            lost = min(lost, left_out)
            self.tried += len(more)
            self.facts.budget.work(len(more) * STATE, STATE)
            if not len(more):
                continue
            more = replace(more, parent=rows[more.parent])
            value = self.facts.objective_of(*self.bounds.least(more, slot))
            retained, beaten = self._thinned(more, slot, value, known)
            lost = min(lost, beaten)
            parts.append(more.take(retained))
            values.append(value[retained])
        if not parts:
            return *_none(states), lost
        joined, value = States.joined(parts), np.concatenate(values)
        if len(parts) > 1:
            retained, beaten = self._thinned(joined, slot, value, known)
            joined, value, lost = joined.take(retained), value[retained], min(lost, beaten)
        if slot == 0 and self.facts.least_units:
            retained = np.flatnonzero(self.facts.points / joined.steps >= self.facts.least_units)
            joined, value = joined.take(retained), value[retained]
        if len(joined) <= width:
            return joined, value, lost
        # Many are as good as far as is known: half of the places go to those that would cost least
        # if no undecided loop saved anything.
        plain = self._as_it_is(joined, slot)
        order = np.lexsort((plain, value))
        remaining = order[width // 2 :]
        remaining = remaining[np.argsort(plain[remaining], kind="stable")]
        split = width - width // 2
        chosen = np.sort(np.concatenate([order[: width // 2], remaining[:split]]))
        lost = min(lost, float(value[remaining[split:]].min()))
        return joined.take(chosen), value[chosen], lost

    def _as_it_is(self, states: States, slot: int) -> F64:
        """Energy of the decided edges if every undecided loop made all tiles come anew."""
        value: F64 = states.booked - states.credit
        for t in range(len(self.facts.tensors)):
            if slot:
                edge = states.fills[t] * self.facts.fill_pj(t, slot - 1)
                edge = edge + states.passes[t] * self.facts.pass_pj(t, slot - 1)
                value = value + edge + states.waiting[t]
        return value

    def _thinned(self, states: States, slot: int, values: F64, known: float) -> tuple[I64, float]:
        """Rows below ``known`` that no other beats in every respect.

        Returns:
            the rows, and the least objective of those that are beaten in the sum of their prices
            only, which proves nothing of the busiest of them.
        """
        good = np.flatnonzero(values < known)
        if len(good) < 2:
            return good, math.inf
        states = states.take(good)
        lattice = self.bounds.outside.lattice
        key: I64 = lattice.strides @ lattice.indices(states.tile)
        for t, tensor in enumerate(self.facts.tensors):
            key = key * 2 + states.open[t]
            if tensor.windows:
                key = key * 2 + states.fresh[t]
        for span, most in zip(states.spans, self.facts.spans(self.facts.extents), strict=True):
            key = key * int(most[0] + 1) + span.astype(np.int64)
        for inner in states.inner:
            kinds, kind = np.unique(inner, return_inverse=True)
            key = key * len(kinds) + kind
        rows = [states.booked - states.credit]
        outside = self.facts.outside(slot)
        if outside > 1:
            rows.append(states.booked - states.credit * outside)
        sure = [row + states.slack for row in rows]
        others = [
            row
            for part in (states.waiting, states.fills, states.passes)
            for row in part
            if row.any()
        ]
        if self.facts.objective != "energy" or self.facts.cycle_pj or self.facts.least_units:
            others.append(states.steps)
        undominated_rows = undominated(key, np.stack(rows + others), np.stack(sure + others))
        if self.facts.prices is None or not self.facts.prices.words:
            return good[undominated_rows], math.inf
        beaten = np.ones(len(good), dtype=bool)
        beaten[undominated_rows] = False
        return good[undominated_rows], float(values[good[beaten]].min(initial=math.inf))

    def _trace(self, history: list[States], rows: I64) -> MappingBatch:
        """The mappings that complete states stand for."""
        shape = (len(self.facts.slots), len(self.facts.einsum.dims), len(rows))
        factors, positions = np.ones(shape), np.zeros(shape, dtype=np.int8)
        for back, states in enumerate(reversed(history)):
            slot = back
            factors[slot] = states.factors[:, rows]
            if not self.facts.slots[slot].is_spatial:
                for number, order in enumerate(self.facts.orders(slot)):
                    chosen = states.order[rows] == number
                    for index, d in enumerate(order):
                        positions[slot, d, chosen] = len(order) - index
            rows = states.parent[rows]
        return MappingBatch(factors, positions, self.facts.keep)


def _none(states: States) -> tuple[States, F64]:
    """No partial mappings."""
    return states.take(np.zeros(0, dtype=np.int64)), np.zeros(0)
