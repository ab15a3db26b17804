"""Searched mappings: those that a design's file holds, and those of sizes of the grid."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from silicast.accelerator.counting.cost import Objective
from silicast.accelerator.counting.einsum import Einsum
from silicast.accelerator.counting.least_time import time_gap
from silicast.accelerator.counting.mapping import Loop, LoopNest, MappingBatch
from silicast.accelerator.counting.problems import ProblemShape
from silicast.accelerator.design.architecture_file import StoredTable
from silicast.accelerator.design.chip import Chip
from silicast.accelerator.mapper.cached_mappings import cached_mapping
from silicast.accelerator.mapper.mapper import Mapped, best_mapping
from silicast.accelerator.mapper.template import Template
from silicast.accelerator.zeros.density import (
    Densities,
    changes_anything,
    in_words,
    with_known_densities,
)
from silicast.accelerator.zeros.zero_mapping import mapped_zeros
from silicast.core.errors import SilicastError
from silicast.core.numerics import F64

EFFORT = 2_000
"""Partial mappings that are tried for a size of the grid: enough to find what far more of them only
prove (docs/explanation/accelerators.md)."""
ENOUGH = 0.05
"""A mapping that is proven to be this close to the best is not improved."""


@lru_cache(maxsize=8192)
def template_of(
    chip: Chip,
    problem: ProblemShape,
    sizes: tuple[int, ...],
    compute: str,
    bits: float,
    densities: Densities = (),
) -> Template:
    """The searched mapping of one size.

    Raises:
        SilicastError: no mapping fits.
    """
    return template_from(chip, searched(chip, problem, sizes, compute, bits, EFFORT, densities))


def searches() -> int:
    """How many mappings of the grid this process has searched."""
    return template_of.cache_info().misses


def template_from(chip: Chip, mapped: Mapped) -> Template:
    """The template of a mapping that a search returned."""
    arch, einsum = mapped.cost.architecture, mapped.cost.einsum
    batch = MappingBatch.from_nest(mapped.nest, einsum, arch)
    return Template(einsum, arch, chip.rules, batch, _floats(einsum), time_gap(mapped.cost))


def searched(
    chip: Chip,
    problem: ProblemShape,
    sizes: tuple[int, ...],
    compute: str,
    bits: float,
    effort: int,
    densities: Densities = (),
) -> Mapped:
    """The best mapping of one size that ``effort`` partial mappings find: least energy times time,
    or least time where energies are not stated.

    Args:
        densities: of the tensors, by which mappings are searched; () = as if nothing were zero.

    Raises:
        SilicastError: no mapping fits.
    """
    arch = chip.in_format(compute, bits)
    einsum = problem.einsum(dict(zip(problem.dims, sizes, strict=True)))
    einsum = with_known_densities(einsum, densities)
    objective: Objective = "latency" if chip.missing_energy else "edp"
    if changes_anything(arch, densities):
        return mapped_zeros(einsum, arch, chip.rules, objective, effort)
    how = (chip.rules, objective, effort, ENOUGH)
    return cached_mapping(
        einsum,
        arch,
        how,
        lambda: best_mapping(
            einsum, arch, chip.rules, objective=objective, effort=effort, gap=ENOUGH
        ),
    )


def _floats(einsum: Einsum) -> F64:
    return np.array([float(size) for size in einsum.bounds.values()])


@lru_cache(maxsize=1024)
def stored_templates(
    chip: Chip, problem: ProblemShape, compute: str, bits: float, densities: Densities = ()
) -> tuple[Template, ...]:
    """What was compiled for a problem; where some of it is for these densities, only that.

    Raises:
        SilicastError: a stored mapping does not belong to its design.
    """
    templates = []
    arch = chip.in_format(compute, bits)
    matching, others = _tables_of(chip, problem, compute, bits, densities)
    for number, table in matching or others:
        try:
            einsum = problem.einsum(table.sizes)
            batch = MappingBatch.from_nest(nest_of(table), einsum, arch)
        except (SilicastError, KeyError, ValueError) as error:
            raise SilicastError(
                f"does not belong to this design: {error}",
                field=f"mapping[{number}]",
                hint="compile the design anew",
            ) from None
        templates.append(Template(einsum, arch, chip.rules, batch, _floats(einsum), table.gap))
    return tuple(templates)


def is_compiled_for(
    chip: Chip, problem: ProblemShape, compute: str, bits: float, densities: Densities
) -> bool:
    """Whether some of :func:`stored_templates` are for these densities; others stand in, if not."""
    return bool(_tables_of(chip, problem, compute, bits, densities)[0])


def _tables_of(
    chip: Chip, problem: ProblemShape, compute: str, bits: float, densities: Densities
) -> tuple[list[tuple[int, StoredTable]], list[tuple[int, StoredTable]]]:
    """What a file stores for a problem, with its place: for these densities, and for others."""
    key, density = (key_of(problem), compute, bits), dict(in_words(densities))
    matching, others = list[tuple[int, StoredTable]](), list[tuple[int, StoredTable]]()
    for number, table in enumerate(chip.stored):
        if (table.op, table.format, table.bits) == key:
            (matching if table.density == density else others).append((number, table))
    return matching, others


def key_of(problem: ProblemShape) -> str:
    """The name of a problem in a file.

    >>> key_of(ProblemShape("conv2d", stride=2))
    'conv2d/2/1'
    """
    if problem.stride == problem.dilation == 1:
        return problem.op
    return f"{problem.op}/{problem.stride}/{problem.dilation}"


def nest_of(table: StoredTable) -> LoopNest:
    """The loops of a stored mapping."""
    loops = []
    for text in table.loops:
        position, dim, bound = text.split()
        name, _, axis = position.partition("@")
        loops.append(Loop(name, dim, int(bound), int(axis) if axis else -1))
    return LoopNest(
        tuple(loops), {name: frozenset(tensors) for name, tensors in table.keeps.items()}
    )


def loops_text(nest: LoopNest) -> tuple[str, ...]:
    """The loops as a file has them."""
    return tuple(
        f"{loop.slot}{f'@{loop.axis}' if loop.axis >= 0 else ''} {loop.dim} {loop.bound}"
        for loop in nest.loops
    )
