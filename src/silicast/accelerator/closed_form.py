"""Costs of mappings with the same loops, as a formula of their bounds and the problem's sizes.

Which loops turn, and in which order, decides what stays where, what is shared and what is summed
on the way: with that given, all counts of :mod:`.accounting` and costs of :mod:`.cost` are
arithmetic of bounds and sizes. docs/explanation/accelerator-accounting.md derives the counts;
`tests/property/test_closed_form.py` holds both equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import final

from silicast.accelerator.architecture import Action, Architecture, FanOut, Memory, Port
from silicast.accelerator.einsum import Einsum, Rank, Tensor
from silicast.accelerator.formula import Compiled, Formula, Value
from silicast.accelerator.mapping import Keep

Place = tuple[int, int]
"""Slot and dimension of a loop."""
Term = Value | float


@final
@dataclass(frozen=True)
class Nest:
    """Which loops turn.

    Attributes:
        loops: outermost first; of those in space of one slot by dimension.
        keep: tensors that each memory keeps.
        shares: of an element's bits, what each tensor's takes; () = all of them.
        less_of_main: the share of each tensor's words that pass main memory is an input.
    """

    loops: tuple[Place, ...]
    keep: Keep
    shares: tuple[float, ...] = ()
    less_of_main: bool = False


@final
@dataclass(frozen=True)
class Layout:
    """The order of the results of a design's formulas.

    Attributes:
        ports: memory and port; memories, tensors: how many there are.
    """

    ports: tuple[tuple[str, str], ...]
    memories: int
    tensors: int

    CYCLES, UNIT_CYCLES, ENERGY, PORTS = 0, 1, 2, 3

    @staticmethod
    def of(arch: Architecture, einsum: Einsum) -> Layout:
        """That of a problem on a design."""
        ports = tuple((m.name, port.name) for m in arch.memories for port in m.ports)
        return Layout(ports, len(arch.memories), len(einsum.tensors))

    @property
    def levels(self) -> int:
        """Where the words through each memory stand."""
        return self.PORTS + len(self.ports)

    @property
    def main(self) -> int:
        """Where the words that leave and reach main memory stand, by tensor."""
        return self.levels + self.memories

    @property
    def size(self) -> int:
        """How many results there are."""
        return self.main + self.tensors


def closed_form(einsum: Einsum, arch: Architecture, nest: Nest) -> Compiled:
    """The costs of all mappings of a nest.

    Inputs are the sizes of the dimensions, then the bounds of the loops, each more than one and
    none longer than what is left of its dimension, then the shares of main memory's words where
    ``less_of_main``. Results are in the order of :class:`Layout`.
    """
    counts = _Counts(einsum, arch, nest)
    return counts.formula.compiled(_Costs(counts).results())


def _product(terms: Sequence[Term]) -> Term:
    found: Term = 1.0
    for each in terms:
        found = found * each
    return found


def _zeros(memories: int, tensors: int) -> list[list[Term]]:
    return [[0.0] * tensors for _ in range(memories)]


@final
@dataclass(frozen=True)
class _Moves:
    """Words by action, (memories, tensors)."""

    reads: list[list[Term]]
    fills: list[list[Term]]
    updates: list[list[Term]]
    distinct: list[list[Term]]
    hops: dict[tuple[int, int], Term] = field(default_factory=dict)


class _Counts:
    """What :class:`.accounting.Count` counts, in its words."""

    def __init__(self, einsum: Einsum, arch: Architecture, nest: Nest) -> None:
        self.einsum, self.arch, self.nest = einsum, arch, nest
        self.formula = Formula()
        self.sizes: list[Term] = [self.formula.input() for _ in einsum.dims]
        self.factors: dict[Place, Term] = {place: self.formula.input() for place in nest.loops}
        self.main_shares: list[Term] = [
            self.formula.input() for _ in einsum.tensors if nest.less_of_main
        ]
        self.index = {dim: i for i, dim in enumerate(einsum.dims)}
        self.slots = arch.slots
        self.end = len(self.slots)
        self.in_time = frozenset(s for s, slot in enumerate(self.slots) if not slot.is_spatial)
        self.in_space = frozenset(range(self.end)) - self.in_time
        self.tile: list[list[Term]] = [[1.0] * len(einsum.dims) for _ in range(self.end + 1)]
        for slot in range(self.end - 1, -1, -1):
            self.tile[slot] = [
                inner * self.factors.get((slot, dim), 1.0)
                for dim, inner in enumerate(self.tile[slot + 1])
            ]

    def extent(self, slot: int, dim: str) -> Term:
        """Of a tile at the top of a slot, never more than the dimension has."""
        d = self.index[dim]
        return self.formula.minimum(self.tile[slot][d], self.sizes[d])

    def volume(self, tensor: Tensor, slot: int) -> Term:
        """Words of a tile."""
        found = _product([self.extent(slot, dim) for dim in tensor.plain_dims])
        return found * _product([self.span(rank, slot) for rank in tensor.windows])

    def span(self, rank: Rank, slot: int) -> Term:
        """Length of a window that a tile covers."""
        found: Term = 1.0
        for dim, step in rank:
            found = found + float(step) * (self.extent(slot, dim) - 1.0)
        return found

    def visits(self, dim: str, slot: int, without: Callable[[Place], bool] | None = None) -> Term:
        """Times that tiles at the top of a slot start along a dimension.

        Args:
            without: loops that do not count.
        """
        d = self.index[dim]
        loops = [place for place in self.nest.loops if place[1] == d and place[0] < slot]
        counts = [without is None or not without(place) for place in loops]
        while counts and not counts[-1]:  # whole or cut, a tile that does not count is one
            slot = loops.pop()[0]
            counts.pop()
        if all(counts):
            return self.formula.ceil(self.sizes[d] / self.tile[slot][d]) if counts else 1.0
        return self._mixed(d, loops, counts, slot)

    def _mixed(self, d: int, loops: list[Place], counts: list[bool], slot: int) -> Term:
        """Visits where loops that do not count stand outside of some that do: whole tiles, and the
        one that is cut short.
        """
        whole: Term
        rest: Term
        at = counts.index(False)
        if at:
            tile = self.tile[loops[at][0]][d]
            whole = self.formula.floor(self.sizes[d] / tile)
            rest = self.sizes[d] - whole * tile
        else:  # it turns, so that its first tile is whole
            whole, rest, at = 1.0, 0.0, counts.index(True)
        while at < len(loops):
            run = at
            while run < len(loops) and counts[run] == counts[at]:
                run += 1
            inner = self.tile[loops[run][0] if run < len(loops) else slot][d]
            # The tile at the top of the next loop; loops of one turn between change nothing.
            fits = self.formula.floor(rest / inner)
            if counts[at]:
                turns = _product([self.factors[place] for place in loops[at:run]])
                whole = whole * turns + fits
                rest = rest - fits * inner
            else:
                some = self.formula.minimum(fits, 1.0)
                whole = whole + some
                rest = rest * (1.0 - some)
            at = run
        return whole + self.formula.minimum(rest, 1.0)

    def staying(self, tensor: Tensor, slot: int) -> frozenset[Place]:
        """Loops during which a tile of the next place further in stays."""
        found = set()
        if slot < self.end:
            moves = {self.index[dim] for dim in tensor.dims}
            for place in reversed(self.loops_in_time(slot)):
                if place[1] in moves:
                    break
                found.add(place)
        return frozenset(found)

    def loops_in_time(self, slot: int) -> list[Place]:
        """Loops outside of a slot, outermost first."""
        return [place for place in self.nest.loops if place[0] < slot and place[0] in self.in_time]

    def moved(self, tensor: Tensor, slot: int, merged: frozenset[int] = frozenset()) -> Term:
        """Words of a tensor that come to all instances of a place; see :meth:`.Count.moved`."""
        staying = self.staying(tensor, slot)

        def without(place: Place) -> bool:
            return place in staying or place[0] in merged

        found = _product(
            [self.visits(dim, slot, without) for dim in self.einsum.dims if dim not in tensor.dims]
        )
        found = found * _product([self.sizes[self.index[dim]] for dim in tensor.plain_dims])
        if tensor.windows:
            found = found * self.window_words(tensor, slot)
            if merged:
                found = found * self.shared(tensor, merged)
        return found

    def window_words(self, tensor: Tensor, slot: int) -> Term:
        """Words along all windows together, over all tiles."""
        total = _product([self.swept(rank, slot) for rank in tensor.windows])
        if slot < self.end:
            for dim, step in sorted({term for rank in tensor.windows for term in rank}):
                total = total - self.kept_from_before(tensor, slot, dim, step)
        return total

    def swept(self, rank: Rank, slot: int) -> Term:
        """Sum of a window's length over all tiles along its dimensions."""
        count = {dim: self.visits(dim, slot) for dim, _ in rank}
        found = _product(list(count.values()))
        for dim, step in rank:
            others = _product([number for other, number in count.items() if other != dim])
            found = found + float(step) * others * (self.sizes[self.index[dim]] - count[dim])
        return found

    def kept_from_before(self, tensor: Tensor, slot: int, dim: str, step: int) -> Term:
        """Words along the windows that the last tile had: see :meth:`.Count.kept_from_before`."""
        d = self.index[dim]
        run: list[Place] = []
        for place in reversed(self.loops_in_time(slot)):
            if place[1] != d:
                break
            run.append(place)
        if not run:
            return 0.0
        shift = self.tile[run[0][0] + 1][d]
        found = self.visits(dim, slot) - self.visits(dim, slot, run.__contains__)
        for rank in tensor.windows:
            if any(other == dim for other, _ in rank):
                left = self.span(rank, slot) - float(step) * shift
                found = found * self.formula.maximum(0.0, left)
                found = found * _product(
                    [self.visits(other, slot) for other, _ in rank if other != dim]
                )
            else:
                found = found * self.swept(rank, slot)
        return found

    def shared(self, tensor: Tensor, merged: frozenset[int]) -> Term:
        """Share of the window's tiles that differ among instances of one fan-out."""
        found: Term = 1.0
        for node in sorted({self.slots[s].node for s in merged}):
            axes = [s for s in sorted(merged) if self.slots[s].node == node]
            for rank in tensor.windows:
                inside = [
                    (self.index[dim], step) for dim, step in rank
                    if any((s, self.index[dim]) in self.factors for s in axes)
                ]  # fmt: skip
                if len(inside) == 2:
                    found = found * self.different(inside, axes)
        return found

    def different(self, pair: list[tuple[int, int]], axes: list[int]) -> Term:
        """See :func:`.accounting.different`."""
        (i, a), (j, b) = (
            (
                _product([self.factors.get((s, d), 1.0) for s in axes]),
                float(step) * self.tile[max(axes) + 1][d],
            )
            for d, step in pair
        )
        divisor = self.formula.gcd(a, b)
        again = self.formula.maximum(0.0, i - b / divisor)
        again = again * self.formula.maximum(0.0, j - a / divisor)
        return 1.0 - again / (i * j)

    def once(self, tensor: Tensor, slot: int) -> Term:
        """Elements that each instance meets at least once, over instances."""
        found = _product([self.sizes[self.index[d]] for d in self.einsum.dims if d in tensor.dims])
        return found * _product(
            [
                self.visits(dim, slot, lambda place: place[0] in self.in_time)
                for dim in self.einsum.dims if dim not in tensor.dims
            ]
        )  # fmt: skip

    def instances(self, slot: int) -> Term:
        """Instances that get work."""
        return _product(
            [self.visits(d, slot, lambda place: place[0] in self.in_time) for d in self.einsum.dims]
        )

    def steps(self) -> Term:
        """Iterations of the loops in time."""
        return _product(
            [
                self.visits(dim, self.end, lambda place: place[0] in self.in_space)
                for dim in self.einsum.dims
            ]
        )

    @cached_property
    def kept(self) -> list[list[int]]:
        """Memories that keep each tensor, outermost first."""
        levels = range(len(self.arch.memories))
        return [[v for v in levels if t.name in self.nest.keep[v]] for t in self.einsum.tensors]

    def moves(self) -> _Moves:
        """Reads, fills and updates."""
        shape = len(self.arch.memories), len(self.einsum.tensors)
        reads, fills, updates, distinct = (_zeros(*shape) for _ in range(4))
        found = _Moves(reads, fills, updates, distinct)
        places = self.arch.memory_slots
        for t, tensor in enumerate(self.einsum.tensors):
            kept = self.kept[t]
            if tensor.is_output:
                for level in kept:
                    found.distinct[level][t] = self.once(tensor, places[level])
            for level, child in zip(kept, [*kept[1:], -1], strict=True):
                below = self.end if child < 0 else places[child]
                self._pass_on(found, t, level, below)
                if tensor.is_output:
                    found.reads[level][t] = found.updates[level][t] - found.distinct[level][t]
                if child >= 0:
                    found.fills[child][t] = self.moved(tensor, below) - found.distinct[child][t]
        return found

    def _pass_on(self, found: _Moves, t: int, level: int, below: int) -> None:
        tensor = self.einsum.tensors[t]
        merged, fans = set(), set()
        for s in range(self.arch.memory_slots[level] + 1, below):
            node = self.arch.nodes[self.slots[s].node]
            if isinstance(node, FanOut):
                fans.add(self.slots[s].node)
                if node.reduction if tensor.is_output else node.multicast:
                    merged.add(s)
        words = self.moved(tensor, below, frozenset(merged))
        (found.updates if tensor.is_output else found.reads)[level][t] = words
        for node_index in fans:
            found.hops[node_index, t] = words


