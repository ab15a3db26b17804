"""Costs of sizes that were not searched: the best of a few searched mappings, cut and stretched
(:mod:`~silicast.accelerator.mapper.template`) and counted exactly
(:mod:`~silicast.accelerator.counting.closed_form`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from silicast.accelerator.counting.closed_form import FormulaLayout, Nest, closed_form, row_of
from silicast.accelerator.counting.formula import Compiled
from silicast.accelerator.counting.problems import ProblemShape
from silicast.accelerator.design.chip import Chip
from silicast.accelerator.mapper.stored import is_compiled_for, stored_templates, template_of
from silicast.accelerator.mapper.template import Template
from silicast.accelerator.zeros.density import Densities, changes_anything, with_densities
from silicast.accelerator.zeros.zero_mapping import cost_without_zeros
from silicast.core import xp
from silicast.core.errors import SilicastError
from silicast.core.numerics import F64, I64

Number = Any
"""A number, or an array of one for every row."""
CHUNK = 2048
"""Sizes whose nearest mappings are looked for together: what is between stays in the cache."""
FEW_ROWS = 12
"""Up to so many sizes each is counted alone, in numbers, with the same result."""
NEAREST = 2
"""Stored mappings that are tried for a size."""


@final
@dataclass(frozen=True)
class Asked:
    """Sizes of one problem that somebody asked for.

    Attributes:
        problem, compute, bits: see :func:`.stored.template_of`.
        sizes: (dims, rows).
        densities: of the tensors.
    """

    problem: ProblemShape
    compute: str
    bits: float
    sizes: F64
    densities: Densities = ()

    def origin(self, chip: Chip) -> str:
        """Where the mapping of one size comes from, in words."""
        sizes = self.sizes[:, :1]
        requested = (chip, self.problem, self.compute, self.bits, self.densities)
        stored = stored_templates(*requested)
        if any((each.sizes == sizes[:, 0]).all() for each in stored):
            compiled = is_compiled_for(*requested)
            return f"a mapping as compiled, for this very size{'' if compiled else OTHER_DENSITIES}"
        if not stored and (self.problem.grid(sizes) == sizes).all():
            return "a mapping searched at this very size"
        source = "compiled" if stored else "searched on a grid of sizes"
        return (
            f"a mapping re-factored from those {source}, not searched at this size "
            "(`silicast design map` does)"
        )


OTHER_DENSITIES = " and other densities (`silicast design compile` of this [density] adds its own)"
_ASKED: ContextVar[list[Asked] | None] = ContextVar("asked", default=None)


@contextmanager
def listening() -> Iterator[list[Asked]]:
    """Inside, all sizes whose costs are asked for are noted."""
    noted: list[Asked] = []
    token = _ASKED.set(noted)
    try:
        yield noted
    finally:
        _ASKED.reset(token)


@final
@dataclass(frozen=True)
class Counted:
    """Costs of many sizes of one problem.

    Attributes:
        layout: what the rows of ``values`` are.
        values: (results, rows); of one size that was given as numbers, a list of numbers.
    """

    layout: FormulaLayout
    values: Sequence[Number] | F64

    @property
    def cycles(self) -> Number:
        return self.values[FormulaLayout.CYCLES]

    @property
    def unit_cycles(self) -> Number:
        return self.values[FormulaLayout.UNIT_CYCLES]

    @property
    def march_cycles(self) -> Number:
        return self.values[FormulaLayout.MARCH_CYCLES]

    @property
    def loading_cycles(self) -> Number:
        return self.values[FormulaLayout.LOADING_CYCLES]

    @property
    def exposed_cycles(self) -> Number:
        return self.values[FormulaLayout.EXPOSED_CYCLES]

    @property
    def energy_pj(self) -> Number:
        """All accesses, multiplications, hops and leakage."""
        return self.values[FormulaLayout.ENERGY]

    @property
    def port_cycles(self) -> dict[tuple[str, str], Number]:
        """(memory, port) -> cycles."""
        return dict(zip(self.layout.ports, self.values[FormulaLayout.PORTS :], strict=False))

    @property
    def level_words(self) -> Sequence[Number] | F64:
        """Words through each memory."""
        return self.values[self.layout.levels : self.layout.main]

    @property
    def main_words(self) -> Sequence[Number] | F64:
        """Words that leave and reach main memory, of each tensor."""
        return self.values[self.layout.main :]

    @staticmethod
    def joined(parts: Sequence[tuple[I64, Counted]]) -> Counted:
        """Costs of some rows and of the others, in the order of the rows."""
        if len(parts) == 1:
            return parts[0][1]
        layout = parts[0][1].layout
        values = np.empty((layout.size, sum(len(rows) for rows, _ in parts)))
        for rows, part in parts:
            values[:, rows] = part.values
        return Counted(layout, values)


@final
@dataclass(frozen=True, eq=False)
class SearchedProblem:
    """A problem on a chip in one format: its searched mappings and their formulas.

    Attributes:
        chip, problem, compute, bits: see :func:`.stored.template_of`.
        shares: of an element's bits, what each tensor's takes; () = all of them.
        densities: of its tensors; those that are not there are dense.
    """

    chip: Chip
    problem: ProblemShape
    compute: str
    bits: float
    shares: tuple[float, ...]
    densities: Densities = ()

    @cached_property
    def layout(self) -> FormulaLayout:
        """The order of its results."""
        sizes = dict.fromkeys(self.problem.dims, 2)
        return FormulaLayout.from_einsum(
            self.chip.in_format(self.compute, self.bits), self.problem.einsum(sizes)
        )

    @cached_property
    def stored(self) -> tuple[Template, ...]:
        """Mappings that were compiled for the chip."""
        return stored_templates(self.chip, self.problem, self.compute, self.bits, self.densities)

    @cached_property
    def leaves_zeros_out(self) -> bool:
        """Whether each size is counted without its zeros, instead of by formulas.

        Raises:
            SilicastError: a density that is none.
        """
        arch = self.chip.in_format(self.compute, self.bits)
        return changes_anything(arch, self.densities)

    def without_zeros(
        self, template: Template, sizes: Sequence[float], main_shares: Sequence[float]
    ) -> list[float]:
        """Costs of a mapping at a size, in the order of :attr:`layout`.

        Raises:
            SilicastError: what describes its tiles does not fit, or a density is not of its tensor.
        """
        whole = [math.ceil(size) for size in sizes]
        einsum = self.problem.einsum(dict(zip(self.problem.dims, whole, strict=True)))
        einsum = with_densities(einsum, dict(self.densities))
        column = np.array([[float(size)] for size in whole])
        cost = cost_without_zeros(template, einsum, column, self.shares, main_shares)
        return [float(value[0]) for value in row_of(cost)]

    @cached_property
    def _sizes(self) -> list[tuple[list[float], list[int]]]:
        """Of each dimension: sizes that are stored, and which of them each mapping has."""
        sizes = []
        for dim in range(len(self.problem.dims)):
            stored_sizes = [float(each.sizes[dim]) for each in self.stored]
            distinct = sorted(set(stored_sizes))
            sizes.append((distinct, [distinct.index(size) for size in stored_sizes]))
        return sizes

    @cached_property
    def formulas(self) -> dict[Nest, Compiled]:
        """Costs of the nests that occurred."""
        return {}

    def formula(self, template: Template, nest: Nest) -> Compiled:
        """Costs of mappings of a nest."""
        compiled = self.formulas.get(nest)
        if compiled is None:
            compiled = self.formulas[nest] = closed_form(template.einsum, template.arch, nest)
        return compiled

    def far(self, sizes: Sequence[Number]) -> list[Number]:
        """How far each stored mapping is: the product of ratios of its sizes and those."""
        numbers: list[Number] = []
        for (distinct, which), size in zip(self._sizes, sizes, strict=True):
            ratios = [xp.maximum(size / item, item / size) for item in distinct]
            if not numbers:
                numbers = [ratios[n] for n in which]
            else:
                numbers = [x * ratios[n] for x, n in zip(numbers, which, strict=True)]
        return numbers

    def nearest(self, sizes: F64) -> I64:
        """Stored mappings nearest to each size, (few, rows), the nearest first; of two that are as
        near the one that is stored first.
        """
        few = min(NEAREST, len(self.stored))
        nearest = np.empty((few, sizes.shape[1]), dtype=np.int64)
        for start in range(0, sizes.shape[1], CHUNK):
            rows = slice(start, start + CHUNK)
            nearest[:, rows] = _least(np.stack(self.far(list(sizes[:, rows]))), few)
        return nearest

    def nearest_to(self, sizes: Sequence[float]) -> list[Template]:
        """As :meth:`templates`, of one size, each once.

        Raises:
            SilicastError: no mapping fits.
        """
        if not self.stored:
            column = np.array(sizes)[:, None]
            every, chosen = self.templates(column)
            nearest = [every[n] for n in dict.fromkeys(chosen[:, 0].tolist())]
            return [*self._without_zeros(column), *nearest]
        far = self.far(sizes)
        return [self.stored[n] for n in sorted(range(len(far)), key=far.__getitem__)[:NEAREST]]

    def _without_zeros(self, sizes: F64) -> list[Template]:
        """The mapping of the grid's size nearest to one, searched by what its densities leave."""
        if not self.leaves_zeros_out or not self.densities:
            return []
        key = tuple(self.problem.grid(sizes)[:, 0].tolist())
        try:
            return [
                template_of(self.chip, self.problem, key, self.compute, self.bits, self.densities)
            ]
        except SilicastError as error:
            if error.kind != "unsupported":
                raise
            return []

    def templates(self, sizes: F64) -> tuple[list[Template], I64]:
        """Mappings to try, and which of them for each size, (few, rows); of two that are the same
        both stand there.

        Raises:
            SilicastError: no mapping fits.
        """
        if self.stored:
            return list(self.stored), self.nearest(sizes)
        cells = [self.problem.grid(sizes, way) for way in (0, 1)]
        keys, where = np.unique(np.concatenate(cells, axis=1), axis=1, return_inverse=True)
        distinct = [
            template_of(self.chip, self.problem, tuple(key), self.compute, self.bits)
            for key in keys.T.tolist()
        ]
        return distinct, where.reshape(2, -1)


