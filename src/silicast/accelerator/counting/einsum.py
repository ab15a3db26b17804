"""A computation as an einsum with sliding windows: what a mapper splits into loops.

Every point of the iteration space is one multiplication (and addition). A tensor's index is a
sum of iteration dimensions with coefficients, which makes a convolution's window: row
``stride * p + dilation * r`` of the input belongs to output row p and filter row r.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

from silicast.accelerator.zeros.density import DENSE, Density
from silicast.core.errors import SilicastError

Rank = tuple[tuple[str, int], ...]
"""One index of a tensor: (dimension, coefficient) terms that are added."""

LARGEST_SIZE = 1e15
"""Larger ones are not counted exactly."""
INPUTS, WEIGHTS, OUTPUTS = "Inputs", "Weights", "Outputs"
"""The names that the ready-made einsums below give their tensors."""


@final
@dataclass(frozen=True)
class EinsumTensor:
    """An operand or the result of an einsum.

    Attributes:
        name: as architectures and constraints name it in ``keeps`` and ``ports``.
        ranks: its indices, each a sum of dimensions.
        is_output: whether it is accumulated into.
        density: where its values are not zero.
    """

    name: str
    ranks: tuple[Rank, ...]
    is_output: bool = False
    density: Density = DENSE

    @cached_property
    def dims(self) -> frozenset[str]:
        """Dimensions that move the tensor's index."""
        return frozenset(dim for rank in self.ranks for dim, _ in rank)

    @cached_property
    def plain_dims(self) -> tuple[str, ...]:
        """Dimensions that are an index alone."""
        return tuple(rank[0][0] for rank in self.ranks if len(rank) == 1 and rank[0][1] == 1)

    @cached_property
    def windows(self) -> tuple[Rank, ...]:
        """Indices that are a sum, or a multiple, of dimensions."""
        return tuple(rank for rank in self.ranks if len(rank) > 1 or rank[0][1] != 1)

    def shape(self, extents: Mapping[str, int]) -> tuple[int, ...]:
        """Length of each index over a tile of these extents."""
        return tuple(
            sum(step * (extents[dim] - 1) for dim, step in rank) + 1 for rank in self.ranks
        )

    def size(self, extents: Mapping[str, int]) -> int:
        """Words in the bounding box of the points that a tile of these extents touches."""
        return math.prod(self.shape(extents))


