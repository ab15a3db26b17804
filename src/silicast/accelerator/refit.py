"""Mappings of sizes that were not searched: a searched mapping, cut and stretched, counted exactly.

Loops are cut from the innermost outwards where a dimension is shorter than they reach. What is
left of a longer one is taken by loops that the mapping has: in space as far as the axis goes, then
by the longest in time where tiles still fit, else by those of main memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import final

import numpy as np
from numpy.typing import NDArray

from silicast.accelerator.accounting import Traffic, account
from silicast.accelerator.architecture import Architecture
from silicast.accelerator.architecture_file import StoredTable
from silicast.accelerator.chip import Chip
from silicast.accelerator.constraints import Constraints
from silicast.accelerator.cost import Cost, Objective, cost_of
from silicast.accelerator.einsum import Einsum
from silicast.accelerator.mapper import Mapped, best_mapping
from silicast.accelerator.mapping import Loop, LoopNest, MappingBatch
from silicast.accelerator.problems import Problem
from silicast.core.errors import SilicastError
from silicast.core.numerics import F64, I64


@final
@dataclass(frozen=True)
class Asked:
    """Sizes of one problem that somebody asked for.

    Attributes:
        problem, compute, bits: see :func:`template_of`.
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


EFFORT = 60_000
"""Partial mappings that are tried for a size of the grid."""
SHARES = (1.0, 0.5, 0.25, 0.125)
"""Of what is left, the parts that a loop is tried with until tiles fit."""
NEAREST = 3
"""Stored mappings that are tried for a size."""


@final
@dataclass(frozen=True, eq=False)
class Template:
    """A searched mapping.

    Attributes:
        einsum, arch, rules: what was mapped, on what, and under which rules.
        batch: the mapping, a batch of one.
        sizes: of the dimensions, (dims,).
        gap: how much less time another mapping may take, relative to this one's.
    """

    einsum: Einsum
    arch: Architecture
    rules: Constraints
    batch: MappingBatch
    sizes: F64
    gap: float

    def refitted(self, sizes: F64) -> MappingBatch:
        """The mapping for other sizes, (dims, rows)."""
        bounds = self.batch.factors[:, :, 0]
        factors = np.ones((*bounds.shape, sizes.shape[1]))
        covered = np.ones(sizes.shape)
        for slot in range(len(bounds) - 1, -1, -1):
            for dim in np.flatnonzero(bounds[slot] > 1).tolist():
                left = np.ceil(sizes[dim] / covered[dim])
                factors[slot, dim] = np.minimum(bounds[slot, dim], left)
                covered[dim] *= factors[slot, dim]
        for slot, dim in self.growing:
            if not (covered[dim] < sizes[dim]).any():
                continue
            grown = self._grown(factors, covered, sizes, slot, dim)
            covered[dim] *= grown / factors[slot, dim]
            factors[slot, dim] = grown
        factors[0] *= np.ceil(sizes / covered)
        positions = np.broadcast_to(self.batch.positions, factors.shape)
        return MappingBatch(factors, positions, self.batch.keep)

    @cached_property
    def growing(self) -> list[tuple[int, int]]:
        """Loops that take what a larger size leaves over, in this order: those in space; then of
        each dimension the longest in time, further out where two are alike; then any other memory
        on the chip that keeps all that the dimension indexes, from main memory inwards. Those that
        a rule fixes are left out.
        """
        bounds = self.batch.factors[:, :, 0]
        in_space, in_time, others = [], [], []
        for slot, place in enumerate(self.arch.slots):
            fixed = self.rules.of(self.arch, slot).fixed
            for dim, name in enumerate(self.einsum.dims):
                if name in fixed:
                    continue
                if place.is_spatial:
                    if bounds[slot, dim] > 1:
                        in_space.append((slot, dim))
                elif slot and bounds[slot, dim] > 1:
                    in_time.append((-bounds[slot, dim], slot, dim))
                elif slot and self._holds(place.node, name):
                    others.append((slot, dim))
        return [*in_space, *((slot, dim) for _, slot, dim in sorted(in_time)), *others]

    def _holds(self, node: int, dim: str) -> bool:
        """Whether a memory keeps all tensors that a dimension indexes: else a longer loop there
        makes those that pass it by come anew in every iteration of the loops outside.
        """
        level = [memory.name for memory in self.arch.memories].index(self.arch.nodes[node].name)
        return all(
            tensor.name in self.batch.keep[level]
            for tensor in self.einsum.tensors
            if any(name == dim for rank in tensor.ranks for name, _ in rank)
        )

    def _grown(self, factors: F64, covered: F64, sizes: F64, slot: int, dim: int) -> F64:
        """The loop bound that takes all that is left, or a part, or as much as an axis has; as it
        is where tiles would not fit.
        """
        own: F64 = factors[slot, dim].copy()
        most = np.ceil(sizes[dim] / (covered[dim] / own))
        limit = self.arch.slots[slot].limit
        if self.arch.slots[slot].is_spatial:
            others = factors[slot].prod(axis=0) / own
            most = np.minimum(most, np.maximum(np.floor(limit / others), own))
        rule = self.rules.of(self.arch, slot).most.get(self.einsum.dims[dim])
        if rule is not None:
            most = np.maximum(np.minimum(most, rule), own)
        tried, open_ = factors.copy(), most > own
        for share in SHARES:
            if not open_.any():
                break
            tried[slot, dim] = np.maximum(np.ceil(most * share), own)
            fits = open_ & self._fits(tried, sizes)
            own = np.where(fits, tried[slot, dim], own)
            open_ &= ~fits
        return own

    def _fits(self, factors: F64, sizes: F64) -> NDArray[np.bool_]:
        """Whether the tiles of all tensors fit every memory but the first, (rows,)."""
        inside = factors[::-1].cumprod(axis=0)[::-1]
        found: NDArray[np.bool_] = np.ones(sizes.shape[1], dtype=bool)
        dims = self.einsum.dims
        for level, memory in enumerate(self.arch.memories):
            if level == 0 or memory.capacity_words is None:
                continue
            tile = np.minimum(inside[self.arch.memory_slots[level]], sizes)
            words = np.zeros(sizes.shape[1])
            for tensor in self.einsum.tensors:
                if tensor.name in self.batch.keep[level]:
                    volume = np.ones(sizes.shape[1])
                    for rank in tensor.ranks:
                        span = np.ones(sizes.shape[1])
                        for name, step in rank:
                            span += step * (tile[dims.index(name)] - 1.0)
                        volume *= span
                    words += volume
            found &= words <= memory.usable_words
        return found

    def counted(self, sizes: F64) -> Traffic:
        """What the mapping for other sizes moves."""
        return account(self.einsum, self.arch, self.refitted(sizes), sizes)


