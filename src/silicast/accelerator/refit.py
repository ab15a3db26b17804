"""Costs of sizes that were not searched: the best of a few searched mappings, cut and stretched
(:mod:`.template`) and counted exactly (:mod:`.closed_form`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from silicast.accelerator.chip import Chip
from silicast.accelerator.closed_form import Layout, Nest, closed_form
from silicast.accelerator.formula import Compiled
from silicast.accelerator.problems import Problem
from silicast.accelerator.stored import stored_templates, template_of
from silicast.accelerator.template import Template
from silicast.core.numerics import F64, I64

Number = Any
"""A number, or an array of one for every row."""
NEAREST = 3
"""Stored mappings that are tried for a size."""


@final
@dataclass(frozen=True)
class Asked:
    """Sizes of one problem that somebody asked for.

    Attributes:
        problem, compute, bits: see :func:`.stored.template_of`.
        sizes: (dims, rows).
    """

    problem: Problem
    compute: str
    bits: float
    sizes: F64


_ASKED: ContextVar[list[Asked] | None] = ContextVar("asked", default=None)


@contextmanager
def listening() -> Iterator[list[Asked]]:
    """Inside, all sizes whose costs are asked for are noted."""
    found: list[Asked] = []
    token = _ASKED.set(found)
    try:
        yield found
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

    layout: Layout
    values: Sequence[Number]

    @property
    def cycles(self) -> Number:
        """Of the whole."""
        return self.values[Layout.CYCLES]

    @property
    def unit_cycles(self) -> Number:
        """Of the compute units alone."""
        return self.values[Layout.UNIT_CYCLES]

    @property
    def energy_pj(self) -> Number:
        """All accesses, multiplications, hops and leakage."""
        return self.values[Layout.ENERGY]

    @property
    def port_cycles(self) -> dict[tuple[str, str], Number]:
        """(memory, port) -> cycles."""
        return dict(zip(self.layout.ports, self.values[Layout.PORTS :], strict=False))

    @property
    def level_words(self) -> Sequence[Number]:
        """Words through each memory."""
        return self.values[self.layout.levels : self.layout.main]

    @property
    def main_words(self) -> Sequence[Number]:
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
class Work:
    """A problem on a chip in one format: its searched mappings and their formulas.

    Attributes:
        chip, problem, compute, bits: see :func:`.stored.template_of`.
        shares: of an element's bits, what each tensor's takes; () = all of them.
    """

    chip: Chip
    problem: Problem
    compute: str
    bits: float
    shares: tuple[float, ...]

    @cached_property
    def layout(self) -> Layout:
        """The order of its results."""
        sizes = dict.fromkeys(self.problem.dims, 2)
        return Layout.of(self.chip.in_format(self.compute, self.bits), self.problem.einsum(sizes))

    @cached_property
    def stored(self) -> tuple[Template, ...]:
        """What was compiled for it."""
        return stored_templates(self.chip, self.problem, self.compute, self.bits)

    @cached_property
    def _inverse(self) -> tuple[F64, F64]:
        sizes = np.stack([each.sizes for each in self.stored], axis=1)
        return sizes, 1.0 / sizes

    @cached_property
    def formulas(self) -> dict[Nest, Compiled]:
        """Costs of the nests that occurred."""
        return {}

    def formula(self, template: Template, nest: Nest) -> Compiled:
        """Costs of mappings of a nest."""
        found = self.formulas.get(nest)
        if found is None:
            found = self.formulas[nest] = closed_form(template.einsum, template.arch, nest)
        return found

    def nearest(self, sizes: F64) -> I64:
        """Stored mappings nearest to each size by the sum of ratios, (few, rows), ascending."""
        far = np.ones((len(self.stored), sizes.shape[1]))
        for own, inverse, size in zip(*self._inverse, sizes, strict=True):
            far *= np.maximum(size * inverse[:, None], own[:, None] / size)
        few = min(NEAREST, len(self.stored))
        found = np.empty((few, sizes.shape[1]), dtype=np.int64)
        rows = np.arange(sizes.shape[1])
        for n in range(few):
            found[n] = np.argmin(far, axis=0)
            far[found[n], rows] = np.inf
        return np.sort(found, axis=0)

    @cached_property
    def _stored_sizes(self) -> list[tuple[list[float], list[float]]]:
        return [(own.tolist(), inverse.tolist()) for own, inverse in zip(*self._inverse, strict=True)]

    def nearest_to(self, sizes: Sequence[float]) -> list[Template]:
        """As :meth:`templates`, of one size, each once.

        Raises:
            SilicastError: no mapping fits.
        """
        if not self.stored:
            every, chosen = self.templates(np.array(sizes)[:, None])
            return [every[n] for n in dict.fromkeys(chosen[:, 0].tolist())]
        far = [1.0] * len(self.stored)
        for (own, inverse), size in zip(self._stored_sizes, sizes, strict=True):
            far = [
                x * max(size * a, b / size) for x, a, b in zip(far, inverse, own, strict=True)
            ]  # fmt: skip
        first = sorted(range(len(far)), key=far.__getitem__)[:NEAREST]
        return [self.stored[n] for n in sorted(first)]

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
        found = [
            template_of(self.chip, self.problem, tuple(key), self.compute, self.bits)
            for key in keys.T.tolist()
        ]
        return found, where.reshape(2, -1)


@lru_cache(maxsize=512)
def work_of(
    chip: Chip, problem: Problem, compute: str, bits: float, shares: tuple[float, ...]
) -> Work:
    """The one :class:`Work` of these."""
    return Work(chip, problem, compute, bits, shares)


def counted(
    chip: Chip, problem: Problem, sizes: Sequence[Number], compute: str, bits: float,
    shares: tuple[float, ...] = (), main_shares: Sequence[Number] | None = None,
) -> Counted:  # fmt: skip
    """Costs of every size.

    Args:
        sizes: of each dimension, shape (rows,) or a number.
        shares: of an element's bits, what each tensor's takes; () = all of them.
        main_shares: of the words of each tensor between main memory and the chip, those that
            really move, as ``sizes``: unrolled windows, results that stay.

    Raises:
        SilicastError: no mapping fits.
    """
    work = work_of(chip, problem, compute, bits, shares)
    if (asked := _ASKED.get()) is not None:
        asked.append(Asked(problem, compute, bits, np.array(sizes).reshape(len(sizes), -1)))
    if sizes[0].__class__ is not np.ndarray:
        return _of_one(work, sizes, main_shares)
    return _of_rows(work, np.stack(sizes), main_shares)


def _of_one(
    work: Work, sizes: Sequence[float], main_shares: Sequence[float] | None
) -> Counted:
    """Costs of one size, in numbers."""
    best: list[float] = []
    least = math.inf
    for template in work.nearest_to(sizes):
        fitted = template.fitted(sizes)
        loops = tuple([place for place in template.places if fitted.get(place, 1.0) > 1.0])
        nest = Nest(loops, template.batch.keep, work.shares, main_shares is not None)
        inputs = [*sizes, *[fitted[place] for place in loops], *(main_shares or ())]
        values = work.formula(template, nest).of(inputs)
        merit = values[Layout.CYCLES] * max(values[Layout.ENERGY], 1.0)
        if merit < least or not best:
            best, least = values, merit
    return Counted(work.layout, best)


def _of_rows(work: Work, sizes: F64, main_shares: Sequence[F64] | None) -> Counted:
    """Costs of many sizes, (dims, rows)."""
    templates, chosen = work.templates(sizes)
    few, rows = chosen.shape
    every = np.empty((work.layout.size, few * rows))
    flat = chosen.reshape(-1)
    extra = () if main_shares is None else tuple(main_shares)
    for template, nest, at, bounds in _by_nest(work, templates, flat, sizes, bool(extra)):
        each = at % rows
        inputs = [*sizes[:, each], *bounds, *(share[each] for share in extra)]
        for result, value in enumerate(work.formula(template, nest).of(inputs)):
            every[result, at] = value
    if few == 1:
        return Counted(work.layout, every)
    values = every.reshape(work.layout.size, few, rows)
    merit = values[Layout.CYCLES] * np.maximum(values[Layout.ENERGY], 1.0)
    best = np.argmin(merit, axis=0)
    return Counted(work.layout, values[:, best, np.arange(rows)])


def _by_nest(
    work: Work, templates: Sequence[Template], flat: I64, sizes: F64, less_of_main: bool
) -> Iterator[tuple[Template, Nest, I64, list[F64]]]:
    """Rows whose mappings have the same loops, those of several templates together.

    Yields:
        one of their templates, the nest, indices into ``flat``, and the bounds of its loops.
    """
    order = np.argsort(flat, kind="stable")
    ends = np.searchsorted(flat[order], np.arange(len(templates) + 1))
    groups: dict[Nest, list[tuple[Template, I64, F64]]] = {}
    for template, start, end in zip(templates, ends, ends[1:], strict=False):
        if start == end:
            continue
        at = order[start:end]
        fitted = template.fitted(list(sizes[:, at % sizes.shape[1]]))
        places = [place for place in template.places if place in fitted]
        bounds = np.stack([np.broadcast_to(fitted[place], at.shape) for place in places])
        for turning, rows in _patterns(bounds > 1.0):
            loops = tuple(place for place, turns in zip(places, turning, strict=True) if turns)
            nest = Nest(loops, template.batch.keep, work.shares, less_of_main)
            groups.setdefault(nest, []).append((template, at[rows], bounds[turning][:, rows]))
    for nest, parts in groups.items():
        if len(parts) == 1:
            template, at, bounds = parts[0]
        else:
            template = parts[0][0]
            at = np.concatenate([each for _, each, _ in parts])
            bounds = np.concatenate([each for _, _, each in parts], axis=1)
        yield template, nest, at, list(bounds)


def _patterns(turning: NDArray[np.bool_]) -> list[tuple[NDArray[np.bool_], I64]]:
    """Columns that are alike, (loops, rows): each that occurs, and where."""
    if turning.shape[1] == 1:
        return [(turning[:, 0], np.zeros(1, dtype=np.int64))]
    packed = np.packbits(turning, axis=0)
    wide = np.zeros((-(-len(packed) // 8) * 8, packed.shape[1]), dtype=np.uint8)
    wide[: len(packed)] = packed
    keys = np.ascontiguousarray(wide.T).view(np.uint64)
    order = np.lexsort(keys.T)
    ordered = keys[order]
    starts = np.flatnonzero((ordered[1:] != ordered[:-1]).any(axis=1)) + 1
    return [(turning[:, rows[0]], rows) for rows in np.split(order, starts)]
