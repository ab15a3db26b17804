"""The best way to run two neighbours, fused or not, with a proof over all plans.

Every plan has a bound that needs no search of its own: what its tiles and resident tensors move to
and from the outermost memory is known, and what goes on further in is no less than if either einsum
were mapped alone, with what lies between and what is resident at home on the chip. The plan whose
bound is least has its tiles mapped, with all of the meeting memory's room, which makes a higher
bound; if that is still the least, its phases are mapped as they are. So until no bound is below the
best that is found.
Plans that do work twice have low bounds; they are looked at in the order of a guess
(docs/explanation/accelerator-mapper.md).
"""

from __future__ import annotations

import heapq
import itertools
import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

from silicast.accelerator.counting.cost import Objective, objective_value
from silicast.accelerator.counting.einsum import EinsumTensor
from silicast.accelerator.counting.neighbours import Pair, pair_of
from silicast.accelerator.design.architecture import Architecture, Memory
from silicast.accelerator.mapper._lattice import divisors_of
from silicast.accelerator.mapper.budget import EFFORT
from silicast.accelerator.mapper.constraints import Constraints
from silicast.accelerator.mapper.fusion import (
    FusedCost,
    FusionPhase,
    FusionPlan,
    fused_cost,
    loading,
)
from silicast.accelerator.mapper.mapper import Mapped, best_mapping
from silicast.accelerator.mapper.task import Change, aimed, as_stated, einsum_of, task_of
from silicast.core.errors import SilicastError, unsupported

MAPPINGS = 80
"""Mappings of tiles and phases that are searched at the default effort."""
PATIENCE = 8
"""Plans in a row that get a higher bound before the best of them is searched at any rate."""
CLOSE = 0.002
"""How close to its best the mapping of a tile is proven to be, where it makes a bound."""


_Waiting = tuple[float, int, float, FusionPlan]
"""A plan with the place that it waits in, its number, and its bound."""


@final
@dataclass(frozen=True)
class Fused:
    """The best way found.

    Attributes:
        apart: both mapped one by one, what lies between them going out and coming back.
        cost: of the best plan; None where none fits, or rules bar all.
        objective: what is made small.
        bound: neither a plan nor a mapping of both apart whose bounds divide is below.
        plans: that there are; searched: of these.
        remark: what was done otherwise than asked, or "".
    """

    apart: tuple[Mapped, Mapped]
    cost: FusedCost | None
    objective: Objective
    bound: float
    plans: int
    searched: int
    remark: str = ""

    @property
    def apart_pj(self) -> float:
        """Energy of both one by one."""
        return sum(float(each.cost.energy_pj[0]) for each in self.apart)

    @property
    def apart_cycles(self) -> float:
        """Cycles of both one by one."""
        return sum(float(each.cost.cycles[0]) for each in self.apart)

    @property
    def apart_value(self) -> float:
        """The objective of both one by one."""
        return objective_value(self.objective, self.apart_pj, self.apart_cycles)

    @property
    def value(self) -> float:
        """The objective of the better way."""
        return self.fused_value if self.is_fused else self.apart_value

    @property
    def fused_value(self) -> float:
        """The objective of the best plan; infinite where there is none."""
        if self.cost is None:
            return math.inf
        return objective_value(self.objective, self.cost.energy_pj, self.cost.cycles)

    @property
    def is_fused(self) -> bool:
        """Whether the plan is better than both apart."""
        return self.fused_value < self.apart_value

    @property
    def gap(self) -> float:
        """How much lower another way could be, relative to this one."""
        return max(0.0, 1.0 - self.bound / self.value)

    @property
    def saved_bytes(self) -> float:
        """To and from the outermost memory, of both apart less the plan's."""
        if self.cost is None:
            return 0.0
        bytes_ = self.cost.architecture.memories[0].word_bits / 8
        before = sum(
            float(getattr(each.cost.traffic, action)[0].sum())
            for each in self.apart
            for action in ("reads", "fills", "updates")
        )
        return (before - sum(self.cost.words(0).values())) * bytes_