_FIELDS: tuple[tuple[Action, str], ...] = (
    ("read", "reads"), ("fill", "fills"), ("update", "updates"),
)  # fmt: skip


class _Costs:
    """What :func:`.cost.cost_of` makes of the counts, where nothing is zero."""

    def __init__(self, counts: _Counts) -> None:
        self.counts, self.arch, self.einsum = counts, counts.arch, counts.einsum
        self.formula, self.moves = counts.formula, counts.moves()
        self.used = [counts.instances(place) for place in self.arch.memory_slots]
        self._share_bits(counts.nest.shares)
        self._leave_main_out()

    def _share_bits(self, shares: tuple[float, ...]) -> None:
        for t, share in enumerate(shares):
            for rows in (self.moves.reads, self.moves.fills, self.moves.updates):
                for row in rows:
                    row[t] = row[t] * share
        for key in self.moves.hops:
            self.moves.hops[key] = self.moves.hops[key] * (shares[key[1]] if shares else 1.0)

    def _leave_main_out(self) -> None:
        for t, share in enumerate(self.counts.main_shares):
            self.moves.reads[0][t] = self.moves.reads[0][t] * share
            self.moves.updates[0][t] = self.moves.updates[0][t] * share
            for level in self.counts.kept[t][1:2]:
                self.moves.fills[level][t] = self.moves.fills[level][t] * share

    def words(self, level: int, name: str) -> list[Term]:
        """Words of each tensor that one instance moves."""
        return [each / self.used[level] for each in getattr(self.moves, name)[level]]

    def through(self, level: int, port: Port, actions: Sequence[Action]) -> Term:
        """Cycles of a port for some of its actions."""
        total: Term = 0.0
        for t, name in enumerate(self.einsum.names):
            if not port.tensors or name in port.tensors:
                for action in actions:
                    total = total + self.words(level, dict(_FIELDS)[action])[t]
        return total / port.words_per_cycle

    def exposed(self) -> Term:
        """Ports and fills that nothing overlaps, and the ramps of the others."""
        total: Term = 0.0
        for level, memory in enumerate(self.arch.memories):
            for port in memory.ports:
                if port.exposed:
                    total = total + self.through(level, port, port.actions)
                elif level and "fill" in port.actions:
                    if memory.exposes_fills:
                        total = total + self.through(level, port, ("fill",))
                    elif self.arch.ramps:
                        total = total + self.ramp(level, port)
        return total

    def ramp(self, level: int, port: Port) -> Term:
        """The first tiles' way in."""
        total: Term = 0.0
        for t, tensor in enumerate(self.einsum.tensors):
            if level in self.counts.kept[t] and (not port.tensors or tensor.name in port.tensors):
                share = self.counts.nest.shares[t] if self.counts.nest.shares else 1.0
                volume = self.counts.volume(tensor, self.arch.memory_slots[level])
                total = total + volume * share
        return total / port.words_per_cycle

    def marches(self) -> Term:
        """Cycles in which systolic meshes are loaded, filled and emptied: see :mod:`.cost`."""
        total: Term = 0.0
        depth = [n for n, node in enumerate(self.arch.nodes) if isinstance(node, Memory)]
        for place, node in enumerate(self.arch.nodes):
            if not (isinstance(node, FanOut) and node.systolic in self.einsum.names):
                continue
            t = self.einsum.names.index(node.systolic)
            held = [level for level in self.counts.kept[t] if depth[level] > place]
            if held:
                level = held[0]
                came = self.moves.fills[level][t] + self.moves.distinct[level][t]
                share = self.counts.nest.shares[t] if self.counts.nest.shares else 1.0
                slot = self.arch.memory_slots[level]
                tile = self.counts.volume(self.einsum.tensors[t], slot) * share
                lag = float(node.mesh[0] + sum(side - 1 for side in node.mesh))
                total = total + came / self.used[level] / tile * lag
        return total

    def access_pj(self) -> Term:
        """Energy of all accesses."""
        total: Term = 0.0
        for level, memory in enumerate(self.arch.memories):
            wide = self.used[level]
            if memory.cluster > 1:
                wide = self.formula.minimum(wide, self.arch.instances[level] / memory.cluster)
            for action, name in _FIELDS:
                energy = getattr(memory, f"{action}_pj")
                if energy:
                    blocks: Term = 0.0
                    for words in self.words(level, name):
                        blocks = blocks + self.formula.ceil(words / float(memory.block_words))
                    total = total + blocks * (energy * wide)
        return total

    def leak_pj_per_cycle(self) -> Term:
        """Of all instances, or of those that work."""
        arch, total = self.arch, 0.0
        idle = arch.idle_leaks
        rows: list[tuple[float | None, int, Term]] = [
            (memory.leak_pj_per_cycle, arch.instances[level], self.used[level])
            for level, memory in enumerate(arch.memories)
        ]
        units = self.counts.instances(self.counts.end)
        rows.append((arch.compute.leak_pj_per_cycle, arch.units, units))
        found: Term = total
        for leak, every, used in rows:
            found = found + (float(every) if idle else used) * (leak or 0.0)
        return found

    def hop_pj(self) -> Term:
        """Of words over the meshes of fan-outs."""
        total: Term = 0.0
        for place, node in enumerate(self.arch.nodes):
            if isinstance(node, FanOut) and node.hop_pj:
                words: Term = 0.0
                for t in range(len(self.einsum.tensors)):
                    words = words + self.moves.hops.get((place, t), 0.0)
                total = total + words * sum(side / 2 for side in node.mesh) * node.hop_pj
        return total

    def results(self) -> list[Term]:
        """All, in the order of :class:`Layout`."""
        formula, arch, counts = self.formula, self.arch, self.counts
        steps = counts.steps() / arch.compute.per_cycle
        ports = [
            (self.through(level, port, port.actions), port)
            for level, memory in enumerate(arch.memories) for port in memory.ports
        ]  # fmt: skip
        busiest = formula.ceil((steps + self.marches()) * arch.overhead)
        for cycles, port in ports:
            if not port.exposed:
                busiest = formula.maximum(busiest, formula.ceil(cycles))
        cycles = busiest + formula.ceil(self.exposed())
        energy = self.access_pj() + self.hop_pj() + cycles * self.leak_pj_per_cycle()
        energy = energy + _product(counts.sizes) * (arch.compute.energy_pj or 0.0)
        words = [
            [
                self.moves.reads[level][t] + self.moves.fills[level][t]
                + self.moves.updates[level][t]
                for t in range(len(self.einsum.tensors))
            ]
            for level in range(len(arch.memories))
        ]  # fmt: skip
        return [
            cycles, formula.ceil(steps), energy, *(cycles for cycles, _ in ports),
            *(_sum(row) for row in words), *words[0],
        ]  # fmt: skip


def _sum(terms: Sequence[Term]) -> Term:
    found: Term = 0.0
    for each in terms:
        found = found + each
    return found
