"""Neighbours that run tile by tile, so that what lies between them never leaves the chip.

A plan cuts what lies between into tiles. For each tile the first einsum makes it in one memory (the
*meeting* memory) and the second takes it from there; then comes the next tile. Tensors that the
next tile needs again may be *resident*: loaded into the meeting memory whole, and kept there in
both phases. All others come anew for each tile, and nothing further in is kept from tile to tile.
So a phase is an einsum of the tile's sizes with a mapping of its own, counted by
:mod:`~silicast.accelerator.counting.accounting`, as often as there are tiles
(docs/explanation/accelerator-mapper.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np

from silicast.accelerator.counting.accounting import AccessCounts
from silicast.accelerator.counting.cost import MappingCost, cost, cost_of
from silicast.accelerator.counting.einsum import Einsum, EinsumTensor
from silicast.accelerator.counting.mapping import LoopNest, MappingBatch
from silicast.accelerator.counting.neighbours import Pair
from silicast.accelerator.design.architecture import Action, Architecture, Memory
from silicast.accelerator.mapper.constraints import Constraints, SlotRule
from silicast.core.errors import SilicastError, unsupported


@final
@dataclass(frozen=True)
class FusionPhase:
    """What one of the two does for a tile.

    Attributes:
        einsum: of the tile's sizes.
        architecture: with the room that the meeting memory has left.
        constraints: with the homes of what starts or ends in the meeting memory.
    """

    einsum: Einsum
    architecture: Architecture
    constraints: Constraints


@final
@dataclass(frozen=True)
class ResidentTransfer:
    """A resident tensor's way between the outermost and the meeting memory.

    Attributes:
        tensor: its name; is_output: whether it leaves rather than comes.
        words: each time; times: how often.
    """

    tensor: str
    is_output: bool
    words: int
    times: int


@final
@dataclass(frozen=True)
class FusionPlan:
    """How two neighbours share their outer loops.

    Attributes:
        pair: the neighbours.
        level: of the meeting memory, of which there is one instance.
        cuts: (place in ``pair.along``, number of tiles), outermost first, each more than one.
        resident: (0 or 1 = of the first or second, tensor).
        keeps_halo: rows that neighbouring tiles along the innermost cut share stay; otherwise the
            first computes them again for every tile.
    """

    pair: Pair
    level: int
    cuts: tuple[tuple[int, int], ...] = ()
    resident: frozenset[tuple[int, str]] = frozenset()
    keeps_halo: bool = False

    @cached_property
    def tiles(self) -> int:
        """Number of tiles that both layers share."""
        return math.prod(count for _, count in self.cuts)

    @cached_property
    def einsums(self) -> tuple[Einsum, Einsum]:
        """Both, of one tile's sizes."""
        first, second = dict(self.pair.first.bounds), dict(self.pair.second.bounds)
        for number, (position, count) in enumerate(self.cuts):
            mine, other = self.pair.along[position]
            second[other] //= count
            if self.keeps_halo and number == len(self.cuts) - 1:
                first[mine] //= count
            else:
                first[mine] = min(first[mine], self.pair.rows(other, second[other]))
        return replace(self.pair.first, bounds=first), replace(self.pair.second, bounds=second)

    @cached_property
    def between(self) -> int:
        """Words of a tile of what lies between, as the second sees it."""
        return max(
            self.einsums[1].tensor(self.pair.operand).size(self.einsums[1].bounds),
            self.einsums[0].tensor(self.pair.produced).size(self.einsums[0].bounds),
        )

    def moves(self, half: int, tensor: EinsumTensor) -> list[int]:
        """Which cuts move a tensor."""
        return [
            number
            for number, (position, _) in enumerate(self.cuts)
            if self.pair.along[position][half] in tensor.dims
        ]

    def visits(self, half: int, tensor: EinsumTensor) -> int:
        """How often another tile of a tensor is needed, one after the other."""
        last = max(self.moves(half, tensor), default=-1)
        return math.prod(count for _, count in self.cuts[: last + 1])

    @cached_property
    def fresh(self) -> int:
        """Tiles for which the second's results begin; for the others they go on."""
        output = next(t for t in self.pair.second.tensors if t.is_output)
        return math.prod(self.cuts[number][1] for number in self.moves(1, output))

    @property
    def finishes(self) -> bool:
        """Whether results that several tiles add to stay until the last of these."""
        output = next(t for t in self.pair.second.tensors if t.is_output)
        if self.fresh == self.tiles:
            return True
        return (1, output.name) in self.resident and self.visits(1, output) == self.fresh

    def loads(self) -> Iterator[tuple[int, ResidentTransfer]]:
        """Of every resident tensor, with its half."""
        for half, name in sorted(self.resident):
            tensor = self.einsums[half].tensor(name)
            yield (
                half,
                ResidentTransfer(
                    name,
                    tensor.is_output,
                    tensor.size(self.einsums[half].bounds),
                    self.visits(half, tensor),
                ),
            )

    def between_of(self, half: int) -> str:
        """What lies between, as one of the two calls it."""
        return self.pair.operand if half else self.pair.produced

    def reserved(self, half: int, memory: Memory) -> float:
        """Room that is taken in a phase apart from what its own einsum keeps."""
        size = self.einsums[half].tensor(self.between_of(half)).size(self.einsums[half].bounds)
        words = [load.words for other, load in self.loads() if other != half]
        taken = memory.taken(np.array([float(w) for w in (*words, self.between, size)]))
        return float(taken[:-1].sum() - taken[-1])

    def staying(self, half: int) -> frozenset[str]:
        """Tensors of one of the two that stay in the meeting memory during its phase."""
        return frozenset({self.between_of(half), *(n for h, n in self.resident if h == half)})

    def needed(self, half: int, memory: Memory) -> float:
        """Room that a phase's own einsum takes at least: dimensions of what stays are whole."""
        einsum, stay = self.einsums[half], self.staying(half)
        whole = {dim for name in stay for dim in einsum.tensor(name).dims}
        least = {dim: size if dim in whole else 1 for dim, size in einsum.bounds.items()}
        words = [
            float(tensor.size(least))
            for tensor in einsum.tensors
            if tensor.name in stay or memory.must_keep(tensor.name)
        ]
        return float(memory.taken(np.array(words)).sum())

    def fits(self, memory: Memory) -> bool:
        """Whether both phases may find room."""
        return all(
            self.reserved(half, memory) + self.needed(half, memory) <= memory.usable_words
            for half in (0, 1)
        )

    def phase(self, half: int, architecture: Architecture, rules: Constraints) -> FusionPhase:
        """One of the two phases, as a problem of its own.

        Raises:
            SilicastError: no room is left, or a rule demands loops that would move what stays.
        """
        memory = architecture.memories[self.level]
        einsum, stay = self.einsums[half], self.staying(half)
        left = memory.usable_words - self.reserved(half, memory)
        if left < self.needed(half, memory):
            raise unsupported(
                f"a tile and what is resident need more than the {memory.usable_words:g} words "
                "that are there",
                memory.name,
                "cut into smaller tiles",
            )
        nodes = tuple(
            replace(node, capacity_words=left * node.buffers)
            if isinstance(node, Memory)
            and node.name == memory.name
            and node.capacity_words is not None
            else node
            for node in architecture.nodes
        )
        return FusionPhase(
            einsum, replace(architecture, nodes=nodes), self.rules(half, architecture, rules, stay)
        )

    def rules(
        self, half: int, architecture: Architecture, rules: Constraints, stay: frozenset[str]
    ) -> Constraints:
        """Loops outside the meeting memory leave what stays there in place."""
        einsum = self.einsums[half]
        still = {dim for name in stay for dim in einsum.tensor(name).dims}
        own_rules = rules.on(einsum)
        table: dict[tuple[str, int], SlotRule] = dict(own_rules.rules)
        for slot in range(architecture.memory_slots[self.level]):
            position = architecture.slots[slot]
            key = (architecture.nodes[position.node].name, position.axis)
            rule = table.get(key, SlotRule())
            for dim in still:
                if min(rule.fixed.get(dim, 1), einsum.bounds[dim]) != 1:
                    raise unsupported(
                        f"a rule fixes {dim} to {rule.fixed[dim]}",
                        f"constraint.{key[0]}",
                        "fused neighbours meet further in: free it there",
                    )
            table[key] = replace(rule, fixed={**rule.fixed, **dict.fromkeys(still, 1)})
        home = architecture.memories[self.level].name
        return replace(own_rules, rules=table, homes={**rules.homes, **dict.fromkeys(stay, home)})


