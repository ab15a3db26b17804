"""What the clock of a device changes of a record, as numbers that a tape takes.

A tape (:mod:`silicast.kernels.taped`) of a formula at one clock holds constants of that clock. They
are few: what a kernel model makes of a device (rates, steps of tiles, a power budget) is a record,
and the numbers in it that differ from clock to clock are inputs of one tape for all clocks. What
else differs (a number by which a formula decides, a text) is found, and no tape is asked there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, final

import numpy as np

from silicast.core import xp
from silicast.core.xp import UntraceableError
from silicast.kernels.in_blocks import parts_of, with_parts


@final
class ClockInputs:
    """Numbers of a record that differ by the clock.

    Args:
        record_of: a clock -> the record there.
        clocks: some of them, by which numbers that differ are told.

    Raises:
        UntraceableError: something that is no number differs.
    """

    def __init__(self, record_of: Callable[[int], Any], clocks: Sequence[int]) -> None:
        self._record_of = record_of
        self._record = record_of(clocks[0])
        self._leaves = list(_leaves(self._record))
        self._known: dict[int, tuple[float, ...] | None] = {}
        others = [list(_leaves(record_of(clock))) for clock in clocks[1:]]
        if any(len(other) != len(self._leaves) for other in others):
            raise UntraceableError("a record of other parts")
        self._differs = [
            any(not _equal(leaf, other[at]) for other in others)
            for at, leaf in enumerate(self._leaves)
        ]
        taken = [leaf for leaf, differs in zip(self._leaves, self._differs, strict=True) if differs]
        if not all(map(_is_numbers, taken)):
            raise UntraceableError("something that is no number differs by the clock")
        self.count = sum(np.size(leaf) for leaf in taken)

    def numbers(self, clock: int) -> tuple[float, ...] | None:
        """Those of a clock; None = more than them differs there."""
        if clock not in self._known:
            self._known[clock] = self._numbers(list(_leaves(self._record_of(clock))))
        return self._known[clock]

    def _numbers(self, leaves: list[Any]) -> tuple[float, ...] | None:
        numbers: list[float] = []
        if len(leaves) != len(self._leaves):
            return None
        for leaf, first, differs in zip(leaves, self._leaves, self._differs, strict=True):
            if differs and np.shape(leaf) == np.shape(first):
                numbers.extend(np.ravel(leaf).tolist())
            elif not _equal(leaf, first):
                return None
        return tuple(numbers)

    def filled(self, numbers: Sequence[Any]) -> Any:
        """The record with numbers, or symbols, in the places of those that differ."""
        further, leaves = iter(numbers), []
        for leaf, differs in zip(self._leaves, self._differs, strict=True):
            if not differs:
                leaves.append(leaf)
            elif isinstance(leaf, float):
                leaves.append(next(further))
            else:
                leaves.append(xp.stack(*[next(further) for _ in range(leaf.size)]))
        return _rebuilt(self._record, iter(leaves))


def _leaves(value: Any) -> Iterator[Any]:
    parts = parts_of(value)
    if parts is None:
        yield value
    else:
        for part in parts:
            yield from _leaves(part)


def _rebuilt(value: Any, leaves: Iterator[Any]) -> Any:
    parts = parts_of(value)
    if parts is None:
        return next(leaves)
    return with_parts(value, [_rebuilt(part, leaves) for part in parts])


def _is_numbers(value: Any) -> bool:
    """Whether it is a float, or a column of them."""
    if isinstance(value, np.ndarray):
        return bool(value.dtype.kind == "f" and value.shape == (value.size, 1))
    return isinstance(value, float)


def _equal(first: Any, other: Any) -> bool:
    if first is other:
        return True
    if type(first) is not type(other):
        return False
    return bool(np.array_equal(first, other) if isinstance(first, np.ndarray) else first == other)