@final
@dataclass(frozen=True)
class Counted:
    """Costs of many sizes of one problem; arrays of shape (rows,).

    Attributes:
        cycles: of the whole; units_cycles: of the compute units alone.
        port_cycles: (memory, port) -> cycles.
        level_words: words through each memory, (memories, rows).
        energy_pj: all accesses, multiplications, hops and leakage.
        main_words: words that leave and reach main memory, by tensor, (tensors, rows).
    """

    cycles: F64
    unit_cycles: F64
    port_cycles: dict[tuple[str, str], F64]
    level_words: F64
    energy_pj: F64
    main_words: F64


@lru_cache(maxsize=8192)
def template_of(
    chip: Chip, problem: Problem, sizes: tuple[int, ...], compute: str, bits: float
) -> Template:
    """The searched mapping of one size.

    Raises:
        SilicastError: no mapping fits.
    """
    found = searched(chip, problem, sizes, compute, bits, EFFORT)
    arch, einsum = found.cost.architecture, found.cost.einsum
    batch = MappingBatch.of(found.nest, einsum, arch)
    return Template(einsum, arch, chip.rules, batch, _floats(einsum), time_gap(found.cost))


def searched(
    chip: Chip, problem: Problem, sizes: tuple[int, ...], compute: str, bits: float, effort: int
) -> Mapped:
    """The best mapping of one size that ``effort`` partial mappings find: least energy times time,
    or least time where energies are not stated.

    Raises:
        SilicastError: no mapping fits.
    """
    arch = chip.in_format(compute, bits)
    einsum = problem.einsum(dict(zip(problem.dims, sizes, strict=True)))
    objective: Objective = "latency" if chip.missing_energy else "edp"
    return best_mapping(einsum, arch, chip.rules, objective=objective, effort=effort)


