"""The best mapping of an einsum onto an architecture, with a proof of how good it is.

Slots are decided from the innermost outwards. Partial mappings that another one beats in every
respect are dropped, and so are those whose least possible cost is above the best mapping found;
where a budget drops others too, the least of their bounds is what the answer can prove
(docs/explanation/accelerator-mapper.md).

Sizes a little larger than a dimension's, whose loops fill an array or tile a memory better, are
tried too: a mapping of the larger problem is one of the real one, whose last iterations are cut
short; the accounting counts that exactly.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import final

from silicast.accelerator.counting.cost import MappingCost, Objective, cost
from silicast.accelerator.counting.einsum import Einsum
from silicast.accelerator.counting.mapping import LoopNest, MappingBatch
from silicast.accelerator.design.architecture import Architecture
from silicast.accelerator.mapper._hunt import NEAR, Hunt, rank_of
from silicast.accelerator.mapper._lattice import divisors_of
from silicast.accelerator.mapper._ragged import RaggedDescent
from silicast.accelerator.mapper.budget import EFFORT, SearchBudget, budget_of
from silicast.accelerator.mapper.constraints import Constraints
from silicast.core.errors import SilicastError, unsupported

LONGEST = 1.25
"""A size is made larger by this factor at most."""
USEFUL = 1.1
"""More instances that must get work, all cuts counted, for a size to be tried."""
FEW = 4
"""Divisors of a size that leave memories hardly a choice of tiles."""
MOST_COMBINED = 4096
"""Combinations of sizes that are compared, of problems with many dimensions."""
MOST_TRIED = 4
"""Of these, the most promising are mapped."""
SMALL = 16
"""Sizes that need no tiles."""


def padded(
    einsum: Einsum, architecture: Architecture, rules: Constraints, *, fills: bool
) -> Iterator[Einsum]:
    """The problem with sizes that may be worth it, the most promising first.

    Args:
        fills: whether arrays are to be filled; else only sizes are changed that have few divisors.

    >>> from silicast.accelerator.design.architecture import Compute, FanOut, Memory
    >>> from silicast.accelerator.counting.einsum import matmul
    >>> chip = Architecture("x", (Memory("dram"), FanOut("array", (16,))), Compute("mac"))
    >>> [dict(e.bounds) for e in padded(matmul(m=31, n=8, k=8), chip, Constraints(), fills=True)]
    [{'M': 32, 'N': 8, 'K': 8}]
    """
    axes = {number: slot.limit for number, slot in enumerate(architecture.slots) if slot.is_spatial}
    options: dict[str, tuple[int, ...]] = {}
    for dim, size in einsum.bounds.items():
        better = {
            _fuller(size, int(limit))
            for number, limit in axes.items()
            if fills and rules.rule(architecture, number).fixed.get(dim, 0) == 0
        }
        if size > SMALL and len(divisors_of(size)) <= FEW:
            better.add(_rounder(size))
        options[dim] = (size, *sorted(better - {size}))
    sizes = [
        dict(zip(options, chosen, strict=True))
        for chosen in itertools.islice(itertools.product(*options.values()), 1, MOST_COMBINED)
    ]

    def promise(bounds: Mapping[str, int]) -> tuple[float, float]:
        useful = math.prod(einsum.bounds[dim] / new for dim, new in bounds.items())
        working = _working(bounds, axes, rules, architecture) if fills else 1.0
        tiles = math.prod(len(divisors_of(new)) / new for new in bounds.values())
        return useful * working, tiles

    for bounds in sorted(sizes, key=promise, reverse=True)[:MOST_TRIED]:
        yield replace(einsum, bounds=bounds)


def _working(
    bounds: Mapping[str, int],
    axes: Mapping[int, float],
    rules: Constraints,
    architecture: Architecture,
) -> float:
    """Instances that get work, at most: each axis takes what fills it best of all dimensions."""
    working = 1.0
    for number, limit in axes.items():
        fixed = rules.rule(architecture, number).fixed
        fills = {1.0}
        for dim, size in bounds.items():
            if fixed.get(dim, 0) == 0:
                parts = [f for f in divisors_of(size) if f <= limit]
                fills = {a * b for a in fills for b in parts if a * b <= limit}
        working *= max(fills)
    return working


def _fuller(size: int, limit: int) -> int:
    """The size of which an axis of so many instances has most work.

    >>> _fuller(27, 14), _fuller(28, 14)
    (28, 28)
    """

    def working(new: int) -> float:
        return size / new * max(int(f) for f in divisors_of(new) if f <= limit)

    longest = min(int(size * LONGEST), size + limit)
    best = max(range(size, longest + 1), key=lambda new: (working(new), -new))
    return best if working(best) > USEFUL * working(size) else size


def _rounder(size: int) -> int:
    """The next multiple of a power of two that is at most a thirty-second of the size."""
    step = 1 << max(1, int(math.log2(size / 32))) if size >= 64 else 2
    return math.ceil(size / step) * step


RAGGED = 0.25
"""Share of the budget that searches of tiles whose last one is cut short have to themselves."""


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
            below this; also where the budget did not reach all of them.
        divides: whether its own loop bounds do; else it may be below ``bound``.
        complete: whether the search ended by itself, not by its budget.
        tried: partial mappings that it tried.
        remark: what was done otherwise than asked, or what the budget left unsearched, or "".
    """

    nest: LoopNest
    cost: MappingCost
    objective: Objective
    value: float
    bound: float
    divides: bool
    complete: bool
    tried: int
    remark: str = ""

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
    budget: SearchBudget | None = None,
) -> Mapped:
    """Searches mappings whose loop bounds divide their dimensions, or sizes a little larger.

    Args:
        objective: by latency, actions without an energy count none.
        effort: partial mappings that are tried, beyond a first narrow search; a count, so that
            the answer does not depend on how fast the machine is.
        gap: the search ends once the answer is proven to be this close to the best.
        padding: sizes that do not fit the design well (primes, arrays that do not divide them) are
            also made larger and mapped; the last iterations of such loops are cut short. Below the
            usual effort only one narrow search is made of each, none to fill arrays whose units
            wait for words most of the time, and little is proven.
        budget: of several searches together; None = one in proportion to the effort, two seconds
            or less of the default one.

    Raises:
        SilicastError: constraints that contradict each other, or no mapping that fits; names the
            memory and the tensors that need most.
    """
    if objective == "latency":
        architecture = architecture.timed()
    rules = (constraints or Constraints()).on(einsum)
    rules.check(architecture, einsum)
    budget = budget or budget_of(effort)
    hunt = Hunt(einsum, architecture, rules, objective, effort, gap, budget)
    cuts = padding and not (hunt.is_quick or architecture.knows_zeros or rules.homes)
    reserve = RAGGED * budget.left if cuts else 0.0
    budget.left -= reserve
    hunt.run()
    best, rank, tried, divides = hunt.best, hunt.rank, hunt.tried, True
    fills = objective != "energy" and not (hunt.is_quick and hunt.waits_for_words)
    sizes = padded(einsum, architecture, rules, fills=fills)
    for larger in sizes if padding else ():
        if best is not None and budget.is_spent:
            break
        other = Hunt(larger, architecture, rules, objective, effort // 4, gap, budget)
        try:
            rules.check(architecture, larger)
        except SilicastError:
            continue
        if hunt.is_quick and hunt.best is not None:
            other.glance(hunt)
        else:
            other.run()
        tried += other.tried
        if other.best is None:
            continue
        batch = MappingBatch.from_nest(
            other.best.nest(0, larger, architecture), einsum, architecture
        )
        cut = rank_of(cost(einsum, architecture, batch), objective)
        if cut.is_before(rank):
            best, rank, divides = batch, cut, False
    if best is None:
        raise no_mapping(einsum, architecture, rules)
    if cuts:
        descent = RaggedDescent(einsum, architecture, rules, objective, SearchBudget(reserve))
        best, rank = descent.run(best, rank)
        tried += descent.counted // NEAR
        divides = bool((best.factors[:, :, 0].prod(axis=0) == list(einsum.bounds.values())).all())
    return Mapped(
        nest=best.nest(0, einsum, architecture),
        cost=cost(einsum, architecture, best),
        objective=objective,
        value=rank.value,
        bound=min(hunt.value, hunt.bound),
        divides=divides,
        complete=hunt.is_done,
        tried=tried,
        remark=hunt.uncovered,
    )


def no_mapping(einsum: Einsum, architecture: Architecture, rules: Constraints) -> SilicastError:
    """What stands in the way: the memory whose smallest tiles are too large, if there is one."""
    for level, memory in enumerate(architecture.memories):
        position = architecture.memory_slots[level]
        tile = dict.fromkeys(einsum.dims, 1) if level else dict(einsum.bounds)
        for slot in range(position, len(architecture.slots)):
            for dim, bound in rules.rule(architecture, slot).fixed.items():
                if dim in tile:
                    tile[dim] = min(tile[dim] * bound, einsum.bounds[dim])
        subject = "the smallest tiles" if level else "all words"
        names = [t.name for t in einsum.tensors if level == 0 or memory.must_keep(t.name)]
        words = {
            name: math.ceil(einsum.tensor(name).size(tile) * memory.words_of(name))
            for name in names
        }
        needed = sum(words.values())
        if memory.bank_words is not None:
            banks = [math.ceil(size / memory.bank_words) for size in words.values()]
            # As the count of tiles does, of all that tiles may fill, not of whole banks there.
            if sum(banks) * memory.bank_words > memory.usable_words >= needed:
                return unsupported(
                    f"no mapping fits: {subject} of {', '.join(names)} need "
                    f"{sum(banks)} banks of {memory.bank_words:g} words, one tensor in each, "
                    f"{memory.usable_words / memory.bank_words:.3g} are there",
                    f"{memory.name}.bank_words",
                    f"make banks of {memory.usable_words // sum(banks):g} words or fewer, "
                    "or let a tensor pass it by",
                )
        if needed > memory.usable_words:
            return unsupported(
                f"no mapping fits: {subject} of {', '.join(names)} need {needed} words of "
                f"{memory.word_bits} bits, {memory.usable_words:g} are there "
                f"({needed * memory.word_bits / 8:g} and "
                f"{memory.usable_words * memory.word_bits / 8:g} bytes)",
                memory.name,
                (
                    f"give its [[level]] {needed * memory.buffers * memory.word_bits:g} bits or "
                    "more (capacity_words x word_bits) in a file of the design, or let a tensor "
                    "pass it by; words are as wide as the wider of inputs and results, which are "
                    "of 16 bits for products in int8 too"
                )
                if level
                else "every tensor starts and ends there: leave its capacity out, or give it more",
            )
    return unsupported(
        "no mapping keeps to the constraints", einsum.name, "free a factor, or an axis of a fan-out"
    )
