"""The best mapping of an einsum onto an architecture, with a proof of how good it is.

Slots are decided from the innermost outwards. Partial mappings that another one beats in every
respect are dropped, and so are those whose least possible cost is above the best mapping found;
where a budget drops others too, the least of their bounds is what the answer can prove
(docs/explanation/accelerator-mapper.md).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import final

from silicast.accelerator._facts import Facts
from silicast.accelerator._padding import padded
from silicast.accelerator._prices import Busy
from silicast.accelerator._search import Search
from silicast.accelerator.architecture import Architecture
from silicast.accelerator.constraints import Constraints
from silicast.accelerator.cost import Cost, Objective, cost, value_of
from silicast.accelerator.einsum import Einsum
from silicast.accelerator.mapping import Keep, LoopNest, MappingBatch, default_keep
from silicast.core.errors import SilicastError

WIDTHS = (50, 500, 5000, 50_000)
"""Partial mappings kept of a slot, one search after the other, until the proof is good enough."""

ROUNDS = 5
"""Sets of weights that are tried where a port may be busier than the units."""
TRADES = 3
"""Prices of a cycle that are tried where energy times delay is made small."""
EFFORT = 10_000
"""Partial mappings that are tried unless the caller says otherwise: some tenths of a second."""


@final
@dataclass(frozen=True)
class Mapped:
    """The best mapping found.

    Attributes:
        nest: its loops.
        cost: what it costs, a batch of one.
        objective: what was made small.
        value: of the objective: pJ, cycles, or pJ x cycles.
        bound: no mapping that keeps to the rules, and whose loop bounds divide their dimensions, is
            below this.
        divides: whether its own loop bounds do; else it may be below ``bound``.
        complete: whether the search ended by itself, not by its budget.
        tried: partial mappings that it tried.
    """

    nest: LoopNest
    cost: Cost
    objective: Objective
    value: float
    bound: float
    divides: bool
    complete: bool
    tried: int

    @property
    def gap(self) -> float:
        """How much lower a mapping whose bounds divide could be, relative to this one."""
        return max(0.0, 1.0 - self.bound / self.value)


def best_mapping(
    einsum: Einsum,
    architecture: Architecture,
    constraints: Constraints | None = None,
    *,
    objective: Objective = "energy",
    effort: int = EFFORT,
    gap: float = 1e-6,
    padding: bool = True,
) -> Mapped:
    """Searches mappings whose loop bounds divide their dimensions, or sizes a little larger.

    Args:
        effort: partial mappings that are tried, beyond a first narrow search; a count, so that
            the answer does not depend on how fast the machine is.
        gap: the search ends once the answer is proven to be this close to the best.
        padding: sizes that do not fit the design well (primes, arrays that do not divide them) are
            also made larger and mapped; the last iterations of such loops are cut short.

    Raises:
        SilicastError: constraints that contradict each other, or no mapping that fits; names the
            memory and the tensors that need most.
    """
    rules = (constraints or Constraints()).on(einsum)
    rules.check(architecture, einsum)
    hunt = _Hunt(einsum, architecture, rules, objective, effort, gap)
    hunt.run()
    best, value, tried, divides = hunt.best, hunt.value, hunt.tried, True
    sizes = padded(einsum, architecture, rules, fills=objective != "energy")
    for larger in sizes if padding else ():
        other = _Hunt(larger, architecture, rules, objective, effort // 4, gap)
        try:
            rules.check(architecture, larger)
        except SilicastError:
            continue
        other.run()
        tried += other.tried
        if other.best is None:
            continue
        batch = MappingBatch.of(other.best.nest(0, larger, architecture), einsum, architecture)
        cut = float(value_of(cost(einsum, architecture, batch), objective)[0])
        if cut < value:
            best, value, divides = batch, cut, False
    if best is None:
        raise no_mapping(einsum, architecture, rules)
    return Mapped(
        nest=best.nest(0, einsum, architecture), cost=cost(einsum, architecture, best),
        objective=objective, value=value, bound=min(hunt.value, hunt.bound), divides=divides,
        complete=hunt.is_done, tried=tried,
    )  # fmt: skip


@final
class _Hunt:
    """The searches of one problem, with the best mapping and the best bound so far."""

    def __init__(
        self, einsum: Einsum, architecture: Architecture, rules: Constraints,
        objective: Objective, effort: int, gap: float,
    ) -> None:  # fmt: skip
        self.einsum, self.arch, self.rules = einsum, architecture, rules
        self.objective, self.effort, self.gap = objective, effort, gap
        self.best: MappingBatch | None = None
        self.value = math.inf
        self.bound = 0.0
        self.spent = 0
        self.busy = Busy(einsum, architecture)
        self.weights = self.busy.start()
        self.searches = self._searches()

    def _searches(self) -> list[Search]:
        """A search for each choice of what memories keep."""
        prices, seen = None, self.arch
        if self.objective == "latency":
            prices = self.busy.prices(self.weights)
            seen = self.busy.priced(prices)
        return [
            Search(
                Facts(self.einsum, seen, self.rules, keep, self.objective, prices),
                self.arch,
                self.objective,
            )
            for keep in keep_patterns(self.einsum, self.arch, self.rules.homes)
        ]

    def run(self) -> None:
        """All of it."""
        if self.objective == "latency":
            self.weigh()
        if self.objective == "edp":
            self.trade()
        self.widen()

    @property
    def tried(self) -> int:
        """Partial mappings that were tried."""
        return self.spent + sum(each.tried for each in self.searches)

    @property
    def is_done(self) -> bool:
        """Whether the answer is proven to be as close to the best as was asked."""
        return self.bound >= self.value * (1 - self.gap)

    def weigh(self) -> None:
        """Narrow searches with other weights of what may be busiest."""
        best_weights, best_bound = self.weights, -1.0
        for number in range(ROUNDS if self.busy.ports else 1):
            if number:
                assert self.best is not None
                found = cost(self.einsum, self.arch, self.best)
                self.weights = self.busy.reweighted(self.weights, self.busy.cycles(found))
                self.spent = self.tried
                self.searches = self._searches()
            bound = self._run(WIDTHS[0], [0.0] * len(self.searches))
            if bound > best_bound:
                best_weights, best_bound = self.weights, bound
            if self.best is None or self.is_done or self.tried > self.effort:
                return
        if self.busy.ports and best_weights is not self.weights:
            self.weights, self.spent = best_weights, self.tried
            self.searches = self._searches()

    def trade(self) -> None:
        """Narrow searches for least energy, with a price of time.

        Energy E and time T of the best are least in E + (E / T) T too, near it; such a sum sees
        what time later loops may cost.
        """
        keeps = list(keep_patterns(self.einsum, self.arch, self.rules.homes))
        price, energies = 0.0, []
        for number in range(TRADES):
            for keep in keeps:
                facts = Facts(self.einsum, self.arch, self.rules, keep, "energy", None, price)
                search = Search(facts, self.arch, self.objective)
                found = search.run(WIDTHS[0], math.inf, math.inf)
                self.spent += search.tried
                if not number:
                    energies.append(found.bound)
                if found.batch is not None and found.value < self.value:
                    self.value, self.best = found.value, found.batch
            if self.best is None:
                return
            if not number:
                self._square(min(energies))
            known = cost(self.einsum, self.arch, self.best)
            price, before = float(known.energy_pj[0] / known.cycles[0]), price
            if price == before:
                return

    def _square(self, energy: float) -> None:
        """Proves with least energy and least time, each apart; the fastest may be the best too."""
        fast = _Hunt(self.einsum, self.arch, self.rules, "latency", self.effort // 3, self.gap)
        fast.weigh()
        self.spent += fast.tried
        if fast.best is None:
            return
        self.bound = max(self.bound, energy * fast.bound)
        value = float(value_of(cost(self.einsum, self.arch, fast.best), self.objective)[0])
        if value < self.value:
            self.value, self.best = value, fast.best

    def widen(self) -> None:
        """Wider and wider searches, until the proof is good enough or the budget is spent."""
        bounds = [0.0] * len(self.searches)
        for width in WIDTHS:
            if self.is_done or (self.best is not None and self.tried > self.effort):
                return
            self._run(width, bounds)

    def _run(self, width: int, bounds: list[float]) -> float:
        """One search of each choice; what they prove together."""
        for number, search in enumerate(self.searches):
            if bounds[number] >= self.value * (1 - self.gap):
                continue
            left = math.inf if self.best is None else self.effort - self.tried
            found = search.run(width, self.value, left)
            bounds[number] = max(bounds[number], found.bound)
            if found.batch is not None and found.value < self.value:
                self.value, self.best = found.value, found.batch
        bound = min(bounds)
        if self.objective == "latency":
            bound = math.ceil(bound * (1 - 1e-12)) if bound < math.inf else bound
        self.bound = max(self.bound, bound)
        return bound


def keep_patterns(
    einsum: Einsum, architecture: Architecture, homes: Mapping[str, str] | None = None
) -> Iterator[Keep]:
    """What memories may keep: every choice of tensors that may pass one by.

    Args:
        homes: as of :class:`.Constraints`.
    """
    full = default_keep(einsum, architecture, homes)
    outermost = architecture.memories[0].name
    choices = [
        (level, name)
        for level, memory in enumerate(architecture.memories)
        for name in einsum.names
        if name in full[level] and name in memory.may_bypass
        and memory.name != (homes or {}).get(name, outermost)
    ]  # fmt: skip
    for left_out in itertools.product((False, True), repeat=len(choices)):
        gone = {choice for choice, out in zip(choices, left_out, strict=True) if out}
        yield tuple(
            frozenset(name for name in kept if (level, name) not in gone)
            for level, kept in enumerate(full)
        )


def no_mapping(einsum: Einsum, architecture: Architecture, rules: Constraints) -> SilicastError:
    """What stands in the way: the memory whose smallest tiles are too large, if there is one."""
    for level, memory in enumerate(architecture.memories):
        place = architecture.memory_slots[level]
        tile = dict.fromkeys(einsum.dims, 1)
        for slot in range(place, len(architecture.slots)):
            for dim, bound in rules.of(architecture, slot).fixed.items():
                if dim in tile:
                    tile[dim] = min(tile[dim] * bound, einsum.bounds[dim])
        names = [t.name for t in einsum.tensors if level == 0 or memory.must_keep(t.name)]
        needed = sum(einsum.tensor(name).size(tile) for name in names)
        if needed > memory.usable_words:
            return SilicastError(
                f"no mapping fits: the smallest tiles of {', '.join(names)} need {needed} words, "
                f"{memory.usable_words:g} are there ({needed * memory.word_bits / 8:g} and "
                f"{memory.usable_words * memory.word_bits / 8:g} bytes)",
                kind="unsupported", field=memory.name,
                hint="let a tensor pass it by, or make it larger",
            )  # fmt: skip
    return SilicastError(
        "no mapping keeps to the constraints", kind="unsupported", field=einsum.name,
        hint="free a factor, or an axis of a fan-out",
    )  # fmt: skip


def refitted(nest: LoopNest, einsum: Einsum) -> LoopNest:
    """A mapping of another size of the same einsum, with its outermost loops cut or stretched."""
    covered = dict.fromkeys(einsum.dims, 1)
    loops = []
    for loop in reversed(nest.loops):
        left = math.ceil(einsum.bounds[loop.dim] / covered[loop.dim])
        bound = min(loop.bound, left)
        covered[loop.dim] *= bound
        loops.append(replace(loop, bound=bound))
    loops.reverse()
    # What is left goes to the outermost loop in time of each dimension.
    for dim, size in einsum.bounds.items():
        for position, loop in enumerate(loops):
            if loop.dim == dim and loop.axis < 0:
                inner = covered[dim] // loop.bound
                loops[position] = replace(loop, bound=math.ceil(size / inner))
                break
    return LoopNest(tuple(loops), nest.keeps)
