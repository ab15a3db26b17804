"""Times of attention in decode steps as a surface over three numbers of a step.

What attention over cached tokens takes depends on every sequence's length, but nearly all of it
through the number of sequences, their tokens and the longest. A surface evaluates the full model at
sequences of which one is the longest and all others are alike, at the corners of a patch of cells
at once when the first of them is visited, and interpolates inside a cell.

Evaluated are the steps of a cell in whose middle the interpolation is not within :data:`TOLERANCE`
of the full model, because a kernel's time jumps there; those of a part of a patch in whose middle
lengths of several distributions differ; and those in which a window is shorter than some sequences
and longer than others. One sequence alone is a row of a table by its length.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import final

import numpy as np

from silicast.composition.call_values import (
    CORNERS,
    CallValues,
    Clocks,
    Corners,
    Flags,
    LengthTable,
    Values,
    between,
    remember,
)
from silicast.composition.node_times import NodeGroup
from silicast.composition.timer import Timer
from silicast.core.numerics import F64, I64
from silicast.workload.symbols import DECODE_KV

FAMILIES = frozenset(("attention_decode", "mla_decode"))
TOKENS_OF_OCTAVE = 32
"""Cells in an octave of tokens."""
RATIOS_OF_OCTAVE = 8
"""Cells in an octave of the longest sequence over the mean one."""
SIDE = 8
"""Cells on each side of a patch."""
PART = 4
"""Cells on each side of the parts of a patch in whose middle distributions are compared."""
SMALL_PART = 2
"""The same of fewer sequences than :data:`SEVERAL`, each of which counts for more."""
SEVERAL = 16
TOLERANCE = 0.002
"""Largest error, at the points where a cell is checked, of a step that decodes."""
SHORT = 0.02
"""Share of a window, over all sequences, that may lack keys where the longest has more."""
CELLS = 1 << 15
"""Cells that are remembered at most."""
NUMBERS = 1 << 21
"""Numbers in patches at most (16 MiB)."""
FEW = 2
"""Fewer sequences are rows of a table."""

Distribution = Callable[[F64], F64]

ALIKE: Distribution = np.ones_like
DISTRIBUTIONS: tuple[Distribution, ...] = (
    ALIKE,
    lambda quantile: 2.0 * quantile,  # uniform
    lambda quantile: -np.log1p(-quantile),  # exponential
    lambda quantile: np.where(quantile < 0.5, 0.25, 1.75),  # two groups
)
"""Quantiles -> lengths over their mean."""


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
        window = dict(timer.nodes[self.members[0]].op.dims).get("window", 0)
        assert isinstance(window, int)
        self._window = window
        self._alone = LengthTable(self._of_lengths)
        self._cells: dict[tuple[int, int, int, int], Corners | None] = {}
        self._patches: dict[tuple[int, int, int, int], tuple[F64, Flags]] = {}

    @staticmethod
    def describes(timer: Timer, group: NodeGroup, index: int) -> bool:
        """Whether a node is attention over cached tokens of the sequences in decode."""
        op = timer.nodes[index].op
        symbols = [(name, dim) for name, dim in op.dims if isinstance(dim, str)]
        whole = not op.variant.flag("chunked")
        return group.family in FAMILIES and whole and symbols == [("kv_len", DECODE_KV)]

    def at(self, place: int, cached: I64, tokens: int, longest: int) -> Values:
        """Values as of :func:`values_of`; they depend on the arguments alone.

        Args:
            place: in the grid of clocks.
            cached: tokens of each sequence without the new one.
            tokens: of all sequences, the new ones included; ``longest``: of the longest.
        """
        count = len(cached)
        if count < FEW:
            return self._alone.at(place, longest)
        corners, right, up = self._place(place, count, cached, tokens, longest)
        if corners is None:
            return self._calls.of_decode(place, cached)
        return between(corners, right, up)

    def expect(self, steps: Sequence[tuple[I64, int, int]]) -> None:
        """Steps that are asked for next: those that are evaluated are evaluated together.

        Args:
            steps: cached tokens, tokens and the longest of each, as of :meth:`at`.
        """
        exact = [
            cached
            for cached, tokens, longest in steps
            if len(cached) >= FEW
            and self._place(0, len(cached), cached, tokens, longest)[0] is None
        ]
        self._calls.expect(exact)

    def _place(
        self, place: int, count: int, cached: I64, tokens: int, longest: int
    ) -> tuple[Corners | None, float, float]:
        """The corners of a step's cell, None where it is evaluated, and where in it it is."""
        if self._is_cut(cached, longest):
            return None, 0.0, 0.0
        number, step, right, up = _cell(count, tokens, longest)
        key = (place, count, number, step)
        if key not in self._cells:
            remember(self._cells, key, self._corners(*key), CELLS)
        return self._cells[key], right, up

    def _is_cut(self, cached: I64, longest: int) -> bool:
        """Whether a window ends inside some sequences and beyond others."""
        window = self._window
        if not window or longest <= window:
            return False
        short = int(np.maximum(window - cached, 0).sum())
        return short > SHORT * window * len(cached)

    def _corners(self, place: int, count: int, number: int, step: int) -> Corners | None:
        """The corners of a cell; None where interpolation does not hold."""
        (column, x), (band, y) = divmod(number, SIDE), divmod(step, SIDE)
        key = (place, count, column, band)
        if key not in self._patches:
            patch = self._patch(*key)
            remember(self._patches, key, patch, NUMBERS // patch[0].size)
        values, holds = self._patches[key]
        if not holds[x, y]:
            return None
        return [tuple(values[x + right, y + up].tolist()) for right, up in CORNERS]

    def _patch(self, place: int, count: int, column: int, band: int) -> tuple[F64, Flags]:
        """Values at the corners of a patch of cells, shape (SIDE + 1, SIDE + 1, values), and
        whether interpolation holds in each cell, shape (SIDE, SIDE).
        """
        places = range(SIDE + 1)
        totals = np.array([_total(count, column * SIDE + each) for each in places])
        ratios = np.array([_ratio(band * SIDE + each) for each in places])
        wide, high = np.diff(totals), np.diff(ratios)
        corners = (np.repeat(totals, SIDE + 1), np.tile(ratios, SIDE + 1))
        middles = (np.repeat(totals[:-1] + wide // 2, SIDE), np.tile(ratios[:-1] + high / 2, SIDE))
        part = SMALL_PART if count < SEVERAL else PART
        some = np.arange(part // 2, SIDE, part)
        where, other = np.repeat(some, len(some)), np.tile(some, len(some))
        lists = np.concatenate(
            [_sequences(count, at, ratio, ALIKE) for at, ratio in (corners, middles)]
            + [_sequences(count, totals[where], ratios[other], of) for of in DISTRIBUTIONS]
        )
        found = self._calls.of(place, [()] * len(lists), list(lists))
        first, last = len(corners[0]), len(corners[0]) + SIDE * SIDE
        grid: F64 = found[:first].reshape(SIDE + 1, SIDE + 1, -1)
        rest_s = self._rest_s(place, count)
        apart = found[last:].reshape(len(DISTRIBUTIONS), len(some), len(some), -1)
        alike = self._calls.near(apart, apart[0], rest_s, TOLERANCE).all(axis=0)
        tokens = (lists[first:last].sum(axis=1) + count).reshape(SIDE, SIDE)
        longest = (lists[first:last].max(axis=1) + 1).reshape(SIDE, SIDE)
        right = ((tokens - totals[:-1, None]) / np.maximum(wide, 1)[:, None])[..., None]
        up = ((longest * count / tokens - ratios[:-1]) / high)[..., None]
        left, down = 1.0 - right, 1.0 - up
        expected = left * (down * grid[:-1, :-1] + up * grid[:-1, 1:])
        expected += right * (down * grid[1:, :-1] + up * grid[1:, 1:])
        exact = found[first:last].reshape(SIDE, SIDE, -1)
        holds: Flags = self._calls.near(expected, exact, rest_s, TOLERANCE)
        return grid, holds & np.repeat(np.repeat(alike, part, axis=0), part, axis=1)

    def _of_lengths(self, place: int, lengths: range) -> F64:
        lists = [np.array([length - 1]) for length in lengths]
        return self._calls.of(place, [()] * len(lists), lists)


def _sequences(count: int, tokens: I64, ratio: F64, of: Distribution) -> I64:
    """Cached tokens of the sequences of several steps, the longest first, shape (steps, count).

    Args:
        count: of the sequences, two or more.
        tokens: of each step, with the new ones.
        ratio: of the longest to the mean, as near to it as can be.
        of: how the others are distributed.
    """
    others = count - 1
    longest = np.maximum(np.rint(ratio * tokens / count), -(-tokens // count))
    longest = np.minimum(longest, tokens - others)
    mean = (tokens - longest) / others
    shape = of((np.arange(others) + 0.5) / others)
    most = float(shape.max()) - 1.0
    width = np.minimum(1.0, (longest / mean - 1.0) / most) if most > 0.0 else 0.0 * mean
    lengths = mean[:, None] + ((mean - 1.0) * width)[:, None] * (shape - shape.mean())
    ends = np.rint(np.cumsum(lengths, axis=1))
    found = np.maximum(np.diff(ends, prepend=0.0, axis=1) - 1.0, 0.0)
    every: I64 = np.concatenate((longest[:, None] - 1.0, found), axis=1).astype(np.int64)
    return every


def _total(count: int, number: int) -> int:
    """Tokens at a point of the grid: at least one a sequence."""
    return int(count * 2.0 ** (number / TOKENS_OF_OCTAVE))


def _ratio(step: int) -> float:
    """The longest over the mean at a point of the grid."""
    return float(2.0 ** (step / RATIOS_OF_OCTAVE))


def _cell(count: int, tokens: int, longest: int) -> tuple[int, int, float, float]:
    """Numbers of a cell's tokens and of its ratio of the longest, and where in it a step is."""
    number = int(math.log2(tokens / count) * TOKENS_OF_OCTAVE)
    while (below := _total(count, number)) > tokens:
        number -= 1
    while (above := _total(count, number + 1)) <= tokens:
        number, below = number + 1, above
    ratio = max(longest * count / tokens, 1.0)
    step = int(math.log2(ratio) * RATIOS_OF_OCTAVE)
    low, high = _ratio(step), _ratio(step + 1)
    return number, step, (tokens - below) / (above - below), (ratio - low) / (high - low)