@lru_cache(maxsize=512)
def work_of(
    chip: Chip,
    problem: ProblemShape,
    compute: str,
    bits: float,
    shares: tuple[float, ...],
    densities: Densities,
) -> SearchedProblem:
    """The one :class:`SearchedProblem` of these."""
    return SearchedProblem(chip, problem, compute, bits, shares, densities)


def counted(
    chip: Chip,
    problem: ProblemShape,
    sizes: Sequence[Number] | F64,
    compute: str,
    bits: float,
    shares: tuple[float, ...] = (),
    main_shares: Sequence[Number] | F64 | None = None,
    densities: Densities = (),
) -> Counted:
    """Costs of every size.

    Args:
        sizes: of each dimension, shape (rows,) or a number.
        shares: of an element's bits, what each tensor's takes; () = all of them.
        main_shares: of the words of each tensor between main memory and the chip, those that
            really move, as ``sizes``: unrolled windows, results that stay.
        densities: of the tensors, where the chip leaves zeros out.

    Raises:
        SilicastError: no mapping fits.
    """
    work = work_of(chip, problem, compute, bits, shares, densities)
    if (requested := _ASKED.get()) is not None:
        columns = np.array(sizes).reshape(len(sizes), -1)
        requested.append(Asked(problem, compute, bits, columns, densities))
    if sizes[0].__class__ is not np.ndarray:
        shares_of_main = () if main_shares is None else tuple(main_shares)
        return Counted(work.layout, _of_one(work, tuple(sizes), shares_of_main))
    if len(sizes[0]) <= FEW_ROWS or work.leaves_zeros_out:
        row_shares = [()] * len(sizes[0]) if main_shares is None else _columns(main_shares)
        every = [_of_one(work, *each) for each in zip(_columns(sizes), row_shares, strict=True)]
        return Counted(work.layout, np.array(every).T)
    return _of_rows(work, np.stack(list(sizes)), main_shares)


