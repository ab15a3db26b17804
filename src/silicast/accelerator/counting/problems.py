"""Kinds of work that a chip is asked to map, and the sizes at which mappings are searched.

A mapping for other sizes is made of one that was searched
(:mod:`~silicast.accelerator.mapper.refit`). Without compiled
mappings the sizes that are searched are those of a fixed grid, so that an answer does not depend
on what was asked before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np

from silicast.accelerator.counting.einsum import Einsum, conv2d, matmul
from silicast.core.numerics import F64, I64

PRODUCT, PRODUCTS, WINDOWS, GROUPED = "matmul", "batched_matmul", "conv2d", "grouped_conv2d"
"""One product or several of the same weights; products of weights of their own; convolutions of
one group; of several."""

POINTS = np.array([*(2.0**n for n in range(11)), 4096.0, 16384.0])
"""The grid: powers of two up to 1,024, then of four; larger sizes are those of the largest with
longer loops."""
LARGEST = float(POINTS[-1])
EDGES: Mapping[str, float] = {"B": 64.0, "G": 64.0, "Q": 256.0, "R": 11.0, "S": 11.0}
"""Where the grid ends for dimensions that are small or many. Products are filters of one on some
designs: their rows stand in P and what they add up in C, which go as far as M does."""


@final
@dataclass(frozen=True)
class ProblemShape:
    """A kind of work, but for its sizes.

    Attributes:
        op: one of the names above.
        stride, dilation: of a convolution's window.
    """

    op: str
    stride: int = 1
    dilation: int = 1

    @property
    def dims(self) -> tuple[str, ...]:
        """Dimensions in the order of the einsum."""
        return {
            PRODUCT: ("M", "N", "K"),
            PRODUCTS: ("B", "M", "N", "K"),
            WINDOWS: ("C", "M", "R", "S", "N", "P", "Q"),
            GROUPED: ("G", "C", "M", "R", "S", "N", "P", "Q"),
        }[self.op]

    def einsum(self, sizes: Mapping[str, int]) -> Einsum:
        """The einsum of given sizes; batches and groups have at least two members."""
        if self.op in (PRODUCT, PRODUCTS):
            batch = max(sizes.get("B", 1), 2) if self.op == PRODUCTS else 1
            return matmul(
                m=sizes["M"],
                n=sizes["N"],
                k=sizes["K"],
                batch=batch,
                weights_per_batch=self.op == PRODUCTS,
            )
        small = {name.lower(): size for name, size in sizes.items() if name != "G"}
        groups = max(sizes.get("G", 1), 2) if self.op == GROUPED else 1
        return conv2d(**small, groups=groups, stride=self.stride, dilation=self.dilation)

    def grid(self, sizes: F64, way: int = 0) -> I64:
        """The sizes to search for given ones, (dims, rows).

        Args:
            way: 0 = the nearest of the grid, -1 and 1 = the next below and above.

        >>> ProblemShape("matmul").grid(np.array([[3.0], [28672.0], [1500.0]])).ravel().tolist()
        [4, 16384, 1024]
        """
        result = np.empty(sizes.shape)
        for index, dim in enumerate(self.dims):
            result[index] = _on_grid(dim, sizes[index], way)
        return result.astype(np.int64)


def _on_grid(dim: str, size: F64, way: int) -> F64:
    most = EDGES.get(dim, LARGEST)
    if dim in ("R", "S"):
        return np.minimum(size, most)
    points = POINTS[most >= POINTS]
    below = np.searchsorted(points, size, side="right") - 1
    above = np.minimum(np.searchsorted(points, size, side="left"), len(points) - 1)
    if way:
        grid: F64 = points[below if way < 0 else above]
        return grid
    # The nearer in ratio: size / below against above / size.
    nearer: F64 = np.where(
        size * size > points[below] * points[above], points[above], points[below]
    )
    return nearer
