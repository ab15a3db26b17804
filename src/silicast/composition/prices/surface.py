"""What nodes take as a function of three numbers of a step, in cells that are halved where needed.

The numbers are sequences, their mean length, and a ratio of at least 1 that says how lengths are
distributed. The full model is evaluated at the corners of a box of cells at once when the first of
them is visited; inside a cell values are interpolated. A cell in whose middle the interpolation is
not near enough is made of smaller ones, down to :data:`FINEST`: there a kernel's time jumps, and
what lies between the two sides of a jump is in a cell so small that few steps meet it. By what a
slower clock multiplies values is smooth: such cells are not halved.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import cache
from typing import Generic, TypeVar, final

import numpy as np

from silicast.composition.prices.call_values import Flags, Values
from silicast.core.numerics import F64

COUNTS_OF_OCTAVE = 8
"""Cells in an octave of sequences."""
MEANS_OF_OCTAVE = 4
"""Cells in an octave of the mean length."""
RATIOS_OF_OCTAVE = 2
"""Cells in an octave of the ratio."""
FINEST = 3
"""How often cells are halved."""
SIDE = 4
"""Cells on a side of a box of mean lengths and ratios."""
CELLS = 1 << 16
"""Cells that are remembered at most."""

State = TypeVar("State")
Key = tuple[int, int, int, int, int]
"""Place in the grid of clocks, level, numbers of the cell's sequences, mean and ratio."""
Cell = tuple[tuple[tuple[float, ...], ...], float, float, float, float, float, float]
"""Each value at the corners, count first and ratio last; then where the cell begins and one over
its width: sequences, mean, ratio."""
INSIDE = 1e-9
"""How far from the border of a cell a step is in it whatever logs are rounded to."""


