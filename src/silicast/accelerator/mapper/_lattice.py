"""All tiles whose extents divide their dimensions, as a grid with an axis for each dimension."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from functools import cached_property
from typing import final

import numpy as np

from silicast.accelerator.counting.einsum import EinsumTensor
from silicast.core.numerics import F64, I64
from silicast.core.remembered import remembered


@final
class Lattice:
    """The grid; entry [i, j, ...] of an array over it belongs to the i-th, j-th, ... divisors."""

    def __init__(
        self, dims: tuple[str, ...], sizes: tuple[int, ...], divisors: Sequence[I64]
    ) -> None:
        """``divisors`` are the extents along each dimension, ascending."""
        self.dims = dims
        self.sizes = sizes
        self.divisors = divisors
        self.shape = tuple(len(dim_divisors) for dim_divisors in self.divisors)
        self.cells = math.prod(self.shape)
        self.strides = np.array(
            [math.prod(self.shape[d + 1 :]) for d in range(len(sizes))], dtype=np.int64
        )
        self.extent = [
            self.along(d, dim_divisors.astype(float))
            for d, dim_divisors in enumerate(self.divisors)
        ]
        """Extent of each dimension, broadcast over the grid."""

    def along(self, d: int, values: F64) -> F64:
        """Values of one dimension's divisors, shaped to broadcast over the grid."""
        return values.reshape(tuple(-1 if o == d else 1 for o in range(len(self.shape))))

    @cached_property
    def left(self) -> list[F64]:
        """What each dimension has outside a tile, broadcast over the grid."""
        return [size / extent for size, extent in zip(self.sizes, self.extent, strict=True)]

    @cached_property
    def ratio(self) -> list[F64]:
        """Extent i over extent j of each dimension; 0 where i does not divide j, (n, n)."""
        ratio = []
        for divisors in self.divisors:
            inner, outer = divisors[:, None], divisors[None, :]
            ratio.append(np.where(outer % inner == 0, inner / outer, 0.0))
        return ratio

    @remembered
    def grown(self, d: int, step: int, end: int) -> tuple[I64, I64]:
        """Places among the first ``end`` extents of a dimension of those that times ``step`` are
        extents too, and the indices of these.
        """
        divisors = self.divisors[d]
        here = np.flatnonzero(np.isin(divisors[:end] * step, divisors))
        return here, np.searchsorted(divisors, divisors[here] * step)

    def indices(self, tiles: F64) -> I64:
        """Index of tiles' extents along each dimension, (dims, n) -> (dims, n)."""
        result = np.empty(tiles.shape, dtype=np.int64)
        for d, divisors in enumerate(self.divisors):
            result[d] = np.searchsorted(divisors, tiles[d]) if len(divisors) > 1 else 0
        return result

    def volume(self, tensor: EinsumTensor) -> F64:
        """Words of a tensor's tile, over the grid."""
        volume = np.ones((1,) * len(self.shape))
        for rank in tensor.ranks:
            volume = volume * self.span(rank)
        return volume

    def span(self, rank: tuple[tuple[str, int], ...]) -> F64:
        """Length of a tile's window, broadcast over the grid."""
        total = np.ones((1,) * len(self.shape))
        for dim, step in rank:
            total = total + step * (self.extent[self.dims.index(dim)] - 1.0)
        return total


def divisors_of(size: int) -> I64:
    """All divisors, ascending.

    >>> divisors_of(12).tolist()
    [1, 2, 3, 4, 6, 12]
    """
    small = [f for f in range(1, math.isqrt(size) + 1) if size % f == 0]
    return np.array(sorted({*small, *(size // f for f in small)}), dtype=np.int64)


def thinned(divisors: I64, most: int, wanted: Set[int]) -> I64:
    """About ``most`` of some divisors, evenly spread, and all that are wanted.

    >>> thinned(divisors_of(64), 3, {4}).tolist()
    [1, 4, 8, 64]
    """
    spread = divisors[np.unique(np.linspace(0, len(divisors) - 1, most).round().astype(np.int64))]
    return np.union1d(spread, [d for d in divisors if int(d) in wanted]).astype(np.int64)
