"""Sizes a little larger than a dimension's, whose loops fill an array or tile a memory better.

A mapping of the larger problem is one of the real one: its last iterations are cut short, and the
accounting counts that exactly.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from silicast.accelerator.counting.einsum import Einsum
from silicast.accelerator.design.architecture import Architecture
from silicast.accelerator.mapper._lattice import divisors_of
from silicast.accelerator.mapper.constraints import Constraints

LONGEST = 1.25
"""A size is made larger by this factor at most."""
USEFUL = 1.1
"""More instances that must get work, all cuts counted, for a size to be tried."""
FEW = 4
"""Divisors of a size that leave memories hardly a choice of tiles."""
MOST_COMBINED = 4096
"""Combinations of sizes that are compared, of problems with many dimensions."""
MOST_TRIED = 4
"""Of these, the most promising are mapped."""
SMALL = 16
"""Sizes that need no tiles."""


def padded(
    einsum: Einsum, architecture: Architecture, rules: Constraints, *, fills: bool
) -> Iterator[Einsum]:
    """The problem with sizes that may be worth it, the most promising first.

    Args:
        fills: whether arrays are to be filled; else only sizes are changed that have few divisors.

    >>> from silicast.accelerator.design.architecture import Compute, FanOut, Memory
    >>> from silicast.accelerator.counting.einsum import matmul
    >>> chip = Architecture("x", (Memory("dram"), FanOut("array", (16,))), Compute("mac"))
    >>> [dict(e.bounds) for e in padded(matmul(m=31, n=8, k=8), chip, Constraints(), fills=True)]
    [{'M': 32, 'N': 8, 'K': 8}]
    """
    axes = {number: slot.limit for number, slot in enumerate(architecture.slots) if slot.is_spatial}
    options: dict[str, tuple[int, ...]] = {}
    for dim, size in einsum.bounds.items():
        better = {
            _fuller(size, int(limit))
            for number, limit in axes.items()
            if fills and rules.rule(architecture, number).fixed.get(dim, 0) == 0
        }
        if size > SMALL and len(divisors_of(size)) <= FEW:
            better.add(_rounder(size))
        options[dim] = (size, *sorted(better - {size}))
    sizes = [
        dict(zip(options, chosen, strict=True))
        for chosen in itertools.islice(itertools.product(*options.values()), 1, MOST_COMBINED)
    ]

    def promise(bounds: Mapping[str, int]) -> tuple[float, float]:
        useful = math.prod(einsum.bounds[dim] / new for dim, new in bounds.items())
        working = _working(bounds, axes, rules, architecture) if fills else 1.0
        tiles = math.prod(len(divisors_of(new)) / new for new in bounds.values())
        return useful * working, tiles

    for bounds in sorted(sizes, key=promise, reverse=True)[:MOST_TRIED]:
        yield replace(einsum, bounds=bounds)


def _working(
    bounds: Mapping[str, int],
    axes: Mapping[int, float],
    rules: Constraints,
    architecture: Architecture,
) -> float:
    """Instances that get work, at most: each axis takes what fills it best of all dimensions."""
    working = 1.0
    for number, limit in axes.items():
        fixed = rules.rule(architecture, number).fixed
        fills = {1.0}
        for dim, size in bounds.items():
            if fixed.get(dim, 0) == 0:
                parts = [f for f in divisors_of(size) if f <= limit]
                fills = {a * b for a in fills for b in parts if a * b <= limit}
        working *= max(fills)
    return working


def _fuller(size: int, limit: int) -> int:
    """The size of which an axis of so many instances has most work.

    >>> _fuller(27, 14), _fuller(28, 14)
    (28, 28)
    """

    def working(new: int) -> float:
        return size / new * max(int(f) for f in divisors_of(new) if f <= limit)

    longest = min(int(size * LONGEST), size + limit)
    best = max(range(size, longest + 1), key=lambda new: (working(new), -new))
    return best if working(best) > USEFUL * working(size) else size


def _rounder(size: int) -> int:
    """The next multiple of a power of two that is at most a thirty-second of the size."""
    step = 1 << max(1, int(math.log2(size / 32))) if size >= 64 else 2
    return math.ceil(size / step) * step