def _columns(rows: Sequence[F64] | F64) -> list[tuple[float, ...]]:
    return list(zip(*(each.tolist() for each in rows), strict=True))


@lru_cache(maxsize=16384)
def _of_one(
    work: SearchedProblem, sizes: tuple[float, ...], main_shares: tuple[float, ...]
) -> list[float]:
    """Costs of one size, in numbers; main memory's shares are of each tensor, () = all.

    Raises:
        SilicastError: none of the nearest mappings fits; of the first, what does not.
    """
    best: list[float] = []
    least, refused = math.inf, list[SilicastError]()
    for template in work.nearest_to(sizes):
        try:
            values = _of_template(work, template, sizes, main_shares)
        except SilicastError as error:
            if error.kind != "unsupported":
                raise
            refused.append(error)
            continue
        merit = values[FormulaLayout.CYCLES] * max(values[FormulaLayout.ENERGY], 1.0)
        if merit < least or not best:
            best, least = values, merit
    if not best:
        raise refused[0]
    return best


def _of_template(
    work: SearchedProblem,
    template: Template,
    sizes: tuple[float, ...],
    main_shares: tuple[float, ...],
) -> list[float]:
    """Costs of one size by one mapping."""
    if work.leaves_zeros_out:
        return work.without_zeros(template, sizes, main_shares)
    fitted = template.fitted(sizes)
    loops = tuple([position for position in template.places if fitted.get(position, 1.0) > 1.0])
    nest = Nest(loops, template.batch.keep, work.shares, bool(main_shares))
    inputs = [*sizes, *[fitted[position] for position in loops], *main_shares]
    return work.formula(template, nest).evaluate(inputs)


