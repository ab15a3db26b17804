"""How a chip's own mapper chooses: what it makes small first, and which loops it cuts short.

Constraints say what is possible on a chip; a policy says what is preferred among that. An
architecture file has it in ``[policy]``, and under other names in ``[policies.NAME]``: what could
run on a chip and what its own controller ran are two answers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import final

import numpy as np

from silicast.accelerator.counting.cost import Objective, cost, value_of
from silicast.accelerator.counting.einsum import Einsum
from silicast.accelerator.counting.mapping import MappingBatch
from silicast.accelerator.design.architecture import Architecture, Memory
from silicast.accelerator.mapper.budget import EFFORT, SearchBudget, budget_of
from silicast.accelerator.mapper.constraints import NO_RULE, Constraints
from silicast.accelerator.mapper.mapper import Mapped, best_mapping, no_mapping
from silicast.core.errors import SilicastError

FIRST = 100.0
"""Times that an access counts which is made rare first: more than any other saving outweighs."""

MOST_STARTS = 4
"""Of tiles that fill a memory as well, so many that map are compared, least traffic first."""
QUICK = 2_000
"""Partial mappings that are tried of a start before the best one is searched in full."""

MOST_ADDED = 1.15
"""Largest size that a dimension is searched with, relative to its own."""


@final
@dataclass(frozen=True)
class Filling:
    """A tensor that takes a memory's room before all others.

    Attributes:
        level: the memory below the outermost.
        tensor: its tiles there are those that hold the most words in the mean, as far as a tile of
            every other tensor that stands there fits beside them.
        cut: dimensions whose last tile may be cut short.
    """

    level: str
    tensor: str
    cut: tuple[str, ...] = ()


@final
@dataclass(frozen=True)
class MapperPolicy:
    """Preferences of a mapper.

    Attributes:
        objective: what is made small; "" = what the caller asks for, energy by default.
        first: memory whose traffic is made small before anything else; "" = none.
        round_up: dimension -> numbers; its loops may be those of the next multiple of one of them,
            the last iteration cut short.
        filling: what fills a memory before anything is made small; None = nothing does.
    """

    objective: Objective | None = None
    first: str = ""
    round_up: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    filling: Filling | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it prefers nothing that a plain search does not."""
        return not self.first and not self.round_up and self.filling is None


@final
@dataclass(frozen=True)
class _Start:
    """Sizes to search with, and the rules that hold for them.

    Attributes:
        moved: words of operands that the outermost memory reads, were all tiles to come anew.
    """

    sizes: Mapping[str, int]
    rules: Constraints
    moved: float = 0.0


def mapping_by_policy(
    einsum: Einsum,
    architecture: Architecture,
    constraints: Constraints,
    policy: MapperPolicy,
    objective: Objective,
    effort: int,
) -> Mapped:
    """The mapping that a policy prefers; of others nothing is proven.

    Raises:
        SilicastError: no mapping keeps to the constraints, or ``first`` is no memory.
    """
    judged = _weighted(architecture, policy.first)
    budget = budget_of(effort)
    best: tuple[float, Mapped] | None = None
    refused: SilicastError | None = None

    def tried(start: _Start, effort: int, budget: SearchBudget) -> tuple[float, Mapped]:
        result = best_mapping(
            replace(einsum, bounds=start.sizes),
            judged,
            start.rules,
            objective=objective,
            effort=effort,
            budget=budget,
            padding=policy.filling is None,
        )
        batch = MappingBatch.from_nest(result.nest, einsum, architecture)
        value = float(value_of(cost(einsum, judged, batch), objective)[0])
        return value, replace(result, cost=cost(einsum, architecture, batch))

    quick = EFFORT - 1 if policy.filling is None else QUICK
    chosen = _Start(einsum.bounds, constraints)
    for starts in _starts(einsum, architecture, constraints.on(einsum), policy):
        compared = 0
        for start in starts:
            try:
                item = tried(start, min(effort, quick), budget)
            except SilicastError as error:
                refused = refused or error
                continue
            compared += 1
            if best is None or item[0] < best[0]:
                best, chosen = item, start
            if policy.filling is not None and compared == MOST_STARTS:
                break
        if best is not None:
            break
    if best is None:
        raise refused or no_mapping(einsum, architecture, constraints)
    if effort >= EFFORT:
        best = min(best, tried(chosen, effort, budget_of(effort, 0.5)), key=lambda item: item[0])
    result = best[1]
    best_value = float(value_of(result.cost, objective)[0])
    return replace(result, value=best_value, bound=0.0, complete=False)


