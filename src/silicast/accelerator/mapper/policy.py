"""How a chip's own mapper chooses: what it makes small first, and which loops it cuts short.

Constraints say what is possible on a chip; a policy says what is preferred among that. An
architecture file has it in ``[policy]``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import final

from silicast.accelerator.counting.cost import Objective, cost, value_of
from silicast.accelerator.counting.einsum import Einsum
from silicast.accelerator.counting.mapping import MappingBatch
from silicast.accelerator.design.architecture import Architecture, Memory
from silicast.accelerator.mapper.budget import EFFORT, SearchBudget, budget_of
from silicast.accelerator.mapper.constraints import Constraints
from silicast.accelerator.mapper.mapper import Mapped, best_mapping
from silicast.core.errors import SilicastError

FIRST = 100.0
"""Times that an access counts which is made rare first: more than any other saving outweighs."""

MOST_ADDED = 1.15
"""Largest size that a dimension is searched with, relative to its own."""


@final
@dataclass(frozen=True)
class MapperPolicy:
    """Preferences of a mapper.

    Attributes:
        objective: what is made small; "" = what the caller asks for, energy by default.
        first: memory whose traffic is made small before anything else; "" = none.
        round_up: dimension -> numbers; its loops may be those of the next multiple of one of them,
            the last iteration cut short.
    """

    objective: Objective | None = None
    first: str = ""
    round_up: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def is_plain(self) -> bool:
        """Whether it prefers nothing that a plain search does not."""
        return not self.first and not self.round_up


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

    def tried(sizes: Mapping[str, int], effort: int, budget: SearchBudget) -> tuple[float, Mapped]:
        result = best_mapping(
            replace(einsum, bounds=sizes),
            judged,
            constraints,
            objective=objective,
            effort=effort,
            budget=budget,
        )
        batch = MappingBatch.from_nest(result.nest, einsum, architecture)
        value = float(value_of(cost(einsum, judged, batch), objective)[0])
        return value, replace(result, cost=cost(einsum, architecture, batch))

    chosen: Mapping[str, int] = einsum.bounds
    for sizes in _rounded(einsum, policy):
        try:
            item = tried(sizes, min(effort, EFFORT - 1), budget)
        except SilicastError as error:
            refused = refused or error
            continue
        if best is None or item[0] < best[0]:
            best, chosen = item, sizes
    if best is None:
        assert refused is not None
        raise refused
    if effort >= EFFORT:
        best = min(best, tried(chosen, effort, budget_of(effort, 0.5)), key=lambda item: item[0])
    result = best[1]
    current = float(value_of(result.cost, objective)[0])
    return replace(result, value=current, bound=0.0, complete=False)


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
