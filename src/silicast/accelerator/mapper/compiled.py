"""Mappings of all sizes that a model needs, searched once and stored in the architecture file.

The file is the design's own with ``[[mapping]]`` tables at its end: it works wherever a design
does. Sizes that it does not hold are re-factored from the nearest that it holds
(:mod:`~silicast.accelerator.mapper.refit`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import final

import msgspec
import numpy as np

from silicast.accelerator.counting.least_time import time_gap
from silicast.accelerator.counting.problems import ProblemShape
from silicast.accelerator.design.architecture_file import StoredTable
from silicast.accelerator.design.chip import Chip
from silicast.accelerator.mapper.mapper import Mapped
from silicast.accelerator.mapper.refit import Asked
from silicast.accelerator.mapper.stored import EFFORT as UNCOMPILED
from silicast.accelerator.mapper.stored import key_of, loops_text, searched
from silicast.accelerator.zeros.density import in_words
from silicast.core.numerics import F64, I64

FEW = 12
"""A dimension that takes more values than this among a problem's sizes is stored on the grid."""
EFFORT = 10_000
"""Partial mappings that are tried for each size: what far more of them find is 17 % better at most
on the layers that were compared, for three times as long."""
MARK = "# Mappings that `silicast design compile` found."

Words = tuple[tuple[str, str], ...]
"""(tensor, density)."""


@final
class Wanted(msgspec.Struct, frozen=True, order=True):
    """One mapping that is to be searched; dimensions as of its problem."""

    op: str
    stride: int
    dilation: int
    compute: str
    bits: float
    sizes: tuple[int, ...]
    densities: Words = ()

    @property
    def problem(self) -> ProblemShape:
        """What it is a mapping of."""
        return ProblemShape(self.op, self.stride, self.dilation)


def wanted(requested: Iterable[Asked]) -> list[Wanted]:
    """The sizes to search for: those that were asked for, with dimensions of many values (tokens,
    cached keys) on the grid, sorted.
    """
    groups: dict[tuple[ProblemShape, str, float, Words], list[F64]] = {}
    for each in requested:
        key = (each.problem, each.compute, each.bits, in_words(each.densities))
        groups.setdefault(key, []).append(each.sizes)
    wanteds: set[Wanted] = set()
    for (problem, compute, bits, densities), parts in groups.items():
        sizes = np.unique(np.concatenate(parts, axis=1), axis=1)
        grid = problem.grid(sizes)
        for dim in range(len(sizes)):
            if len(np.unique(sizes[dim])) > FEW:
                sizes[dim] = grid[dim]
        columns: I64 = np.unique(sizes, axis=1).astype(np.int64)
        wanteds |= {
            Wanted(
                problem.op,
                problem.stride,
                problem.dilation,
                compute,
                bits,
                tuple(column),
                densities,
            )
            for column in columns.T.tolist()
        }
    return sorted(wanteds)


def compiled(
    chip: Chip,
    work: Iterable[Wanted],
    effort: int = EFFORT,
    before_each: Callable[[Wanted], None] | None = None,
) -> list[StoredTable]:
    """Searches every mapping, and takes none that is worse than what is found without a file.

    Args:
        before_each: called with each before it is searched.

    Raises:
        SilicastError: one does not fit.
    """
    tables = []
    for each in work:
        if before_each is not None:
            before_each(each)
        result = min(
            (_found(chip, each, e) for e in sorted({effort, UNCOMPILED})), key=lambda r: r.value
        )
        nest = result.nest
        tables.append(
            StoredTable(
                op=key_of(each.problem),
                bits=each.bits,
                format=each.compute,
                sizes=dict(zip(each.problem.dims, each.sizes, strict=True)),
                loops=loops_text(nest),
                keeps={name: tuple(sorted(tensors)) for name, tensors in nest.keeps.items()},
                gap=time_gap(result.cost),
                density=dict(each.densities),
            )
        )
    return tables


def _found(chip: Chip, each: Wanted, effort: int) -> Mapped:
    return searched(chip, each.problem, each.sizes, each.compute, each.bits, effort, each.densities)


def with_mappings(text: str, tables: Iterable[StoredTable]) -> str:
    """The text of an architecture file with these mappings in place of those that it holds.

    >>> print(with_mappings('name = "chip"', []).splitlines()[0])
    name = "chip"
    """
    rstrip = text.partition(MARK)[0].rstrip()
    return "\n".join([rstrip, "", MARK, *(_text(table) for table in tables), ""])


def _text(table: StoredTable) -> str:
    sizes = ", ".join(f"{name} = {size}" for name, size in table.sizes.items())
    return "\n".join(
        [
            "",
            "[[mapping]]",
            f'op = "{table.op}"',
            f'format = "{table.format}"',
            f"bits = {table.bits!r}",
            f"gap = {table.gap!r}",
            f"sizes = {{ {sizes} }}",
            f"loops = [{_list(table.loops)}]",
            f"keeps = {{ {_keeps(table.keeps)} }}",
            *([f"density = {{ {_density(table.density)} }}"] if table.density else []),
        ]
    )


def _density(words: Mapping[str, str]) -> str:
    return ", ".join(f'"{name}" = "{value}"' for name, value in words.items())


def _keeps(keeps: Mapping[str, tuple[str, ...]]) -> str:
    return ", ".join(f'"{name}" = [{_list(tensors)}]' for name, tensors in keeps.items())


def _list(words: Iterable[str]) -> str:
    return ", ".join(f'"{word}"' for word in words)