def best_fusion(
    pair: Pair,
    architecture: Architecture,
    constraints: Constraints | None = None,
    *,
    objective: Objective = "energy",
    effort: int = EFFORT,
) -> Fused:
    """Searches plans for two neighbours beside both mapped alone.

    Args:
        effort: as of :func:`.best_mapping`, for each of the mappings; so many plans in proportion.

    Raises:
        SilicastError: one of them cannot be mapped alone; or the design leaves zeros out, or
            has tensors of other widths than its words.
    """
    if architecture.knows_zeros:
        raise unsupported(
            "neighbours are fused on designs that keep all zeros, and this one leaves zeros out",
            "fuse",
            "map its layers one by one",
        )
    if any(memory.tensor_bits for memory in architecture.memories):
        raise unsupported(
            "neighbours are fused on designs whose words are of one width in each memory",
            "fuse",
            "map its layers one by one, or leave tensor_bits out",
        )
    return _FusionSearch(pair, architecture, constraints or Constraints(), objective, effort).run()


@final
class _FusionSearch:
    def __init__(
        self,
        pair: Pair,
        architecture: Architecture,
        rules: Constraints,
        objective: Objective,
        effort: int,
    ) -> None:
        self.pair, self.arch, self.rules = pair, architecture, rules
        self.objective, self.effort = objective, effort
        self.best: FusedCost | None = None
        self.value = math.inf
        self.known: dict[object, Mapped] = {}
        self.bounds: dict[object, float] = {}
        self.searched = 0

    @cached_property
    def needed(self) -> tuple[Objective, ...]:
        """Objectives whose bounds bound the pair's."""
        return ("energy", "latency") if self.objective == "edp" else (self.objective,)

    def run(self) -> Fused:
        apart = self._apart(self.objective)
        bound = self._bound_apart()
        done = Fused(apart, None, self.objective, 0.0, 0, 0)
        self.value = done.apart_value
        waiting = self._in_order()
        count = len(waiting)
        bound = min(bound, self._walk(waiting))
        return replace(
            done, cost=self.best, bound=min(bound, self.value), plans=count, searched=self.searched
        )

    def _in_order(self) -> list[_Waiting]:
        waitings = []
        for number, plan in enumerate(self.plans()):
            least = self._least(plan)
            waitings.append((max(least, self._guess(plan)), number, least, plan))
        heapq.heapify(waitings)
        return waitings

    def _walk(self, waiting: list[_Waiting]) -> float:
        """Bounds and searches plans; what it can prove of all of them."""
        ready: list[_Waiting] = []
        bound, most = math.inf, max(8, MAPPINGS * self.effort // EFFORT)
        since = 0
        while waiting or ready:
            searches = bool(ready) and (not waiting or ready[0] < waiting[0] or since >= PATIENCE)
            _, number, least, plan = heapq.heappop(ready if searches else waiting)
            if least >= self.value:
                continue
            if len(self.known) + len(self.bounds) >= most:
                bound = min(bound, least)
            elif searches:
                since = 0
                bound = min(bound, max(least, self._search(plan)))
            else:
                since += 1
                least = max(least, self._least_of_tiles(plan))
                heapq.heappush(ready, (least, number, least, plan))
        return bound

    def _apart(self, objective: Objective) -> tuple[Mapped, Mapped]:
        first, second = (
            best_mapping(einsum, self.arch, self.rules, objective=objective, effort=self.effort)
            for einsum in (self.pair.first, self.pair.second)
        )
        return first, second

    def _bound_apart(self) -> float:
        return math.prod(sum(each.bound for each in self._apart(o)) for o in self.needed)

    # Plans.

    def plans(self) -> Iterator[FusionPlan]:
        """All plans whose tiles and resident tensors may fit."""
        for level, memory in enumerate(self.arch.memories):
            if level == 0 or self.arch.instances[level] > 1:
                continue
            names = {self.pair.produced, self.pair.operand}
            if not all(memory.may_keep(name) for name in names):
                continue
            if self._is_barred(level):
                continue
            seen = set()
            for cuts in self._cuts():
                for plan in self._of_cuts(level, cuts):
                    key = self._key(plan)
                    if key not in seen:
                        seen.add(key)
                        yield plan

    def _cuts(self) -> Iterator[tuple[tuple[int, int], ...]]:
        """Numbers of tiles, in every order."""
        counts = [
            [int(c) for c in divisors_of(self.pair.second.bounds.get(other, 1))]
            for _, other in self.pair.along
        ]
        for chosen in itertools.product(*counts):
            cut = [(index, count) for index, count in enumerate(chosen) if count > 1]
            yield from itertools.permutations(cut)

    def _of_cuts(self, level: int, cuts: tuple[tuple[int, int], ...]) -> Iterator[FusionPlan]:
        plain = FusionPlan(self.pair, level, cuts)
        memory = self.arch.memories[level]
        if plain.between > memory.usable_words:
            return
        choices = [
            (half, tensor.name)
            for half, einsum in enumerate(plain.einsums)
            for tensor in einsum.tensors
            if tensor.name != plain.between_of(half)
            and memory.may_keep(tensor.name)
            and self._may_stay(plain, half, tensor)
        ]
        for size in range(len(choices) + 1):
            for resident in itertools.combinations(choices, size):
                plan = replace(plain, resident=frozenset(resident))
                if not plan.finishes:
                    continue
                if plan.fits(memory):
                    yield plan
                if cuts and self._can_keep_halo(cuts[-1]):
                    with_halo = replace(plan, keeps_halo=True)
                    if with_halo.fits(memory):
                        yield with_halo

    def _may_stay(self, plan: FusionPlan, half: int, tensor: EinsumTensor) -> bool:
        """Whether it is worth anything that a tensor is resident."""
        return plan.visits(half, tensor) < plan.tiles

    def _can_keep_halo(self, cut: tuple[int, int]) -> bool:
        mine, other = self.pair.along[cut[0]]
        whole, count = self.pair.second.bounds[other], cut[1]
        overlaps = self.pair.rows(other, whole // count) * count > self.pair.first.bounds[mine]
        return overlaps and self.pair.first.bounds[mine] % count == 0

    def _key(self, plan: FusionPlan) -> tuple[object, ...]:
        """What plans that cost the same have in common."""
        return (
            tuple(tuple(einsum.bounds.items()) for einsum in plan.einsums),
            plan.resident,
            plan.between,
            plan.fresh,
            plan.tiles,
            tuple(load.times for _, load in plan.loads()),
        )

    # Bounds.

    def _is_barred(self, level: int) -> bool:
        """Whether rules keep what lies between from being at home in a memory."""
        whole = FusionPlan(self.pair, level)
        return any(math.isinf(each) for each in self._inside(whole).values())

    def _inside(self, plan: FusionPlan) -> dict[tuple[int, Objective], float]:
        """Bounds of either einsum's tiles together, each in all of the meeting memory."""
        return {
            (half, objective): plan.tiles * self._least_of_tile(plan, half, objective)
            for half in (0, 1)
            for objective in self.needed
        }

    def _uncut(self, plan: FusionPlan) -> dict[tuple[int, Objective], float]:
        """Bounds of either einsum as a whole, with the plan's tensors at home."""
        return self._inside(FusionPlan(self.pair, plan.level, resident=plan.resident))

    def _least(self, plan: FusionPlan) -> float:
        """No mappings of a plan's phases are below this."""
        return self._with_traffic(
            plan,
            {
                (half, objective): 0.0 if self._recomputes(plan, half) else least
                for (half, objective), least in self._uncut(plan).items()
            },
        )

    def _guess(self, plan: FusionPlan) -> float:
        """As :meth:`_least`, as if work that is done again cost as much as the rest: no bound."""
        more = {
            half: plan.tiles * plan.einsums[half].points / einsum.points
            for half, einsum in enumerate((self.pair.first, self.pair.second))
        }
        return self._with_traffic(
            plan, {key: more[key[0]] * least for key, least in self._uncut(plan).items()}
        )

    def _least_of_tiles(self, plan: FusionPlan) -> float:
        """A higher bound: with its tiles mapped."""
        return self._with_traffic(plan, self._inside(plan))

    def _least_of_tile(self, plan: FusionPlan, half: int, objective: Objective) -> float:
        """Of one tile, what stays for all of it being there: its way in and out is the plan's."""
        einsum, stay = plan.einsums[half], plan.staying(half)
        key = (half, plan.level, tuple(einsum.bounds.items()), stay, objective)
        if key not in self.bounds:
            home = self.arch.memories[plan.level].name
            rules = _loosened(self.rules.on(einsum), self.arch, dict.fromkeys(stay, home))
            try:
                self.bounds[key] = best_mapping(
                    einsum,
                    _free_outside(self.arch) if objective == "energy" else self.arch,
                    rules,
                    objective=objective,
                    effort=self.effort,
                    gap=CLOSE,
                    padding=False,
                ).bound
            except SilicastError:
                self.bounds[key] = math.inf
        return self.bounds[key]

    def _with_traffic(self, plan: FusionPlan, inside: dict[tuple[int, Objective], float]) -> float:
        """A bound of what goes on inside, with what goes to and from the outermost memory."""
        parts = []
        energy, cycles = loading(plan, self.arch)
        for objective in self.needed:
            if objective == "energy":
                outside = sum(self._streamed_pj(plan, half) for half in (0, 1))
                work = sum(
                    max(inside[half, objective], plan.tiles * self._computed_pj(plan, half))
                    for half in (0, 1)
                )
                parts.append(work + outside + energy)
            else:
                parts.append(
                    cycles
                    + sum(
                        max(inside[half, objective], self._least_cycles(plan, half))
                        for half in (0, 1)
                    )
                )
        return math.prod(parts) * (1 - 1e-12)

    def _computed_pj(self, plan: FusionPlan, half: int) -> float:
        return float(plan.einsums[half].points) * (self.arch.compute.energy_pj or 0.0)

    def _recomputes(self, plan: FusionPlan, half: int) -> bool:
        """Whether a phase does more than its share, so that bounds of the whole say nothing."""
        whole = (self.pair.first, self.pair.second)[half].points
        return plan.tiles * plan.einsums[half].points != whole

    def _streamed(self, plan: FusionPlan, half: int) -> Iterator[EinsumTensor]:
        for tensor in plan.einsums[half].tensors:
            is_between = tensor.name == plan.between_of(half)
            if not is_between and (half, tensor.name) not in plan.resident:
                yield tensor

    def _streamed_pj(self, plan: FusionPlan, half: int) -> float:
        """Energy at the outermost memory of what comes anew for every tile, at least."""
        outer, total = self.arch.memories[0], 0.0
        for tensor in self._streamed(plan, half):
            energy = outer.update_pj if tensor.is_output else outer.read_pj
            words = tensor.size(plan.einsums[half].bounds)
            total += plan.tiles * math.ceil(words / outer.block_words) * (energy or 0.0)
        return total

    def _least_cycles(self, plan: FusionPlan, half: int) -> float:
        """Cycles of the outermost memory's ports for what comes anew, and of all units."""
        einsum = plan.einsums[half]
        units = self.arch.units * self.arch.compute.per_cycle
        most = float(math.ceil(einsum.points / units))
        for port in self.arch.memories[0].hidden_ports:
            words = sum(
                tensor.size(einsum.bounds)
                for tensor in self._streamed(plan, half)
                if (not port.tensors or tensor.name in port.tensors)
                and ("update" if tensor.is_output else "read") in port.actions
            )
            most = max(most, float(math.ceil(words / port.words_per_cycle)))
        return plan.tiles * most

    # Plans that are searched.

    def _search(self, plan: FusionPlan) -> float:
        """Maps both phases of a plan; what it can prove of all their mappings."""
        try:
            phases = [plan.phase(half, self.arch, self.rules) for half in (0, 1)]
            table = {
                objective: [self._mapped(phase, objective) for phase in phases]
                for objective in (*self.needed, self.objective)
            }
        except SilicastError:
            return math.inf
        self.searched += 1
        for first, second in table.values():
            counted = fused_cost(plan, self.arch, self.rules, (first.nest, second.nest))
            value = objective_value(self.objective, counted.energy_pj, counted.cycles)
            if value < self.value or self.best is None:
                self.best = counted
            self.value = min(self.value, value)
        energy, cycles = loading(plan, self.arch)
        return math.prod(
            plan.tiles * sum(each.bound for each in table[objective])
            + (energy if objective == "energy" else cycles)
            for objective in self.needed
        )

    def _mapped(self, phase: FusionPhase, objective: Objective) -> Mapped:
        room = tuple(memory.usable_words for memory in phase.architecture.memories)
        key = (
            phase.einsum.name,
            tuple(phase.einsum.bounds.items()),
            phase.einsum.tensors,
            room,
            tuple(sorted(phase.constraints.homes.items())),
            objective,
        )
        if key not in self.known:
            self.known[key] = best_mapping(
                phase.einsum,
                phase.architecture,
                phase.constraints,
                objective=objective,
                effort=self.effort,
            )
        return self.known[key]


def _loosened(rules: Constraints, architecture: Architecture, homes: dict[str, str]) -> Constraints:
    """Rules that no plan's loops, taken as one mapping of the whole, can break."""
    loosened = {
        position: replace(rule, fixed={d: f for d, f in rule.fixed.items() if f == 1})
        for position, rule in rules.rules.items()
        if position != (architecture.memories[0].name, -1)
    }
    return replace(rules, rules=loosened, least_utilisation=0.0, homes=homes)


def _free_outside(architecture: Architecture) -> Architecture:
    """The design with an outermost memory whose accesses cost nothing."""
    first = architecture.memories[0]
    nodes: list[Memory | object] = [
        replace(node, read_pj=0.0, fill_pj=0.0, update_pj=0.0) if node is first else node
        for node in architecture.nodes
    ]
    return replace(architecture, nodes=tuple(nodes))  # type: ignore[arg-type]


NEIGHBOURS = "neighbours"
"""What asks for all pairs of a file of layers."""


def fused_task(
    design: str,
    op: str,
    sizes: Sequence[str],
    following: str,
    objective: str = "",
    effort: int = EFFORT,
    at: Change = as_stated,
) -> Fused:
    """An operation and the one that takes what it leaves.

    Args:
        following: the second, in words: ``"matmul m=64 n=64 k=256"``.
        at: what is done to the design before.

    Raises:
        SilicastError: an unknown design or size, or operations that are no neighbours.
    """
    task = at(task_of(design, op, sizes))
    words = shlex.split(following)
    if not words or words == [NEIGHBOURS]:
        raise SilicastError(
            f"expected the operation that follows, found {following!r}",
            field="fuse",
            hint=f'as in --fuse "{op} ..."; `{NEIGHBOURS}` asks for the pairs of a file of layers',
        )
    pair = pair_of(task.einsum, einsum_of(words[0], words[1:]))
    task, wanted, remark = aimed(task, objective)
    fused = best_fusion(pair, task.architecture, task.constraints, objective=wanted, effort=effort)
    return replace(fused, remark=remark) if remark else fused


def all_neighbours(fuse: str) -> bool:
    """Whether pairs of a file of layers are asked for.

    Raises:
        SilicastError: something else is.
    """
    if fuse not in ("", NEIGHBOURS):
        raise SilicastError(
            f"expected {NEIGHBOURS}, found {fuse!r}",
            field="fuse",
            hint="a file of layers says itself what follows what",
        )
    return bool(fuse)
