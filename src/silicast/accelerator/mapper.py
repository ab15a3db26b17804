"""The best mapping of an einsum onto an architecture, with a proof of how good it is.

Slots are decided from the innermost outwards. Partial mappings that another one beats in every
respect are dropped, and so are those whose least possible cost is above the best mapping found;
where a budget drops others too, the least of their bounds is what the answer can prove
(docs/explanation/accelerator-mapper.md).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import final

from silicast.accelerator._facts import Facts
from silicast.accelerator._search import Search
from silicast.accelerator.architecture import Architecture
from silicast.accelerator.constraints import Constraints
from silicast.accelerator.cost import Cost, Objective, cost
from silicast.accelerator.einsum import Einsum
from silicast.accelerator.mapping import Keep, LoopNest, MappingBatch, default_keep
from silicast.core.errors import SilicastError

WIDTHS = (50, 500, 5000, 50_000)
"""Partial mappings kept of a slot, one search after the other, until the proof is good enough."""

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
        bound: no mapping that keeps to the rules is below this.
        complete: whether the search ended by itself, not by its budget.
        tried: partial mappings that it tried.
    """

    nest: LoopNest
    cost: Cost
    objective: Objective
    value: float
    bound: float
    complete: bool
    tried: int

    @property
    def gap(self) -> float:
        """How much lower another mapping's objective could be, relative to this one's."""
        return max(0.0, 1.0 - self.bound / self.value)


def best_mapping(
    einsum: Einsum,
    architecture: Architecture,
    constraints: Constraints | None = None,
    *,
    objective: Objective = "energy",
    effort: int = EFFORT,
    gap: float = 1e-6,
) -> Mapped:
    """Searches mappings whose loop bounds divide their dimensions.

    Args:
        effort: partial mappings that are tried, beyond a first narrow search; a count, so that
            the answer does not depend on how fast the machine is.
        gap: the search ends once the answer is proven to be this close to the best.

    Raises:
        SilicastError: constraints that contradict each other, or no mapping that fits; names the
            memory and the tensors that need most.
    """
    rules = (constraints or Constraints()).on(einsum)
    rules.check(architecture, einsum)
    patterns = [
        Search(Facts(einsum, architecture, rules, keep, objective))
        for keep in keep_patterns(einsum, architecture)
    ]
    best: tuple[float, MappingBatch] | None = None
    bounds = [0.0] * len(patterns)
    done = False
    for width in WIDTHS:
        for number, search in enumerate(patterns):
            if best is not None and bounds[number] >= best[0] * (1 - gap):
                continue
            known = math.inf if best is None else best[0]
            left = effort - sum(each.tried for each in patterns)
            found = search.run(width, known, math.inf if best is None else left)
            bounds[number] = max(bounds[number], found.bound)
            if found.batch is not None and (best is None or found.value < best[0]):
                best = (found.value, found.batch)
        done = best is not None and min(bounds) >= best[0] * (1 - gap)
        if done or (best is not None and sum(each.tried for each in patterns) > effort):
            break
    if best is None:
        raise no_mapping(einsum, architecture, rules)
    value, batch = best
    return Mapped(
        nest=batch.nest(0, einsum, architecture), cost=cost(einsum, architecture, batch),
        objective=objective, value=value, bound=min(value, *bounds), complete=done,
        tried=sum(each.tried for each in patterns),
    )  # fmt: skip


def keep_patterns(einsum: Einsum, architecture: Architecture) -> Iterator[Keep]:
    """What memories may keep: every choice of tensors that may pass one by."""
    full = default_keep(einsum, architecture)
    choices = [
        (level, name)
        for level, memory in enumerate(architecture.memories)
        for name in einsum.names
        if level and name in full[level] and name in memory.may_bypass
    ]
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