def time_gap(found: Cost) -> float:
    """How much less time any mapping could take: all units at work, and every word of main memory
    moved once.
    """
    arch, einsum = found.architecture, found.einsum
    least = einsum.points / (arch.units * arch.compute.per_cycle)
    for port in arch.memories[0].ports:
        action = {True: "update", False: "read"}
        words = sum(
            tensor.size(einsum.bounds)
            for tensor in einsum.tensors
            if action[tensor.is_output] in port.actions
            and (not port.tensors or tensor.name in port.tensors)
        )
        least = max(least, words / port.words_per_cycle)
    return max(0.0, 1.0 - least / float(found.cycles[0]))


def _floats(einsum: Einsum) -> F64:
    return np.array([float(size) for size in einsum.bounds.values()])


@lru_cache(maxsize=1024)
def stored_templates(
    chip: Chip, problem: Problem, compute: str, bits: float
) -> tuple[Template, ...]:
    """What was compiled for a problem.

    Raises:
        SilicastError: a stored mapping does not belong to its design.
    """
    found = []
    arch = chip.in_format(compute, bits)
    for number, table in enumerate(chip.stored):
        if (table.op, table.format, table.bits) != (key_of(problem), compute, bits):
            continue
        try:
            einsum = problem.einsum(table.sizes)
            batch = MappingBatch.of(nest_of(table), einsum, arch)
        except (SilicastError, KeyError, ValueError) as error:
            raise SilicastError(
                f"does not belong to this design: {error}", field=f"mapping[{number}]",
                hint="compile the design anew",
            ) from None  # fmt: skip
        found.append(Template(einsum, arch, chip.rules, batch, _floats(einsum), table.gap))
    return tuple(found)


def key_of(problem: Problem) -> str:
    """The name of a problem in a file.

    >>> key_of(Problem("conv2d", stride=2))
    'conv2d/2/1'
    """
    if problem.stride == problem.dilation == 1:
        return problem.op
    return f"{problem.op}/{problem.stride}/{problem.dilation}"


def nest_of(table: StoredTable) -> LoopNest:
    """The loops of a stored mapping."""
    loops = []
    for text in table.loops:
        place, dim, bound = text.split()
        name, _, axis = place.partition("@")
        loops.append(Loop(name, dim, int(bound), int(axis) if axis else -1))
    return LoopNest(tuple(loops), {name: frozenset(kept) for name, kept in table.keeps.items()})


def loops_text(nest: LoopNest) -> tuple[str, ...]:
    """The loops as a file has them."""
    return tuple(
        f"{loop.slot}{f'@{loop.axis}' if loop.axis >= 0 else ''} {loop.dim} {loop.bound}"
        for loop in nest.loops
    )


def counted(
    chip: Chip, problem: Problem, sizes: F64, compute: str, bits: float,
    shares: F64 | None = None, main_shares: F64 | None = None,
) -> Counted:  # fmt: skip
    """Costs of every size.

    Args:
        sizes: (dims, rows).
        shares: of an element's bits, what each tensor's takes, (tensors,) or (tensors, rows).
        main_shares: of the words between main memory and the chip, those that really move,
            (tensors, rows): unrolled windows, results that stay.

    Raises:
        SilicastError: no mapping fits.
    """
    rows = sizes.shape[1]
    if (asked := _ASKED.get()) is not None:
        asked.append(Asked(problem, compute, bits, sizes))
    stored = stored_templates(chip, problem, compute, bits)
    if stored:
        groups = _nearest(stored, sizes)
    else:
        cells = np.stack([problem.grid(sizes, way) for way in (0, 1)])
        keys, where = np.unique(cells.reshape(-1, rows), axis=1, return_inverse=True)
        where = where.reshape(-1)
        groups = [
            (
                [
                    template_of(chip, problem, tuple(cell), compute, bits)
                    for cell in dict.fromkeys(map(tuple, key.reshape(2, -1).tolist()))
                ],
                np.flatnonzero(where == n),
            )
            for n, key in enumerate(keys.T)
        ]
    pieces = [
        _best(templates, sizes[:, each], _rows_of(shares, each), _rows_of(main_shares, each))
        for templates, each in groups
    ]
    order = np.argsort(np.concatenate([each for _, each in groups]), kind="stable")
    if len(pieces) == 1 and rows == len(order):
        return pieces[0]
    return Counted(
        cycles=_together([p.cycles for p in pieces], order),
        unit_cycles=_together([p.unit_cycles for p in pieces], order),
        port_cycles={
            name: _together([p.port_cycles[name] for p in pieces], order)
            for name in pieces[0].port_cycles
        },
        level_words=_together([p.level_words for p in pieces], order),
        energy_pj=_together([p.energy_pj for p in pieces], order),
        main_words=_together([p.main_words for p in pieces], order),
    )  # fmt: skip