@final
class Surface(Generic[State]):
    """A surface over the sequences of a step.

    Args:
        states: sequences, means and ratios of several steps, arrays of shape (n,) -> steps that
            have these numbers as nearly as they can.
        numbers: a step -> its own mean and ratio.
        evaluated: a place in the grid of clocks and steps -> values, shape (steps, values).
        near: found and exact values of a step, a place, sequences, a mean -> whether the first are
            near enough.
    """

    def __init__(
        self,
        states: Callable[[int, F64, F64], list[State]],
        numbers: Callable[[State], tuple[float, float]],
        evaluated: Callable[[int, Sequence[State]], F64],
        near: Callable[[F64, F64, int, F64], Flags],
    ) -> None:
        self._states, self._numbers, self._evaluated = states, numbers, evaluated
        self._near = near
        self._cells: dict[Key, Cell | None] = {}
        self._last: dict[int, tuple[float, float, float, float, Cell]] = {}

    def at(self, index: int, count: int, mean: float, ratio: float) -> Values:
        """Values of a step; they depend on the arguments alone.

        Args:
            index: in the grid of clocks.
        """
        last = self._last.get(count)
        if last is not None and not index:  # mostly in the cell of the step before
            low, high, least, most, inside = last
            if low < mean < high and least < ratio < most:
                return _between(inside, count, mean, ratio)
        octave = math.log2(mean) if mean > 1.0 else 0.0
        over = math.log2(ratio) if ratio > 1.0 else 0.0
        cells, level, cell = self._cells, 0, None
        while cell is None:
            key = (0, level, *_cell(level, count, octave, over))
            if key not in cells:
                self._fill(*key)
            cell = cells[key]
            level += 1
        values = _between(cell, count, mean, ratio)
        if not index:
            self._last[count] = (*_inside(cell[3], cell[4]), *_inside(cell[5], cell[6]), cell)
            return values
        key = (index, 0, *_cell(0, count, octave, over))
        if key not in cells:
            self._fill(*key)
        cell = cells[key]
        assert cell is not None
        times = _between(cell, count, mean, ratio)
        return tuple([value * more for value, more in zip(values, times, strict=True)])

    def _fill(self, index: int, level: int, number: int, column: int, row: int) -> None:
        """Evaluates the box in which a cell lies; at other clocks than boost, over values there."""
        if len(self._cells) + SIDE * SIDE > CELLS:
            self._cells.clear()
        low, high = _counts(level)[number : number + 2]
        planes = (low,) if high - low == 1 else (low, high)
        column, row = column // SIDE * SIDE, row // SIDE * SIDE
        steps = np.arange(SIDE + 1)
        means = 2.0 ** ((column + steps) / (MEANS_OF_OCTAVE << level))
        ratios = 2.0 ** ((row + steps) / (RATIOS_OF_OCTAVE << level))
        at = np.repeat(means, SIDE + 1), np.tile(ratios, SIDE + 1)
        states = [each for count in planes for each in self._states(count, *at)]
        corners, middles = len(states), (low + planes[-1]) // 2
        checked = level < FINEST and not index
        if checked:
            inside = [(each[1:] + each[:-1]) / 2.0 for each in (means, ratios)]
            at = np.repeat(inside[0], SIDE), np.tile(inside[1], SIDE)
            states += self._states(middles, *at)
        result = self._evaluated(0, states)
        if index:
            slow = self._evaluated(index, states)
            result = np.divide(slow, result, out=np.ones_like(slow), where=result != 0.0)
        values = [
            [tuple(row) for row in plane.tolist()]
            for plane in result[:corners].reshape(len(planes), (SIDE + 1) ** 2, -1)
        ]
        cells: list[Cell] = []
        for x in range(SIDE):
            for y in range(SIDE):
                first = x * (SIDE + 1) + y
                ends = (first, first + 1, first + SIDE + 1, first + SIDE + 2)
                cells.append(
                    (
                        tuple(zip(*(plane[end] for plane in values for end in ends), strict=True)),
                        low,
                        1.0 / (high - low),
                        float(means[x]),
                        1.0 / float(means[x + 1] - means[x]),
                        float(ratios[y]),
                        1.0 / float(ratios[y + 1] - ratios[y]),
                    )
                )
        holds = np.ones(len(cells), dtype=bool)
        if checked:
            expected = [
                _between(cell, middles, *self._numbers(state))
                for cell, state in zip(cells, states[corners:], strict=True)
            ]
            holds = self._near(np.array(expected), result[corners:], middles, at[0])
        for number_, (cell, good) in enumerate(zip(cells, holds.tolist(), strict=True)):
            key = (index, level, number, column + number_ // SIDE, row + number_ % SIDE)
            self._cells[key] = cell if good else None


def _cell(level: int, count: int, octave: float, over: float) -> tuple[int, int, int]:
    """Numbers of the cell of a step by the binary logs of its mean and ratio."""
    number = bisect_right(_counts(level), count) - 1
    return (
        number,
        int(octave * (MEANS_OF_OCTAVE << level)),
        int(over * (RATIOS_OF_OCTAVE << level)),
    )


@cache
def _counts(level: int) -> tuple[int, ...]:
    """Numbers of sequences at which cells of a level begin: every one, then so many an octave."""
    first, octave = (2 * COUNTS_OF_OCTAVE) << level, COUNTS_OF_OCTAVE << level
    return (*range(first), *(int(first * 2.0 ** (k / octave)) for k in range(20 * octave)))


def _inside(begin: float, per: float) -> tuple[float, float]:
    """What is surely between the ends of one side of a cell."""
    return begin * (1.0 + INSIDE), (begin + 1.0 / per) * (1.0 - INSIDE)


def _between(cell: Cell, count: int, mean: float, ratio: float) -> Values:
    """What lies between the corners of a cell."""
    columns, first, per_count, low, per_mean, least, per_ratio = cell
    right, up = (mean - low) * per_mean, (ratio - least) * per_ratio
    left, down = 1.0 - right, 1.0 - up
    s, t, u, v = left * down, left * up, right * down, right * up
    if len(columns[0]) == 4:
        return tuple([a * s + b * t + c * u + d * v for a, b, c, d in columns])
    far = (count - first) * per_count
    near = 1.0 - far
    return tuple(
        [
            (a * s + b * t + c * u + d * v) * near + (e * s + f * t + g * u + h * v) * far
            for a, b, c, d, e, f, g, h in columns
        ]
    )