def _starts(
    einsum: Einsum, architecture: Architecture, rules: Constraints, policy: MapperPolicy
) -> Iterator[list[_Start]]:
    """Groups of starts; one of a later group is wanted only where none of the earlier maps."""
    rounded = _rounded(einsum, policy)
    if policy.filling is None:
        yield [_Start(sizes, rules) for sizes in rounded]
        return
    groups: dict[float, dict[object, _Start]] = {}
    for sizes in rounded:
        moving = einsum.tensor(policy.filling.tensor).dims
        added = math.prod(sizes[dim] / einsum.bounds[dim] for dim in moving)
        for words, start in _filled(replace(einsum, bounds=sizes), architecture, rules, policy):
            same = groups.setdefault(round(words / added, 3), {})
            same.setdefault((tuple(start.sizes.values()), start.moved), start)
    for words in sorted(groups, reverse=True):
        yield sorted(groups[words].values(), key=lambda start: start.moved)


def _filled(
    einsum: Einsum, architecture: Architecture, rules: Constraints, policy: MapperPolicy
) -> Iterator[tuple[float, _Start]]:
    """Tiles of the filling tensor that leave room for the others, and the words that they hold in
    the mean; a tile is what the outermost memory's loops leave of a dimension.
    """
    assert policy.filling is not None
    memory = next(each for each in architecture.memories if each.name == policy.filling.level)
    outermost = architecture.nodes[0].name
    outer = rules.rules.get((outermost, -1), NO_RULE)
    tensor = einsum.tensor(policy.filling.tensor)
    least = _least_tile(einsum, architecture, rules)
    others = [each for each in einsum.tensors if memory.must_keep(each.name) and each != tensor]
    moving = [dim for dim in einsum.dims if dim in tensor.dims]
    choices = [
        [
            (extent, math.ceil(einsum.bounds[dim] / extent))
            for extent in _extents(einsum.bounds[dim], dim in policy.filling.cut)
            if extent % least[dim] == 0
        ]
        for dim in moving
    ]
    for tiles in itertools.product(*choices):
        extents = {**least, **{dim: tile for dim, (tile, _) in zip(moving, tiles, strict=True)}}
        sizes = np.array([float(each.size(extents)) for each in (tensor, *others)])
        if memory.taken(sizes).sum() > memory.usable_words:
            continue
        turns = {dim: count for dim, (_, count) in zip(moving, tiles, strict=True)}
        whole = {dim: extents[dim] * count for dim, count in turns.items()}
        share = math.prod(einsum.bounds[dim] / size for dim, size in whole.items())
        rule = replace(outer, fixed={**outer.fixed, **turns})
        moved = sum(
            each.size(extents | {d: s for d, s in einsum.bounds.items() if d not in turns})
            * math.prod(turns.values())
            for each in einsum.tensors
            if not each.is_output
        )
        start = _Start(
            {**einsum.bounds, **whole},
            replace(rules, rules={**rules.rules, (outermost, -1): rule}),
            moved,
        )
        yield float(sizes[0]) * share, start


def _extents(size: int, may_be_cut: bool) -> list[int]:
    """Tiles of a dimension: what divides it, or of every number of turns the smallest."""
    if may_be_cut:
        return sorted({math.ceil(size / turns) for turns in range(1, size + 1)})
    return [extent for extent in range(1, size + 1) if size % extent == 0]


def _least_tile(einsum: Einsum, architecture: Architecture, rules: Constraints) -> dict[str, int]:
    """What rules fix of each dimension inside the outermost memory."""
    tile = dict.fromkeys(einsum.dims, 1)
    for slot in range(1, len(architecture.slots)):
        for dim, bound in rules.rule(architecture, slot).fixed.items():
            if dim in tile:
                tile[dim] = min(tile[dim] * bound, einsum.bounds[dim])
    return tile


def _rounded(einsum: Einsum, policy: MapperPolicy) -> Iterator[dict[str, int]]:
    """Sizes to search with: each dimension as it is, or rounded up."""
    choices = []
    for dim, size in einsum.bounds.items():
        wider = {size}
        for number in policy.round_up.get(dim, ()):
            more = math.ceil(size / number) * number
            if more <= size * MOST_ADDED:
                wider.add(more)
        choices.append(sorted(wider))
    for sizes in itertools.product(*choices):
        yield dict(zip(einsum.dims, sizes, strict=True))


def _weighted(architecture: Architecture, first: str) -> Architecture:
    if not first:
        return architecture
    if first not in {memory.name for memory in architecture.memories}:
        raise SilicastError(
            f"no memory called {first!r}",
            field="policy.first",
            hint=f"there are {', '.join(memory.name for memory in architecture.memories)}",
        )

    def heavy(memory: Memory) -> Memory:
        def times(energy: float | None) -> float | None:
            return None if energy is None else energy * FIRST

        return replace(
            memory,
            read_pj=times(memory.read_pj),
            fill_pj=times(memory.fill_pj),
            update_pj=times(memory.update_pj),
        )

    return replace(
        architecture,
        nodes=tuple(
            heavy(node) if isinstance(node, Memory) and node.name == first else node
            for node in architecture.nodes
        ),
    )
