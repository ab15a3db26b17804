"""Times of attention in decode steps as a surface over three numbers of a step.

What attention over cached tokens takes depends on every sequence's length, but nearly all of it
through the number of sequences, their mean and the longest. A surface evaluates the full model at
sequences of which one is the longest and all others are spread evenly, at the corners of a box of
cells at once when the first of them is visited, and interpolates inside a cell.

A cell in whose middle the interpolation is not within :data:`TOLERANCE` of the full model is made
of smaller ones, down to :data:`FINEST`: there a kernel's time jumps, and what is between the two
sides of a jump lies in a cell so small that few steps meet it. Sequences count as long as a node
sees them: no longer than its window, or from the beginning of their chunk.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import cache
from typing import final

import numpy as np

from silicast.composition.call_values import CallValues, Clocks, Values, remember
from silicast.composition.node_times import NodeGroup
from silicast.composition.timer import Timer
from silicast.core.numerics import F64, I64
from silicast.workload.symbols import DECODE_KV

COUNTS_OF_OCTAVE = 8
"""Cells in an octave of sequences."""
TOKENS_OF_OCTAVE = 4
"""Cells in an octave of the mean length."""
RATIOS_OF_OCTAVE = 2
"""Cells in an octave of the longest sequence over the mean one."""
FINEST = 2
"""How often cells are halved."""
SIDE = 4
"""Cells on a side of a box of mean lengths and ratios."""
TOLERANCE = 0.005
"""Largest error, in the middle of a cell, of a step that decodes."""
CELLS = 1 << 16
"""Cells that are remembered at most."""
MOST = 1 << 21
"""Sequences at most in one evaluation (tens of megabytes)."""

Cell = tuple[tuple[Values, ...], float, float, float, float, float, float]
"""Values at the corners, ratio last and count first; then where the cell begins and one over its
width: count, mean, ratio."""


@final
class DecodeSurface:
    """One group of attention nodes.

    Args:
        timer: prices the grid.
        members: places of the nodes.
        device: clocks.
        rest_s: a place in the grid of clocks, sequences -> what all other nodes of a decode step
            take.
    """

    def __init__(
        self,
        timer: Timer,
        group: NodeGroup,
        members: Sequence[int],
        device: Clocks,
        rest_s: Callable[[int, int], float],
    ) -> None:
        self.members = tuple(members)
        self._calls, self._rest_s = CallValues(timer, group, members, device), rest_s
        op = timer.nodes[self.members[0]].op
        window = dict(op.dims).get("window", 0)
        assert isinstance(window, int)
        self._window, self._chunked = window, op.variant.flag("chunked")
        self._cells: dict[tuple[int, int, int, int, int], Cell | None] = {}

    @staticmethod
    def describes(timer: Timer, index: int) -> bool:
        """Whether a node's sizes are the cached tokens of the sequences in decode, and numbers."""
        op = timer.nodes[index].op
        return [(name, dim) for name, dim in op.dims if not isinstance(dim, int)] == [
            ("kv_len", DECODE_KV)
        ]

    def at(self, place: int, cached: I64, tokens: int, longest: int) -> Values:
        """Values as of :func:`values_of`; they depend on the arguments alone.

        Args:
            place: in the grid of clocks.
            cached: tokens of each sequence without the new one.
            tokens: of all sequences, the new ones included; ``longest``: of the longest.
        """
        count = len(cached)
        if self._window and longest > self._window:
            seen = cached % self._window if self._chunked else np.minimum(cached, self._window - 1)
            tokens, longest = int(seen.sum()) + count, int(seen.max()) + 1
        mean = tokens / count
        ratio = longest / mean
        octave, over = math.log2(mean), math.log2(ratio) if ratio > 1.0 else 0.0
        cells, level = self._cells, 0
        while True:
            number = bisect_right(_counts(level), count) - 1
            column = int(octave * (TOKENS_OF_OCTAVE << level))
            row = int(over * (RATIOS_OF_OCTAVE << level))
            key = (0, level, number, column, row)
            if key not in cells:
                self._fill(*key)
            if (cell := cells[key]) is not None:
                break
            level += 1
        if place:  # cells are as large as at boost
            key = (place, level, number, column, row)
            if key not in cells:
                self._fill(*key)
            cell = cells[key]
            assert cell is not None
        return _between(cell, count, mean, ratio)

    def _fill(self, place: int, level: int, number: int, column: int, row: int) -> None:
        """Evaluates the box in which a cell lies."""
        side = SIDE
        low, high = _counts(level)[number : number + 2]
        planes = [low] if high - low == 1 else [low, high]
        columns, rows = (range(each // side * side, each // side * side + side + 1)
                         for each in (column, row))  # fmt: skip
        means = 2.0 ** (np.array(columns) / (TOKENS_OF_OCTAVE << level))
        ratios = 2.0 ** (np.array(rows) / (RATIOS_OF_OCTAVE << level))
        lists: list[I64] = []
        for count in planes:
            lists += _sequences(count, np.repeat(means, side + 1), np.tile(ratios, side + 1))
        if level < FINEST:
            middles = ((each[1:] + each[:-1]) / 2.0 for each in (means, ratios))
            mean, ratio = (each for each in middles)
            lists += _sequences((low + planes[-1]) // 2, np.repeat(mean, side), np.tile(ratio, side))
        found = self._values(place, lists)
        corners = found[: len(planes) * (side + 1) ** 2].reshape(
            len(planes), side + 1, side + 1, -1
        )
        checked = found[corners.shape[0] * (side + 1) ** 2 :]
        rest_s = self._rest_s(place, low)
        for x in range(side):
            for y in range(side):
                cell: Cell = (
                    tuple(
                        tuple(corners[z, x + right, y + up].tolist())
                        for z in range(len(planes)) for right in (0, 1) for up in (0, 1)
                    ),
                    low, 1.0 / (high - low),
                    float(means[x]), 1.0 / float(means[x + 1] - means[x]),
                    float(ratios[y]), 1.0 / float(ratios[y + 1] - ratios[y]),
                )  # fmt: skip
                holds = True
                if level < FINEST and not place:
                    at = x * side + y
                    each = lists[len(planes) * (side + 1) ** 2 + at]
                    count, tokens = len(each), int(each.sum()) + len(each)
                    expected = _between(
                        cell, count, tokens / count, (int(each.max()) + 1) * count / tokens
                    )
                    holds = bool(
                        self._calls.near(np.array(expected), checked[at], rest_s, TOLERANCE)
                    )
                key = (place, level, number, columns[x], rows[y])
                remember(self._cells, key, cell if holds else None, CELLS)

    def _values(self, place: int, lists: Sequence[I64]) -> F64:
        """Of several steps by the cached tokens of their sequences, shape (steps, values)."""
        each = max(MOST // max(len(lists[0]), len(lists[-1])), 1)
        parts = [lists[start : start + each] for start in range(0, len(lists), each)]
        return np.concatenate([self._calls.of(place, [()] * len(part), part) for part in parts])


@cache
def _counts(level: int) -> tuple[int, ...]:
    """Numbers of sequences at which cells of a level begin: every one, then so many an octave."""
    first, octave = (2 * COUNTS_OF_OCTAVE) << level, COUNTS_OF_OCTAVE << level
    return (*range(first), *(int(first * 2.0 ** (k / octave)) for k in range(20 * octave)))


def _between(cell: Cell, count: int, mean: float, ratio: float) -> Values:
    """What lies between the corners of a cell."""
    corners, first, per_count, low, per_mean, least, per_ratio = cell
    right, up = (mean - low) * per_mean, (ratio - least) * per_ratio
    left, down = 1.0 - right, 1.0 - up
    s, t, u, v = left * down, left * up, right * down, right * up
    if len(corners) == 4:
        return tuple(
            [a * s + b * t + c * u + d * v for a, b, c, d in zip(*corners, strict=True)]
        )
    far = (count - first) * per_count
    near = 1.0 - far
    return tuple(
        [
            (a * s + b * t + c * u + d * v) * near + (e * s + f * t + g * u + h * v) * far
            for a, b, c, d, e, f, g, h in zip(*corners, strict=True)
        ]
    )


def _sequences(count: int, mean: F64, ratio: F64) -> list[I64]:
    """Cached tokens of the sequences of several steps, the longest first, the others spread evenly
    around their mean.

    Args:
        count: of the sequences.
        mean: of their tokens with the new one; ``ratio``: of the longest to it, as near as can be.

    >>> _sequences(4, np.array([100.0]), np.array([1.5]))[0].tolist()
    [149, 60, 82, 105]
    """
    tokens = np.rint(mean * count)
    if count == 1:
        return list((tokens[:, None] - 1.0).astype(np.int64))
    others = count - 1
    longest = np.maximum(np.rint(ratio * tokens / count), np.ceil(tokens / count))
    longest = np.minimum(longest, tokens - others)
    middle = (tokens - longest) / others
    width = np.minimum(1.0, longest / middle - 1.0)
    shape = 2.0 * (np.arange(others) + 0.5) / others - 1.0
    lengths = middle[:, None] + ((middle - 1.0) * width)[:, None] * shape
    ends = np.rint(np.cumsum(lengths, axis=1))
    found = np.maximum(np.diff(ends, prepend=0.0, axis=1) - 1.0, 0.0)
    return list(np.concatenate((longest[:, None] - 1.0, found), axis=1).astype(np.int64))
