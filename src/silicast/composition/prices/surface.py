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
from typing import Any, final

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
FIRST_WIDE = 2 * COUNTS_OF_OCTAVE
"""Cells of fewer sequences are those of one number."""
SIDE = 4
"""Cells on a side of a box of mean lengths and ratios."""
CELLS = 1 << 16
"""Cells that are remembered at most."""

State = Any
"""A step, as the owner of a surface describes it."""
Key = tuple[int, int, int, int, int]
"""Place in the grid of clocks, level, numbers of the cell's sequences, mean and ratio."""
Cell = tuple[tuple[tuple[float, ...], ...], float, float, float, float, float, float]
"""Each value at the corners, count first and ratio last; then where the cell begins and one over
its width: sequences, mean, ratio."""
INSIDE = 1e-9
"""How far from the border of a cell a step is in it whatever logs are rounded to."""


@final
class Surface:
    """A surface over the sequences of a step.

    Args:
        states: sequences, means and ratios of several steps, arrays of shape (n,) -> steps that
            have these numbers as nearly as they can.
        numbers: a step -> its own mean and ratio.
        evaluated: a place in the grid of clocks and steps -> values, shape (steps, values).
        near: found and exact values of a step, a place, sequences, a mean -> whether the first are
            near enough.
        together: neighbouring numbers of sequences that are evaluated at once.
    """

    def __init__(
        self,
        states: Callable[[int, F64, F64], list[State]],
        numbers: Callable[[State], tuple[float, float]],
        evaluated: Callable[[int, Sequence[State]], F64],
        near: Callable[[F64, F64, int, F64], Flags],
        together: int = 1,
    ) -> None:
        self._states, self._numbers, self._evaluated = states, numbers, evaluated
        self._near, self._together = near, together
        self._cells: dict[Key, Cell | None] = {}
        self._last: dict[int, tuple[float, float, float, float, Cell]] = {}
        self._asked: tuple[tuple[float, ...], Values, tuple[int, int, int]] = (), (), (0, 0, 0)

    def at(self, index: int, count: int, mean: float, ratio: float) -> Values:
        """Values of a step; they depend on the arguments alone.

        Args:
            index: in the grid of clocks.
        """
        if not index:
            return self._at_boost(count, mean, ratio)
        step = (count, mean, ratio)
        if self._asked[0] != step:  # a step is asked at boost first, then at slower clocks
            octave, over = _octave(mean), _octave(ratio)
            self._asked = step, self._at_boost(*step), _cell(0, count, octave, over)
        _, values, cell_numbers = self._asked
        key = (index, 0, *cell_numbers)
        if key not in self._cells:
            self._fill(*key)
        cell = self._cells[key]
        assert cell is not None
        times = _between(cell, count, mean, ratio)
        return tuple([value * more for value, more in zip(values, times, strict=True)])

    def _at_boost(self, count: int, mean: float, ratio: float) -> Values:
        last = self._last.get(count)
        if last is not None:  # mostly in the cell of the step before
            low, high, least, most, inside = last
            if low < mean < high and least < ratio < most:
                return _between(inside, count, mean, ratio)
        octave, over = _octave(mean), _octave(ratio)
        cells, level, cell = self._cells, 0, None
        while cell is None:
            key = (0, level, *_cell(level, count, octave, over))
            if key not in cells:
                self._fill(*key)
            cell = cells[key]
            level += 1
        self._last[count] = (*_inside(cell[3], cell[4]), *_inside(cell[5], cell[6]), cell)
        return _between(cell, count, mean, ratio)

    def _fill(self, index: int, level: int, number: int, column: int, row: int) -> None:
        """Evaluates the box in which a cell lies, with those of neighbouring numbers of sequences;
        at other clocks than boost, over values there.
        """
        column, row = column // SIDE * SIDE, row // SIDE * SIDE
        numbers = self._beside(index, level, number, column, row)
        if len(self._cells) + len(numbers) * SIDE * SIDE > CELLS:
            self._cells.clear()
        steps = np.arange(SIDE + 1)
        means = 2.0 ** ((column + steps) / (MEANS_OF_OCTAVE << level))
        ratios = 2.0 ** ((row + steps) / (RATIOS_OF_OCTAVE << level))
        corners = np.repeat(means, SIDE + 1), np.tile(ratios, SIDE + 1)
        checked = level < FINEST
        inside = [(each[1:] + each[:-1]) / 2.0 for each in (means, ratios)]
        middles = np.repeat(inside[0], SIDE), np.tile(inside[1], SIDE)
        states: list[State] = []
        ends: list[tuple[int, int]] = []
        for each in numbers:
            planes = _planes(level, each)
            for count in planes:
                states += self._states(count, *corners)
            end = len(states)
            if checked:  # at other clocks too: then it is what was asked at boost
                states += self._states((planes[0] + planes[-1]) // 2, *middles)
            ends.append((end, len(states)))
        result = self._evaluated(0, states)
        if index:
            slow = self._evaluated(index, states)
            result = np.divide(slow, result, out=np.ones_like(slow), where=result != 0.0)
        begin = 0
        for each, (first, last) in zip(numbers, ends, strict=True):
            planes = _planes(level, each)
            cells = _cells_of(planes, result[begin:first], means, ratios)
            begin, holds = last, [True] * len(cells)
            if checked and not index:
                middle = (planes[0] + planes[-1]) // 2
                expected = [
                    _between(cell, middle, *self._numbers(state))
                    for cell, state in zip(cells, states[first:last], strict=True)
                ]
                near = self._near(np.array(expected), result[first:last], middle, middles[0])
                holds = near.tolist()
            for position, (cell, good) in enumerate(zip(cells, holds, strict=True)):
                key = (index, level, each, column + position // SIDE, row + position % SIDE)
                self._cells[key] = cell if good else None

    def _beside(self, index: int, level: int, number: int, column: int, row: int) -> list[int]:
        """Cells of sequences that are filled along with one: alone few take as long as one."""
        if level or number >= FIRST_WIDE or self._together == 1:
            return [number]
        first = number // self._together * self._together
        return [
            each
            for each in range(max(first, 1), first + self._together)
            if (index, level, each, column, row) not in self._cells
        ]


def _cells_of(planes: tuple[int, ...], values: F64, means: F64, ratios: F64) -> list[Cell]:
    """The cells of a box.

    Args:
        planes: numbers of sequences at its two ends; one number where there is none between them.
        values: at the corners, of the first plane and then of the other, shape (corners, values).
    """
    corners = [
        [tuple(row) for row in plane.tolist()]
        for plane in values.reshape(len(planes), (SIDE + 1) ** 2, -1)
    ]
    cells: list[Cell] = []
    for x in range(SIDE):
        for y in range(SIDE):
            first = x * (SIDE + 1) + y
            ends = (first, first + 1, first + SIDE + 1, first + SIDE + 2)
            cells.append(
                (
                    tuple(zip(*(plane[end] for plane in corners for end in ends), strict=True)),
                    planes[0],
                    1.0 / (planes[-1] - planes[0] or 1),
                    float(means[x]),
                    1.0 / float(means[x + 1] - means[x]),
                    float(ratios[y]),
                    1.0 / float(ratios[y + 1] - ratios[y]),
                )
            )
    return cells


def _planes(level: int, number: int) -> tuple[int, ...]:
    """Numbers of sequences at the ends of a cell; one where no other number is in it."""
    low, high = (_counts(level)[each] for each in (number, number + 1))
    return (low,) if high - low == 1 else (low, high)


def _octave(number: float) -> float:
    """The binary log of a number, of at least 1."""
    return math.log2(number) if number > 1.0 else 0.0


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
    first, octave = FIRST_WIDE << level, COUNTS_OF_OCTAVE << level
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
