"""What a search for mappings asks again and again of an einsum, a design and its rules."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from typing import TypeVar, final

import numpy as np

from silicast.accelerator.counting.cost import Objective
from silicast.accelerator.counting.einsum import Einsum, EinsumTensor
from silicast.accelerator.counting.mapping import Keep
from silicast.accelerator.design.architecture import Architecture, FanOut
from silicast.accelerator.mapper._lattice import divisors_of, thinned
from silicast.accelerator.mapper._prices import ObjectivePrices
from silicast.accelerator.mapper._states import Flags
from silicast.accelerator.mapper.budget import SearchBudget
from silicast.accelerator.mapper.constraints import Constraints
from silicast.accelerator.mapper.orders import Order, worthwhile_orders
from silicast.core.numerics import F64, I64
from silicast.core.remembered import remembered

Number = TypeVar("Number", float, F64)


@final
class EinsumFacts:
    """Facts of one einsum on one design under rules, for memories that keep ``keep``."""

    def __init__(
        self,
        einsum: Einsum,
        architecture: Architecture,
        rules: Constraints,
        keep: Keep,
        objective: Objective,
        prices: ObjectivePrices | None = None,
        cycle_pj: float = 0.0,
        budget: SearchBudget | None = None,
        most_divisors: int | None = None,
    ) -> None:
        """Facts of mappings under prices, for a search within a budget.

        Args:
            most_divisors: extents of a tile that are tried along a dimension; None = all divisors.
        """
        self.einsum = einsum
        self.budget = budget or SearchBudget(math.inf)
        self.arch = architecture
        self.prices = prices
        self.cycle_pj = cycle_pj + architecture.cycle_pj
        self.cycle_pj += self.idle_leak if architecture.idle_leaks else 0.0
        """Energy that a cycle costs, whatever is done in it."""
        self.keep = keep
        self.objective = objective
        self.slots = architecture.slots
        self.rules = [rules.rule(architecture, slot) for slot in range(len(self.slots))]
        self.extents = np.array([float(size) for size in einsum.bounds.values()])[:, None]
        self.points = float(einsum.points)
        self.tensors = tuple(_without_ones(tensor, einsum) for tensor in einsum.tensors)
        self.moves = [
            np.array([dim in tensor.dims for dim in einsum.dims])[:, None]
            for tensor in self.tensors
        ]
        self.sizes = [float(tensor.size(einsum.bounds)) for tensor in self.tensors]
        self.level_at = {slot: level for level, slot in enumerate(architecture.memory_slots)}
        self.keepers = [
            [level for level, names in enumerate(keep) if tensor.name in names]
            for tensor in self.tensors
        ]
        self.output = next(t for t, tensor in enumerate(self.tensors) if tensor.is_output)
        self.windows = [
            (t, rank) for t, tensor in enumerate(self.tensors) for rank in tensor.windows
        ]
        self.index = {dim: i for i, dim in enumerate(einsum.dims)}
        self.divisors = tuple(
            divisors_of(size) if most_divisors is None else self._some(dim, most_divisors)
            for dim, size in einsum.bounds.items()
        )
        """Extents that tiles may have along each dimension."""
        self.least_units = rules.least_utilisation * architecture.units

    def _some(self, dim: str, most: int) -> I64:
        """About ``most`` divisors of a dimension, with those that fill an axis or are fixed."""
        size = self.einsum.bounds[dim]
        every = divisors_of(size)
        wanted = {1, size}
        inside = 1
        for slot, rule in zip(reversed(self.slots), reversed(self.rules), strict=True):
            fixed = rule.fixed.get(dim, 0)
            inside *= min(fixed, size) or 1
            wanted.add(inside)
            if slot.is_spatial:
                wanted.add(int(every[every <= slot.limit][-1]))
        return thinned(every, most, wanted)

    @cached_property
    def floor(self) -> float:
        """The objective at least, wherever loops stand: every operand once at every unit that can
        share it, every word once through every memory that keeps it.
        """
        return self.floor_with(sum(self.least_of(t) for t in range(len(self.tensors))))

    def floor_with(self, words_pj: float) -> float:
        """The objective at least, where words cost so much."""
        energy = self.start_pj + words_pj + self.least_cycles * self.cycle_pj
        return self.objective_of(energy, self.least_cycles)

    @cached_property
    def least_cycles(self) -> float:
        """Cycles with all instances at work that loops can use."""
        units = math.prod(self.limit(s) for s, slot in enumerate(self.slots) if slot.is_spatial)
        return self.points / units / self.arch.compute.per_cycle

    @cached_property
    def start_pj(self) -> float:
        """Energy of the multiplications, and of units that leak while they work."""
        unit = self.arch.compute
        leak = 0.0 if self.arch.idle_leaks else unit.leak_pj_per_cycle or 0.0
        return self.points * ((unit.energy_pj or 0.0) + leak)

    def least_of(self, t: int) -> float:
        """Energy of a tensor's words at least; see :attr:`floor`."""
        energy, words, child = 0.0, self.points / self.room(len(self.slots), t), None
        levels = [level for level, names in enumerate(self.keep) if self.tensors[t].name in names]
        for level in reversed(levels):
            slot = self.arch.memory_slots[level]
            action = "update_pj" if self.tensors[t].is_output else "read_pj"
            energy += words * self.word_pj(slot, action, t)
            if child is not None and not self.tensors[t].is_output:
                energy += words * self.word_pj(child, "fill_pj", t)
            words, child = self.touched(t), slot
        return energy

    def touched(self, t: int) -> float:
        """Words of a tensor that some point needs, at least: steps of windows leave gaps, and sums
        of as many terms as dimensions have take at least the sum of these values, less one.
        """
        bounds = self.einsum.bounds
        return float(
            math.prod(1 + sum(bounds[dim] - 1 for dim, _ in rank) for rank in self.tensors[t].ranks)
        )

    def parent_slot(self, t: int, slot: int) -> int:
        """Slot of the memory that tensor ``t`` comes from at ``slot``, itself included.

        -1 outside of the memory that it starts in, where nothing of it moves.
        """
        return max(
            (
                self.arch.memory_slots[level]
                for level in self.keepers[t]
                if self.arch.memory_slots[level] <= slot
            ),
            default=-1,
        )

    def home_slot(self, t: int) -> int:
        """Slot of the memory that tensor ``t`` starts and ends in."""
        return self.arch.memory_slots[self.keepers[t][0]]

    def child_slot(self, t: int, slot: int) -> int:
        """Slot of the next memory inside ``slot`` that keeps tensor ``t``, or the end."""
        inside = [
            self.arch.memory_slots[level]
            for level in self.keepers[t]
            if self.arch.memory_slots[level] > slot
        ]
        return min(inside, default=len(self.slots))

    @remembered
    def moved_windows(self, t: int) -> frozenset[int]:
        """Dimensions of a tensor's windows."""
        return frozenset(self.index[dim] for rank in self.tensors[t].windows for dim, _ in rank)

    @cached_property
    def sharing(self) -> list[list[bool]]:
        """Whether what crosses a slot is shared among its instances, [slot][tensor]."""
        sharing = []
        for slot in self.slots:
            node = self.arch.nodes[slot.node]
            if isinstance(node, FanOut):
                sharing.append(
                    [node.reduction if t.is_output else node.multicast for t in self.tensors]
                )
            else:
                sharing.append([False] * len(self.tensors))
        return sharing

    @remembered
    def limit(self, slot: int) -> float:
        """Most instances that loops over divisors can use of an axis, under its rule."""
        used = {1}
        for d, size in enumerate(self.einsum.bounds.values()):
            factors = {
                int(factor)
                for extent in self.divisors[d]
                for factor in self.choices(slot, d, int(size // extent))
            }
            used |= {
                before * factor
                for before in used
                for factor in factors
                if before * factor <= self.slots[slot].limit
            }
        return float(max(used))

    @remembered
    def room(self, slot: int, t: int) -> float:
        """Most by which fan-outs outside ``slot`` can still divide what passes to the parent."""
        if slot == 0:
            return 1.0
        parent = self.parent_slot(t, slot - 1)
        return math.prod(
            self.limit(s)
            for s in range(parent + 1, slot)
            if self.slots[s].is_spatial and self.sharing[s][t]
        )

    @remembered
    def outside(self, slot: int) -> float:
        """Instances that all fan-outs outside ``slot`` can use."""
        return math.prod(self.limit(s) for s in range(slot) if self.slots[s].is_spatial)

    @remembered
    def fill_pj(self, t: int, slot: int) -> float:
        """Energy of a word that comes into the child; none at the compute units."""
        child = self.child_slot(t, slot)
        if child == len(self.slots) or child == self.home_slot(t):
            return 0.0
        return self.word_pj(child, "fill_pj", t)

    @remembered
    def pass_pj(self, t: int, slot: int) -> float:
        """Energy of a word that crosses the parent's edge downwards, or for outputs upwards."""
        parent = self.parent_slot(t, slot)
        if parent < 0:
            return 0.0
        if self.tensors[t].is_output:
            return self.word_pj(parent, "update_pj", t) + self.word_pj(parent, "read_pj", t)
        return self.word_pj(parent, "read_pj", t)

    def word_pj(self, slot: int, action: str, t: int) -> float:
        """Energy, or price, of a word of a tensor at the memory of a slot, at least."""
        if self.prices is not None:
            return self.prices.word(self.level_at[slot], action, self.tensors[t].name)
        memory = self.arch.memories[self.level_at[slot]]
        # A cluster's instances share an access at best.
        energy = getattr(memory, action)
        each = (0.0 if energy is None else float(energy)) / memory.block_words / memory.cluster
        return each * memory.words_of(self.tensors[t].name)

    @remembered
    def hidden_pj(self, t: int, slot: int) -> tuple[float, float]:
        """How much :meth:`fill_pj` and :meth:`pass_pj` may be too low, for clusters."""
        child, parent = self.child_slot(t, slot), self.parent_slot(t, slot)
        hidden = []
        for position, wide in ((child, self.fill_pj(t, slot)), (parent, self.pass_pj(t, slot))):
            level = self.level_at.get(position)
            cluster = 1 if level is None else self.arch.memories[level].cluster
            hidden.append(wide * (cluster - 1))
        return hidden[0], hidden[1]

    def credit_pj(self, slot: int, action: str) -> float:
        """Energy of a word that first visits save, at most."""
        return (
            self.word_pj(slot, action, self.output)
            * self.arch.memories[self.level_at[slot]].cluster
        )

    @remembered
    def orders(self, slot: int) -> tuple[Order, ...]:
        """Orders of a memory's loops that are tried."""
        rule = self.rules[slot]
        dims = tuple(d for d in rule.innermost if d in self.einsum.bounds)
        # Loops that are fixed to one iteration stand anywhere.
        turning = tuple(d for d in dims if rule.fixed.get(d, 2) != 1 and self.einsum.bounds[d] > 1)
        return worthwhile_orders(self.einsum, turning)

    @remembered
    def choices(self, slot: int, d: int, left: int) -> I64:
        """Loop bounds of a dimension, of which ``left`` is not split yet."""
        dim = self.einsum.dims[d]
        rule = self.rules[slot]
        fixed, most = rule.fixed.get(dim), rule.most.get(dim, left)
        if slot == 0:
            wanted = [left]
        elif fixed is not None:
            wanted = [min(fixed, self.einsum.bounds[dim])]
        else:
            wanted = divisors_of(left).tolist()
        if slot == 0 and fixed is not None and min(fixed, self.einsum.bounds[dim]) != left:
            wanted = []
        limit = min(most, self.slots[slot].limit)
        extent = self.einsum.bounds[dim] // left
        fits = [f for f in wanted if left % f == 0 and f <= limit]
        if slot:
            fits = [f for f in fits if extent * f in self._extents[d]]
        return np.array(fits, dtype=np.int64)

    @cached_property
    def _extents(self) -> tuple[frozenset[int], ...]:
        return tuple(frozenset(divisors.tolist()) for divisors in self.divisors)

    def held(self, level: int, t: int) -> float:
        """Words of room that an element of a tile takes in a memory, at least."""
        name = self.tensors[t].name
        share = 1.0 if self.prices is None else self.prices.held.get((level, name), 1.0)
        return share * self.arch.memories[level].words_of(name)

    def volume(self, tensor: EinsumTensor, tile: F64) -> F64:
        """Words of a tensor in tiles of extents ``tile``, (dims, n) -> (n,)."""
        volume = np.ones(tile.shape[1])
        for rank in tensor.ranks:
            span = np.ones(tile.shape[1])
            for dim, step in rank:
                span += step * (tile[self.index[dim]] - 1.0)
            volume *= span
        return volume

    def stay(self, t: int, factors: F64, order: Order) -> F64:
        """Iterations during which tensor ``t`` stays, of loops in this order."""
        stay = np.ones(factors.shape[1])
        still: Flags = np.ones(factors.shape[1], dtype=bool)
        for d in order:
            if self.moves[t][d, 0]:
                still &= factors[d] == 1
            else:
                stay = np.where(still, stay * factors[d], stay)
        return stay

    def spans(self, tile: F64) -> F64:
        """Length of every window of tiles of extents ``tile``, (windows, n)."""
        spans = np.ones((len(self.windows), tile.shape[1]))
        for number, (_, rank) in enumerate(self.windows):
            for dim, step in rank:
                spans[number] += step * (tile[self.index[dim]] - 1.0)
        return spans

    def slide(
        self, t: int, factors: F64, tile: F64, spans: F64, order: Order, *, last: bool
    ) -> tuple[F64, F64]:
        """Share of the words that a sliding window still needs, of loops in this order.

        Args:
            tile: what one iteration of the loops steps over, fan-outs included.
            spans: windows of the child's own tile.
            last: no loop outside can make the run of neighbours longer.

        Returns:
            at least, where a loop outside may make it longer; and if none does.
        """
        result = np.ones(factors.shape[1])
        ended = result
        windows = [n for n, (owner, _) in enumerate(self.windows) if owner == t]
        if not windows:
            return result, ended
        outer: Flags = np.ones(factors.shape[1], dtype=bool)
        for d in order:
            here = outer & (factors[d] > 1)
            outer = outer & (factors[d] == 1)
            overlap = np.ones(factors.shape[1])
            slides = False
            for number in windows:
                for dim, step in self.windows[number][1]:
                    if self.index[dim] == d:
                        slides = True
                        left = np.maximum(0.0, spans[number] - step * tile[d])
                        overlap *= left / spans[number]
            if slides and here.any():
                runs = (factors[d] - 1.0) / factors[d]
                ended = np.where(here, 1.0 - runs * overlap, ended)
                if not last:
                    alone = np.prod(factors, axis=0) == factors[d]
                    runs = np.where(alone, 1.0, runs)
                result = np.where(here, 1.0 - runs * overlap, result)
        return result, ended

    def objective_of(self, energy: Number, cycles: Number) -> Number:
        """The objective that a search minimises."""
        return energy * cycles if self.objective == "edp" else energy

    @cached_property
    def hides_time(self) -> bool:
        """Whether time counts, and mappings may take longer than their steps: ports, arrays that
        are loaded, fills that nothing overlaps.
        """
        counts = self.objective == "edp" or bool(self.cycle_pj)
        longer = self.arch.ramps or self.arch.marches or any(m.ports for m in self.arch.memories)
        return counts and longer

    @cached_property
    def idle_leak(self) -> float:
        """Energy that all instances leak in a cycle."""
        total = (self.arch.compute.leak_pj_per_cycle or 0.0) * self.arch.units
        for memory, count in zip(self.arch.memories, self.arch.instances, strict=True):
            total += (memory.leak_pj_per_cycle or 0.0) * count
        return total


def _without_ones(tensor: EinsumTensor, einsum: Einsum) -> EinsumTensor:
    """A tensor without dimensions of size one, which would make windows of what is none.

    >>> from silicast.accelerator.counting.einsum import conv2d
    >>> pointwise = conv2d(c=8, m=8, p=4, q=4, r=1, s=1)
    >>> len(pointwise.tensor("Inputs").windows)
    2
    >>> len(_without_ones(pointwise.tensor("Inputs"), pointwise).windows)
    0
    """
    ranks = tuple(
        tuple(term for term in rank if einsum.bounds[term[0]] > 1) or rank[:1]
        for rank in tensor.ranks
    )
    return replace(tensor, ranks=ranks)