def _rows_of(values: F64 | None, rows: I64) -> F64 | None:
    return values if values is None or values.ndim == 1 else values[:, rows]


def _together(parts: list[F64], order: I64) -> F64:
    found: F64 = np.concatenate(parts, axis=-1)[..., order]
    return found


def _nearest(stored: tuple[Template, ...], sizes: F64) -> list[tuple[list[Template], I64]]:
    """Rows with the stored mappings nearest to them, by the sum of ratios of their sizes."""
    far = np.empty((len(stored), sizes.shape[1]))
    for n, template in enumerate(stored):
        own = template.sizes[:, None]
        ratio = np.maximum(sizes, own) / np.minimum(sizes, own)
        far[n] = np.prod(ratio, axis=0)
    few = min(NEAREST, len(stored))
    chosen = np.sort(np.argsort(far, axis=0, kind="stable")[:few], axis=0)
    keys, where = np.unique(chosen, axis=1, return_inverse=True)
    where = where.reshape(-1)
    return [
        ([stored[n] for n in key], np.flatnonzero(where == place))
        for place, key in enumerate(keys.T)
    ]


def _best(
    templates: list[Template], sizes: F64, shares: F64 | None, main_shares: F64 | None
) -> Counted:
    """The best of several mappings of each size."""
    found = [_counted_by(each, sizes, shares, main_shares) for each in templates]
    if len(found) == 1:
        return found[0]
    values = np.stack([each.cycles * np.maximum(each.energy_pj, 1.0) for each in found])
    best = np.argmin(values, axis=0)
    return Counted(
        cycles=_chosen([f.cycles for f in found], best),
        unit_cycles=_chosen([f.unit_cycles for f in found], best),
        port_cycles={
            name: _chosen([f.port_cycles[name] for f in found], best)
            for name in found[0].port_cycles
        },
        level_words=_chosen([f.level_words for f in found], best),
        energy_pj=_chosen([f.energy_pj for f in found], best),
        main_words=_chosen([f.main_words for f in found], best),
    )  # fmt: skip


def _chosen(values: list[F64], best: NDArray[np.int64]) -> F64:
    stacked = np.stack(values)
    index = best[(None,) * (stacked.ndim - 1)]
    found: F64 = np.take_along_axis(stacked, np.broadcast_to(index, (1, *stacked.shape[1:])), 0)[0]
    return found


def _counted_by(
    template: Template, sizes: F64, shares: F64 | None, main_shares: F64 | None
) -> Counted:
    traffic = template.counted(sizes)
    if shares is not None:
        traffic = _shared(traffic, shares if shares.ndim == 2 else shares[:, None])
    if main_shares is not None:
        traffic = _less_of_main(traffic, main_shares)
    found: Cost = cost_of(template.einsum, template.arch, traffic, sizes)
    words = traffic.reads + traffic.fills + traffic.updates
    return Counted(
        cycles=found.cycles, unit_cycles=np.ceil(traffic.steps / template.arch.compute.per_cycle),
        port_cycles=found.port_cycles, level_words=words.sum(axis=1), energy_pj=found.energy_pj,
        main_words=words[0],
    )  # fmt: skip


def _shared(traffic: Traffic, shares: F64) -> Traffic:
    """Words of elements that are narrower or wider than the products' format."""
    return replace(
        traffic, reads=traffic.reads * shares, fills=traffic.fills * shares,
        updates=traffic.updates * shares, tiles=traffic.tiles * shares,
        hops=traffic.hops * shares,
    )  # fmt: skip


def _less_of_main(traffic: Traffic, shares: F64) -> Traffic:
    """Only so much of each tensor passes between main memory and the next one that keeps it."""
    reads, fills, updates = traffic.reads.copy(), traffic.fills.copy(), traffic.updates.copy()
    reads[0] *= shares
    updates[0] *= shares
    for t in range(shares.shape[0]):
        inside = [level for level in range(1, len(fills)) if traffic.tiles[level, t].any()]
        if inside:
            fills[inside[0], t] *= shares[t]
    return replace(traffic, reads=reads, fills=fills, updates=updates)
