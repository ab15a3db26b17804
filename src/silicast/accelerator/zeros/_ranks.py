"""Which loops of a tile each rank of a format takes, and what the ranks store then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np

from silicast.accelerator.counting.accounting import Count
from silicast.accelerator.counting.einsum import EinsumTensor
from silicast.accelerator.zeros.formats import Fibers, TensorFormat
from silicast.core.numerics import F64


@final
@dataclass(frozen=True)
class RankWords:
    """What a format stores of one tile, many mappings.

    Attributes:
        held: words on average, shape (ranks, 2: metadata and payload, mappings).
        at_most: words at most, same shape.
        share: values that are stored over all values, (mappings,).
        most: values that are stored, at most, (mappings,).
    """

    held: F64
    at_most: F64
    share: F64
    most: F64


@final
@dataclass(frozen=True)
class _Loop:
    """A loop of a tile that moves the tensor; ``memory`` is that of its slot."""

    dim: str
    bound: float
    memory: int


def describe(
    count: Count,
    tensor: EinsumTensor,
    chosen: TensorFormat,
    slot: int,
    whole: Mapping[str, tuple[int, ...]],
) -> RankWords:
    """What a format stores of a tensor's tiles at the top of a slot."""
    ranks = len(chosen.ranks)
    held, most = np.zeros((ranks, 2, count.size)), np.zeros((ranks, 2, count.size))
    share, values = np.ones(count.size), np.ones(count.size)
    described: dict[tuple[_Loop, ...], tuple[F64, F64, float, float]] = {}
    for row in range(count.size):
        loops = _loops(count, tensor, slot, row)
        if loops not in described:
            described[loops] = _described(tensor, chosen, loops, whole[tensor.name])
        held[:, :, row], most[:, :, row], share[row], values[row] = described[loops]
    return RankWords(held, most, share, values)


def _loops(count: Count, tensor: EinsumTensor, slot: int, row: int) -> tuple[_Loop, ...]:
    loops, memory = [], -1
    dims = count.einsum.dims
    _ = count.tiles  # cuts loops that are longer than their dimensions
    for s, position in enumerate(count.slots):
        memory += not position.is_spatial
        if s < slot:
            continue
        order = np.argsort(count.batch.positions[s, :, row], kind="stable")
        for d in order:
            bound = float(count.factors[s, d, row])
            if bound > 1 and dims[d] in tensor.dims:
                loops.append(_Loop(dims[d], bound, memory))
    return tuple(loops)


def _groups(chosen: TensorFormat, loops: tuple[_Loop, ...]) -> list[tuple[_Loop, ...]]:
    """Loops of each rank that has any, outermost first: never more groups than ranks."""
    left = list(loops)
    groups: list[tuple[_Loop, ...]] = []
    for number in range(len(chosen.ranks)):
        if not left:
            break
        last = number == len(chosen.ranks) - 1
        size = len(left) if last else 1
        if not last and chosen.flattened:
            dims, memory = chosen.flattened[number], left[0].memory
            fitting = [each.dim in dims and each.memory == memory for each in left]
            size = max(1, fitting.index(False) if False in fitting else len(fitting))
        groups.append(tuple(left[:size]))
        left = left[size:]
    return groups


def _described(
    tensor: EinsumTensor, chosen: TensorFormat, loops: tuple[_Loop, ...], whole: tuple[int, ...]
) -> tuple[F64, F64, float, float]:
    groups = _groups(chosen, loops)
    # A tile of fewer loops than ranks needs the innermost ones only.
    formats = chosen.ranks[len(chosen.ranks) - max(1, len(groups)) :]
    first = len(chosen.ranks) - len(formats)
    groups = groups or [()]
    held, most = np.zeros((len(chosen.ranks), 2)), np.zeros((len(chosen.ranks), 2))
    extents = _extents(tensor, loops)
    tile = _lengths(tensor, extents, whole)
    density = tensor.density
    words = float(np.prod(tile)) if tile else 1.0
    filled = density.most_one(tile, whole)
    positions, stored, share = 1.0, 1.0, 1.0
    bound_places, bound_stored = 1.0, 1.0
    for number, (rank, group) in enumerate(zip(formats, groups, strict=True)):
        is_last = number == len(groups) - 1
        shape = _shape(tensor, group)
        for loop in group:
            extents[loop.dim] /= loop.bound
        below = _lengths(tensor, extents, whole)
        chance = 1.0 - (density.empty_one(below, whole) if not is_last else 1.0 - density.share)
        positions *= shape
        inside = positions * chance
        rank_words = rank.stored(Fibers(stored, shape, inside, is_last))
        held[first + number] = rank_words.metadata, rank_words.payload
        bound_places *= shape
        # With overlapping windows a value stands in more than one fiber.
        reach = filled * bound_places / words if is_last else bound_places
        bound_inside = min(bound_places, reach)
        rank_words = rank.stored(Fibers(bound_stored, shape, bound_inside, is_last))
        most[first + number] = rank_words.metadata, rank_words.payload
        if rank.leaves_out_zeros:
            share = chance
            stored, bound_stored = inside, bound_inside
        else:
            stored, bound_stored = stored * shape, bound_stored * shape
    values = filled if formats[-1].leaves_out_zeros else float(np.ceil(words * share))
    return held, most, share, values


def _extents(tensor: EinsumTensor, loops: tuple[_Loop, ...]) -> dict[str, float]:
    extents = dict.fromkeys(tensor.dims, 1.0)
    for loop in loops:
        extents[loop.dim] *= loop.bound
    return extents


def _lengths(
    tensor: EinsumTensor, extents: Mapping[str, float], whole: tuple[int, ...]
) -> tuple[int, ...]:
    return tuple(
        min(size, int(sum(step * (extents[dim] - 1) for dim, step in rank)) + 1)
        for rank, size in zip(tensor.ranks, whole, strict=True)
    )


def _shape(tensor: EinsumTensor, group: tuple[_Loop, ...]) -> float:
    """Coordinates of a fiber: a window that two of its loops make together has its length."""
    bounds: dict[str, float] = {}
    for loop in group:
        bounds[loop.dim] = bounds.get(loop.dim, 1.0) * loop.bound
    shape = 1.0
    for rank in tensor.ranks:
        terms = [(bounds[dim], step) for dim, step in rank if dim in bounds]
        if len(terms) == 1:
            shape *= terms[0][0]
        elif terms:
            shape *= 1.0 + sum(step * (bound - 1.0) for bound, step in terms)
    return shape
