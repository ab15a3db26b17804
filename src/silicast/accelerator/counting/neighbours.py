"""Two einsums of which one takes what the other leaves: how their loops belong together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from silicast.accelerator.counting.einsum import INPUTS, Einsum
from silicast.core.errors import SilicastError, unsupported


@final
@dataclass(frozen=True)
class Pair:
    """Neighbours.

    Attributes:
        first, second: one after the other.
        operand: of the second: the output of the first, which others do not need.
        along: (dimension of the first, of the second) along which both can be cut into the same
            tiles of what lies between them.
    """

    first: Einsum
    second: Einsum
    operand: str
    along: tuple[tuple[str, str], ...]

    @property
    def produced(self) -> str:
        """What lies between, as the first calls it."""
        return next(tensor.name for tensor in self.first.tensors if tensor.is_output)

    @property
    def words(self) -> int:
        """Of what lies between, as the first writes it."""
        return self.first.tensor(self.produced).size(self.first.bounds)

    def rows(self, dim: str, extent: int) -> int:
        """Length of the operand along a dimension's index, over so many steps of it.

        >>> from silicast.accelerator.counting.einsum import conv2d
        >>> first = conv2d(c=3, m=8, p=10, q=10, r=1, s=1)
        >>> pair_of(first, conv2d(c=8, m=8, p=8, q=8, r=3, s=3)).rows("P", 2)
        4
        """
        return rows_of(self.second, self.operand, dim, extent)


def rows_of(einsum: Einsum, operand: str, dim: str, extent: int) -> int:
    """Length of a tensor along the index that a dimension is part of; others take all of theirs."""
    for rank in einsum.tensor(operand).ranks:
        if dim in {term for term, _ in rank}:
            sizes = {term: extent if term == dim else einsum.bounds[term] for term, _ in rank}
            return sum(step * (sizes[term] - 1) for term, step in rank) + 1
    return 1


def pair_of(first: Einsum, second: Einsum) -> Pair:
    """Two neighbours, whose sizes must belong together.

    Of a convolution the second may see more rows than the first writes: padding.

    Raises:
        SilicastError: the second cannot take what the first leaves; says which sizes differ.

    >>> from silicast.accelerator.counting.einsum import matmul
    >>> pair_of(matmul(m=4, n=8, k=2), matmul(m=4, n=2, k=8)).along
    (('M', 'M'), ('N', 'K'))
    """
    kinds = first.name, second.name
    if kinds == ("matmul", "matmul"):
        along = _of_products(first, second)
    elif kinds == ("conv2d", "conv2d"):
        along = _of_convolutions(first, second)
    else:
        raise unsupported(
            f"a {first.name} and a {second.name} do not share their loops",
            "fuse",
            "neighbours are two products, or two convolutions",
        )
    return Pair(first, second, INPUTS, tuple(along))


def are_neighbours(first: Einsum, second: Einsum) -> bool:
    """Whether the second can take what the first leaves."""
    try:
        pair_of(first, second)
    except SilicastError:
        return False
    return True


def _of_products(first: Einsum, second: Einsum) -> list[tuple[str, str]]:
    along = [("M", "M"), ("N", "K")]
    if first.bounds.get("B", 1) > 1 or second.bounds.get("B", 1) > 1:
        along.insert(0, ("B", "B"))
    for mine, other in along:
        _same(mine, first.bounds.get(mine, 1), other, second.bounds.get(other, 1))
    return along


def _of_convolutions(first: Einsum, second: Einsum) -> list[tuple[str, str]]:
    ours, theirs = first.bounds, second.bounds
    _same("N", ours["N"], "N", theirs["N"])
    groups, after = ours.get("G", 1), theirs.get("G", 1)
    _same("M", groups * ours["M"], "C", after * theirs["C"])
    along = [("N", "N")]
    if groups == after:
        along += [("G", "G")] if groups > 1 else [("M", "C")]
    elif groups == 1 and theirs["C"] == 1:
        along.append(("M", "G"))
    elif after == 1 and ours["M"] == 1:
        along.append(("G", "C"))
    for dim, tap in (("P", "R"), ("Q", "S")):
        seen = rows_of(second, INPUTS, dim, theirs[dim])
        window = rows_of(second, INPUTS, dim, 1)
        stride = rows_of(second, INPUTS, dim, 2) - window
        if not seen - 2 * (window - 1) <= ours[dim] < seen + stride:
            raise unsupported(
                f"the first leaves {dim}={ours[dim]}, the second with {dim}={theirs[dim]} and "
                f"{tap}={theirs[tap]} takes {seen}, padding included",
                "fuse",
            )
        along.append((dim, dim))
    return along


def _same(mine: str, ours: int, other: str, theirs: int) -> None:
    if ours != theirs:
        raise unsupported(
            f"the first leaves {mine}={ours}, the second takes {other}={theirs}",
            "fuse",
            "give the second the size of the first",
        )