@final
@dataclass(frozen=True)
class FusedCost:
    """What a plan with two mappings costs.

    Attributes:
        plan: that is counted; architecture: it runs on.
        nests: of the first and the second, of one tile.
        phases: cost of one tile, a batch of one each.
        going_on: as the second of ``phases``, of a tile that adds to results that are there.
        load_pj, load_cycles: of what is resident; the units wait for it.
    """

    plan: FusionPlan
    architecture: Architecture
    nests: tuple[LoopNest, LoopNest]
    phases: tuple[MappingCost, MappingCost]
    going_on: MappingCost
    load_pj: float
    load_cycles: float

    @property
    def energy_pj(self) -> float:
        first, second = (float(phase.energy_pj[0]) for phase in self.phases)
        more = self.plan.tiles - self.plan.fresh
        again = float(self.going_on.energy_pj[0])
        return self.plan.tiles * first + self.plan.fresh * second + more * again + self.load_pj

    @property
    def cycles(self) -> float:
        """Of the whole: the phases take turns."""
        first, second = (float(phase.cycles[0]) for phase in self.phases)
        more = self.plan.tiles - self.plan.fresh
        again = float(self.going_on.cycles[0])
        return self.plan.tiles * first + self.plan.fresh * second + more * again + self.load_cycles

    @property
    def points(self) -> float:
        """Multiplications, those that are done again among them."""
        return float(self.plan.tiles * sum(einsum.points for einsum in self.plan.einsums))

    @property
    def recomputed(self) -> float:
        """Of these, how many are done more than once."""
        return self.points - self.plan.pair.first.points - self.plan.pair.second.points

    def words(self, level: int) -> dict[tuple[int, str], float]:
        """Words that a memory reads, fills and updates, all together, by half and tensor."""
        words: dict[tuple[int, str], float] = {}
        for half, phase in enumerate(self.phases):
            runs = [(self.plan.tiles, phase)]
            if half:
                more = self.plan.tiles - self.plan.fresh
                runs = [(self.plan.fresh, phase), (more, self.going_on)]
            for t, name in enumerate(phase.einsum.names):
                words[half, name] = sum(
                    times * float(getattr(each.traffic, action)[level, t, 0])
                    for times, each in runs
                    for action in ("reads", "fills", "updates")
                )
        for half, load in self.plan.loads():
            if level == 0 or (level == self.plan.level and not load.is_output):
                words[half, load.tensor] += load.words * load.times
        return words