def _of_rows(work: SearchedProblem, sizes: F64, main_shares: Sequence[F64] | F64 | None) -> Counted:
    """Costs of many sizes, (dims, rows)."""
    templates, chosen = work.templates(sizes)
    few, rows = chosen.shape
    columns = sizes if main_shares is None else np.concatenate([sizes, np.stack(list(main_shares))])
    order = np.argsort(chosen.reshape(-1).astype(np.int16), kind="stable")
    ends = np.searchsorted(chosen.reshape(-1)[order], np.arange(len(templates) + 1)).tolist()
    groups: dict[Nest, list[tuple[Template, I64, F64, F64]]] = {}
    for template, pair in zip(templates, itertools.pairwise(ends), strict=True):
        if pair[0] < pair[1]:
            at = order[slice(*pair)]
            for part in _by_nest(work, template, columns[:, at % rows], main_shares is not None):
                nest, item, inputs, bounds = part
                groups.setdefault(nest, []).append((template, at[item], inputs, bounds))
    every = np.empty((work.layout.size, few * rows))
    position = np.empty(few * rows, dtype=np.int64)
    start = 0
    for nest, parts in groups.items():
        at = _together([rows for _, rows, _, _ in parts])
        inputs = _together([item for _, _, item, _ in parts])
        bounds = _together([item for *_, item in parts])
        end = start + len(at)
        values = [*inputs[: len(sizes)], *bounds, *inputs[len(sizes) :]]
        for result, value in enumerate(work.formula(parts[0][0], nest).evaluate(values)):
            every[result, start:end] = value
        position[at] = np.arange(start, end)
        start = end
    if few == 1:
        return Counted(work.layout, every[:, position])
    position = position.reshape(few, rows)
    merit = every[FormulaLayout.CYCLES] * np.maximum(every[FormulaLayout.ENERGY], 1.0)
    best = np.argmin(merit[position], axis=0)
    return Counted(work.layout, every[:, position[best, np.arange(rows)]])


def _by_nest(
    work: SearchedProblem, template: Template, columns: F64, less_of_main: bool
) -> Iterator[tuple[Nest, I64, F64, F64]]:
    """Rows for which the loops of one template that turn are the same.

    Yields:
        the nest, its rows, their sizes and shares, and the bounds of its loops, (loops, rows).
    """
    fitted = template.fitted(list(columns[: len(work.problem.dims)]))
    indices = [position for position in template.places if position in fitted]
    bounds = np.empty((len(indices), columns.shape[1]))
    for n, position in enumerate(indices):
        bounds[n] = fitted[position]
    for turning, rows in _patterns(bounds > 1.0):
        loops = tuple([indices[n] for n in turning.tolist()])
        nest = Nest(loops, template.batch.keep, work.shares, less_of_main)
        yield nest, rows, columns[:, rows], bounds[turning[:, None], rows]


def _together(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)


def _least(values: F64, few: int) -> I64:
    """Which of the values are the least of each row, (few, rows), the least first."""
    least = np.empty((few, values.shape[1]), dtype=np.int64)
    rows = np.arange(values.shape[1])
    for n in range(few):
        least[n] = np.argmin(values, axis=0)
        values[least[n], rows] = np.inf
    return least


def _patterns(turning: NDArray[np.bool_]) -> list[tuple[I64, I64]]:
    """Columns that are alike, (loops, rows): the loops that turn, and the rows of each pattern."""
    differ = turning[turning.any(axis=1) & ~turning.all(axis=1)]
    if not len(differ):
        return [(np.flatnonzero(turning[:, 0]), np.arange(turning.shape[1]))]
    packed = np.packbits(differ, axis=0)
    wide = np.zeros((len(packed) + len(packed) % 2, packed.shape[1]), dtype=np.uint8)
    wide[: len(packed)] = packed
    keys = np.ascontiguousarray(wide.T).view(np.uint16)
    order = np.lexsort(keys.T) if keys.shape[1] > 1 else np.argsort(keys[:, 0], kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero((ordered[1:] != ordered[:-1]).any(axis=1)) + 1
    ends = [0, *starts.tolist(), len(order)]
    return [
        (np.flatnonzero(turning[:, order[start]]), order[start:end])
        for start, end in itertools.pairwise(ends)
    ]