@final
@dataclass(frozen=True)
class Einsum:
    """Dimensions with their sizes, and the tensors that they index.

    Attributes:
        name: for messages.
        bounds: dimension -> size.
        tensors: operands, and one output.

    Raises:
        SilicastError: a size below one, an unknown dimension, or not exactly one output.

    >>> stem = conv2d(n=1, c=3, m=32, p=112, q=112, r=3, s=3, stride=2)
    >>> stem.points, stem.tensor("Inputs").size(stem.bounds)
    (10838016, 151875)
    """

    name: str
    bounds: Mapping[str, int]
    tensors: tuple[EinsumTensor, ...]

    def __post_init__(self) -> None:
        for dim, size in self.bounds.items():
            if size < 1:
                raise SilicastError(
                    f"size of dimension {dim} is {size}, must be at least 1", field=f"bounds.{dim}"
                )
            if size > LARGEST_SIZE:
                raise SilicastError(
                    f"size of dimension {dim} is {size:.3g}, expected at most {LARGEST_SIZE:.3g}",
                    field=f"bounds.{dim}",
                )
        for tensor in self.tensors:
            unknown = sorted(tensor.dims - set(self.bounds))
            if unknown:
                raise SilicastError(
                    f"tensor {tensor.name} is indexed by {unknown[0]}, which has no size",
                    field=f"tensors.{tensor.name}",
                    hint=f"dimensions: {', '.join(self.bounds)}",
                )
        if sum(tensor.is_output for tensor in self.tensors) != 1:
            raise SilicastError("an einsum has exactly one output", field="tensors")

    @cached_property
    def dims(self) -> tuple[str, ...]:
        """Dimensions in a fixed order."""
        return tuple(self.bounds)

    @cached_property
    def points(self) -> int:
        """Multiplications: points of the iteration space."""
        return math.prod(self.bounds.values())

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the tensors, in order."""
        return tuple(tensor.name for tensor in self.tensors)

    @cached_property
    def output(self) -> EinsumTensor:
        """The tensor that is accumulated into."""
        return next(tensor for tensor in self.tensors if tensor.is_output)

    @cached_property
    def is_dense(self) -> bool:
        """Whether no tensor has a zero that is known of."""
        return all(tensor.density.is_dense for tensor in self.tensors)

    def with_densities(self, densities: Mapping[str, Density]) -> Einsum:
        """The same with other densities of some tensors.

        Raises:
            SilicastError: there is no such tensor.

        >>> from silicast.accelerator.zeros.density import Uniform
        >>> matmul(m=4, n=5, k=6).with_densities({"Inputs": Uniform(0.5)}).is_dense
        False
        """
        for name in densities:
            self.tensor(name)
        return replace(
            self,
            tensors=tuple(
                replace(tensor, density=densities.get(tensor.name, tensor.density))
                for tensor in self.tensors
            ),
        )

    def tensor(self, name: str) -> EinsumTensor:
        """The tensor of that name.

        Raises:
            SilicastError: there is none.
        """
        for tensor in self.tensors:
            if tensor.name == name:
                return tensor
        raise SilicastError(
            f"no tensor {name!r}", field="tensors", hint=f"there are {', '.join(self.names)}"
        )


def conv2d(
    *,
    c: int,
    m: int,
    p: int,
    q: int,
    r: int,
    s: int,
    n: int = 1,
    groups: int = 1,
    stride: int = 1,
    dilation: int = 1,
) -> Einsum:
    """A convolution of ``groups`` groups; ``c`` and ``m`` are the channels of one group.

    ``p``, ``q`` are output rows and columns, ``r``, ``s`` those of the filter. Padding is part of
    the input, as the loops see it.
    """
    group: tuple[Rank, ...] = ((("G", 1),),) if groups > 1 else ()
    bounds = {"C": c, "M": m, "R": r, "S": s, "N": n, "P": p, "Q": q}
    return Einsum(
        name="conv2d",
        bounds={"G": groups, **bounds} if groups > 1 else bounds,
        tensors=(
            EinsumTensor(WEIGHTS, (*group, *_plain("CMRS"))),
            EinsumTensor(
                INPUTS,
                (
                    *group,
                    *_plain("NC"),
                    (("R", dilation), ("P", stride)),
                    (("S", dilation), ("Q", stride)),
                ),
            ),
            EinsumTensor(OUTPUTS, (*group, *_plain("NMQP")), is_output=True),
        ),
    )


def unrolled(einsum: Einsum) -> Einsum | None:
    """A convolution as the product of its unrolled windows, also of single words: steps of a stride
    leave no gaps there, and P x Q splits in any number. None = it is none.

    >>> unrolled(conv2d(c=3, m=64, p=8, q=8, r=5, s=5)).bounds
    {'M': 64, 'N': 64, 'K': 75}
    """
    if einsum.name != "conv2d":
        return None
    size = einsum.bounds
    product = matmul(
        m=size["N"] * size["P"] * size["Q"],
        n=size["M"],
        k=size["C"] * size["R"] * size["S"],
        batch=size.get("G", 1),
        weights_per_batch="G" in size,
    )
    return product.with_densities({tensor.name: tensor.density for tensor in einsum.tensors})


def matmul(*, m: int, n: int, k: int, batch: int = 1, weights_per_batch: bool = False) -> Einsum:
    """Outputs[b, m, n] = sum over k of Inputs[b, m, k] x Weights[k, n] (or Weights[b, k, n]).

    >>> matmul(m=4, n=5, k=6).points
    120
    """
    batch_ranks: tuple[Rank, ...] = ((("B", 1),),) if batch > 1 else ()
    weight_ranks = batch_ranks if weights_per_batch else ()
    bounds = {"M": m, "N": n, "K": k}
    return Einsum(
        name="matmul",
        bounds={"B": batch, **bounds} if batch > 1 else bounds,
        tensors=(
            EinsumTensor(WEIGHTS, (*weight_ranks, *_plain("KN"))),
            EinsumTensor(INPUTS, (*batch_ranks, *_plain("MK"))),
            EinsumTensor(OUTPUTS, (*batch_ranks, *_plain("MN")), is_output=True),
        ),
    )


def _plain(dims: str) -> tuple[Rank, ...]:
    return tuple(((dim, 1),) for dim in dims)