def fused_cost(
    plan: FusionPlan,
    architecture: Architecture,
    rules: Constraints,
    nests: tuple[LoopNest, LoopNest],
) -> FusedCost:
    """Counts a plan.

    Args:
        nests: of one tile each, within the phases' rules.

    Raises:
        SilicastError: mappings that do not belong to the phases, or an action without energy.
    """
    costs = []
    for half in (0, 1):
        phase = plan.phase(half, architecture, rules)
        batch = MappingBatch.from_nest(nests[half], phase.einsum, phase.architecture)
        costs.append(cost(phase.einsum, phase.architecture, batch))
    second = costs[1]
    again = cost_of(second.einsum, second.architecture, going_on(second.einsum, second.traffic))
    energy, cycles = loading(plan, architecture)
    return FusedCost(plan, architecture, nests, (costs[0], second), again, energy, cycles)


def going_on(einsum: Einsum, traffic: AccessCounts) -> AccessCounts:
    """Counts of the same loops where results that are there are added to: no visit is the first."""
    t = next(i for i, tensor in enumerate(einsum.tensors) if tensor.is_output)
    reads, fills, distinct = traffic.reads.copy(), traffic.fills.copy(), traffic.distinct.copy()
    levels = np.flatnonzero(traffic.tiles[:, t].any(axis=-1))
    reads[levels, t] += distinct[levels, t]
    fills[levels[1:], t] += distinct[levels[1:], t]
    distinct[:, t] = 0.0
    return replace(traffic, reads=reads, fills=fills, distinct=distinct)


def loading(plan: FusionPlan, architecture: Architecture) -> tuple[float, float]:
    """Energy, pJ, and cycles of all that is resident, on its way in and out."""
    outer, meeting = architecture.memories[0], architecture.memories[plan.level]
    energy = 0.0
    words: dict[tuple[str, Action, str], float] = {}
    for _, load in plan.loads():
        steps: list[tuple[Memory, Action]] = [(outer, "update")]
        if not load.is_output:
            steps = [(outer, "read"), (meeting, "fill")]
        for memory, action in steps:
            accesses = math.ceil(load.words / memory.block_words) * load.times
            energy += accesses * _energy(memory, action)
            key = (memory.name, action, load.tensor)
            words[key] = words.get(key, 0.0) + load.words * load.times
    cycles = 0.0
    for memory in (outer, meeting):
        for port in memory.ports:
            through = sum(
                count
                for (name, action, tensor), count in words.items()
                if name == memory.name
                and action in port.actions
                and (not port.tensors or tensor in port.tensors)
            )
            cycles = max(cycles, through / port.words_per_cycle)
    cycles = float(math.ceil(cycles))
    return energy + cycles * (architecture.idle_pj_per_cycle + architecture.cycle_pj), cycles


def _energy(memory: Memory, action: str) -> float:
    energy = getattr(memory, f"{action}_pj")
    if energy is None:
        raise SilicastError(
            "the action happens and has no energy",
            field=f"{memory.name}.{action}_pj",
            hint="give it in the architecture file, or read an energy table",
        )
    return float(energy)
