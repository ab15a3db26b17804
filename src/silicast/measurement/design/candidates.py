"""Kernels that fill the ranges of an op evenly: a sequence of low discrepancy, in logs of sizes.

Point i has the coordinates ``frac(start + i x powers of 1 / g)``, g the root of g^(d+1) = g + 1
(Roberts 2018): each further point falls into the largest gap, so that any first part of the
sequence fills the space too. Choices are coordinates as sizes are.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from silicast.core.numerics import F64
from silicast.measurement.benches.ranges import Ranges, Size
from silicast.measurement.records import Columns

TRIES = 30
"""Draws for each kernel that is wanted: many come to the same after rounding, or are refused."""
UNALIGNED = 0.25
"""Share of the values of a size without a multiple that are left as they fall; the others come to
a power of two or a half more, which most work has."""


def _anything(kernel: Columns) -> bool:
    del kernel
    return True


def candidates_from(
    ranges: Ranges, count: int, seed: int, keep: Callable[[Columns], bool] = _anything
) -> list[Columns]:
    """Different kernels, evenly spread; fewer than ``count`` where the ranges hold no more.

    Args:
        seed: where the sequence starts; keep: which kernels can be measured.

    >>> from silicast.measurement.benches.ranges import Ranges, Size
    >>> two = Ranges("softmax", {"rows": Size(1, 64), "cols": Size(8, 8)}, {"dtype": ("fp32",)})
    >>> candidates_from(two, 3, 0)[0]["cols"]
    8
    """
    names = (*ranges.sizes, *ranges.choices)
    sequence = _Sequence(len(names) + 1, seed)
    found: dict[tuple[object, ...], Columns] = {}
    for number in range(TRIES * count):
        if len(found) == count:
            break
        point = dict(zip((*names, ""), sequence.point(number).tolist(), strict=True))
        drawn: dict[str, object] = {
            name: _value(size, point[name], aligned=_fraction(point[""], place) >= UNALIGNED)
            for place, (name, size) in enumerate(ranges.sizes.items())
        }
        for name, values in ranges.choices.items():
            drawn[name] = values[min(int(point[name] * len(values)), len(values) - 1)]
        kernel = ranges.kernel(drawn)
        key = tuple(sorted((name, str(value)) for name, value in kernel.items()))
        if key not in found and keep(kernel):
            found[key] = kernel
    return list(found.values())


class _Sequence:
    """Roberts' sequence in some dimensions, from a random start."""

    def __init__(self, dimensions: int, seed: int) -> None:
        root = 2.0
        for _ in range(64):
            root = (1.0 + root) ** (1.0 / (dimensions + 1))
        self._steps = root ** -np.arange(1.0, dimensions + 1.0)
        self._start = np.random.default_rng(seed).random(dimensions)

    def point(self, number: int) -> F64:
        """Coordinates from 0 to 1."""
        return np.mod(self._start + number * self._steps, 1.0)


def _fraction(value: float, place: int) -> float:
    """Another number from 0 to 1 for each size."""
    return math.modf(value * (place + 1) * 97.0)[0]


def _value(size: Size, share: float, *, aligned: bool) -> float:
    if size.low >= size.high:
        return size.low
    if size.scale == "linear":
        return size.low + share * (size.high - size.low)
    value = math.exp(math.log(max(size.low, 1)) + share * math.log(size.high / max(size.low, 1)))
    if aligned and size.multiple < 8:
        power = 2.0 ** math.floor(math.log2(value))
        value = min((power, 1.5 * power, 2.0 * power), key=lambda near: abs(near - value))
    return value
