"""Factors, orders and splits, as Timeloop's mappings and constraints write them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any

from silicast.accelerator.counting.einsum import Einsum
from silicast.core.errors import SilicastError

_FACTOR = re.compile(r"(\w+?)\s*(<=|=|)\s*(\d+)$")
REST = 0
"""A factor of 0: all that the others leave of its dimension."""


def factors(value: Any, einsum: Einsum, field: str, file: str) -> list[tuple[str, str, int]]:
    """(dimension, sign, bound) of ``C3 M1``, ``N=1,C<=8`` or a list of such words.

    Raises:
        SilicastError: no such dimension, one that is given twice, or more than it has.
    """
    text = re.sub(r"\s*(<=|=)\s*", r"\1", str(value if value is not None else "").strip())
    parts = value if isinstance(value, list) else re.split(r"[\s,]+", text)
    factors: list[tuple[str, str, int]] = []
    for part in parts:
        if not str(part):
            continue
        match = _FACTOR.match(str(part).strip())
        if match is None:
            raise SilicastError(f"expected C=3, found {part!r}", field=field, file=file)
        dim, sign, bound = match[1], match[2] or "=", int(match[3])
        if dim not in einsum.bounds:
            raise SilicastError(
                f"no dimension {dim!r}",
                field=field,
                file=file,
                hint=f"there are {', '.join(einsum.dims)}",
            )
        if any(dim == other_dim and sign == before for other_dim, before, _ in factors):
            raise SilicastError(f"gives {dim} twice", field=field, file=file)
        # Of a dimension of 1, rules for other problems are cut: a reference design has such.
        if sign == "=" and bound > einsum.bounds[dim] > 1:
            raise SilicastError(
                f"{dim} has {einsum.bounds[dim]}, found a factor of {bound}", field=field, file=file
            )
        factors.append((dim, sign, bound))
    return factors


def permutation(value: Any, einsum: Einsum, field: str, file: str) -> list[str]:
    """Dimensions, innermost first.

    Raises:
        SilicastError: no such dimension, or one that is given twice.
    """
    if value is None:
        return []
    parts = value if isinstance(value, list) else re.split(r"[\s,]+", str(value).strip())
    if len(parts) == 1 and parts[0] not in einsum.dims:
        parts = list(str(parts[0]))
    permutation = [str(part) for part in parts if part]
    for part in permutation:
        if part not in einsum.dims:
            raise SilicastError(f"no dimension {part!r}", field=field, file=file)
        if permutation.count(part) > 1:
            raise SilicastError(f"gives {part} twice", field=field, file=file)
    return permutation


def axes_of(fixed: Mapping[str, int], mesh: Iterable[int]) -> dict[str, int] | None:
    """Dimension -> axis of a mesh, so that all factors fit and most is left; None = they do not.

    Timeloop puts every dimension on one axis.

    >>> axes_of({"M": 4, "N": 4}, (4, 4)) in ({"M": 0, "N": 1}, {"M": 1, "N": 0})
    True
    >>> axes_of({"M": 16}, (4, 4)) is None
    True
    """
    sizes = tuple(mesh)
    wide = [dim for dim, bound in fixed.items() if bound > 1]
    best, most = None, 0
    for chosen in product(range(len(sizes)), repeat=len(wide)):
        used = [
            math.prod(fixed[dim] for dim, axis in zip(wide, chosen, strict=True) if axis == at)
            for at in range(len(sizes))
        ]
        left = math.prod(size // taken for size, taken in zip(sizes, used, strict=True))
        if left > most:
            best, most = dict(zip(wide, chosen, strict=True)), left
    return best


def split_axes(inward: list[str], einsum: Einsum, split: int) -> dict[str, int]:
    """Dimension -> axis: the first ``split`` of an order stand along x, the others along y."""
    every = inward + [dim for dim in einsum.dims if dim not in inward]
    return {dim: 0 if index < split else 1 for index, dim in enumerate(every)}


def split_of(entry: Mapping[str, Any], field: str, file: str) -> int | None:
    """The ``split`` of a loop list; None = not given."""
    value = entry.get("split")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise SilicastError(
            f"expected a whole number, found {value!r}", field=f"{field}.split", file=file
        )
    return value
