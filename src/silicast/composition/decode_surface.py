"""Times of attention in decode steps as a surface over three numbers of a step.

What attention over cached tokens takes depends on every sequence's length, but nearly all of it
through the number of sequences, their tokens and the longest. A surface evaluates the full model at
sequences of which one is the longest and all others are alike, at the corners of a grid's cells as
they are visited, and interpolates. Inside a cell it also evaluates lengths of several
distributions, and points near the corners. Where the interpolation is not within
:data:`TOLERANCE` of them, finer cells enclose the jump; where the distributions differ among
themselves, every step of the cell is evaluated.
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
    LengthTable,
    Values,
    between,
)
from silicast.composition.node_times import NodeGroup
from silicast.composition.timer import Timer
from silicast.core.numerics import F64, I64
from silicast.workload.symbols import DECODE_KV

FAMILIES = frozenset(("attention_decode", "mla_decode"))
TOKENS_OF_OCTAVE = 16
"""Points of the coarsest grid in an octave of tokens."""
RATIOS_OF_OCTAVE = 4
"""Points of the coarsest grid in an octave of the longest sequence over the mean one."""
CELLS = 1 << 15
"""Cells that are remembered at most."""
LEVELS = 4
"""Grids, each twice as fine as the one before it: finer ones serve where a cell has a jump."""
FEW = 16
"""Fewer sequences are evaluated: their split among the cores changes in jumps."""
NEAR_CORNERS = ((0.15, 0.15), (0.15, 0.85), (0.85, 0.15), (0.85, 0.85))
"""Places in a cell where it is checked beside its middle: jumps lie near a corner as well."""

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
        rest_s: a place in the grid of clocks, sequences -> what all other nodes of a decode step take.
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
        self._alone = LengthTable(self._of_lengths)
        self._cells: dict[tuple[int, int, int, int, int], Corners | None] = {}

    @staticmethod
    def describes(timer: Timer, group: NodeGroup, index: int) -> bool:
        """Whether a node is attention over all cached tokens of the sequences in decode."""
        op = timer.nodes[index].op
        symbols = [(name, dim) for name, dim in op.dims if isinstance(dim, str)]
        sees_all = not dict(op.dims).get("window") and not op.variant.flag("chunked")
        return group.family in FAMILIES and sees_all and symbols == [("kv_len", DECODE_KV)]

    def at(self, place: int, cached: I64, tokens: int, longest: int) -> Values:
        """Values as of :func:`values_of`; they depend on the arguments alone.

        Args:
            place: in the grid of clocks.
            cached: tokens of each sequence without the new one.
            tokens: of all sequences, the new ones included; ``longest``: of the longest.
        """
        if len(cached) == 1:
            return self._alone.at(place, longest)
        if len(cached) < FEW:
            return self._calls.of_one(place, (), cached)
        for level in range(LEVELS):
            number, step, right, up = _cell(len(cached), tokens, longest, level)
            key = (place, len(cached), number, step, level)
            if key not in self._cells:
                if len(self._cells) >= CELLS:
                    self._cells.clear()
                self._cells[key] = self._checked(*key)
            corners = self._cells[key]
            if corners:
                return between(corners, right, up)
            if corners is None:
                break
        return self._calls.of_one(place, (), cached)

    def _checked(
        self, place: int, count: int, number: int, step: int, level: int
    ) -> Corners | None:
        """The corners of a cell; () where a finer one may do, None where none does."""
        below, above = (_total(count, each, level) for each in (number, number + 1))
        low, high = (_ratio(each, level) for each in (step, step + 1))

        def inside(right: float, up: float) -> tuple[int, float]:
            return round(below + right * (above - below)), low + up * (high - low)

        points = [(*inside(*corner), ALIKE) for corner in CORNERS]
        points += [(*inside(0.5, 0.5), each) for each in DISTRIBUTIONS]
        points += [(*inside(*near), ALIKE) for near in NEAR_CORNERS]
        lists = [_sequences(count, *point) for point in points]
        found = self._evaluated(place, lists)
        rest_s, middle = self._rest_s(place, count), len(CORNERS)
        corners, others = found[:middle], found[middle : middle + len(DISTRIBUTIONS)]
        if not all(self._calls.is_near(others[0], each, rest_s) for each in others):
            return None
        for cached, exact in zip(lists[middle:], found[middle:], strict=True):
            *_, right, up = _cell(count, int(cached.sum()) + count, int(cached.max()) + 1, level)
            if not self._calls.is_near(between(corners, right, up), exact, rest_s):
                return ()
        return corners

    def _of_lengths(self, place: int, lengths: range) -> list[Values]:
        return self._evaluated(place, [np.array([length - 1]) for length in lengths])

    def _evaluated(self, place: int, lists: Sequence[I64]) -> list[Values]:
        """The values of steps with the given cached tokens, by the full model."""
        return self._calls.of(place, [()] * len(lists), lists)


def _sequences(count: int, tokens: int, ratio: float, of: Distribution) -> I64:
    """Cached tokens of sequences, the longest first.

    Args:
        tokens: with the new ones.
        ratio: of the longest to the mean, as near to it as can be.
        of: how the others are distributed.
    """
    others = count - 1
    longest = min(max(round(ratio * tokens / count), -(-tokens // count)), tokens - others)
    if not others:
        return np.array([longest - 1])
    mean = (tokens - longest) / others
    shape = of((np.arange(others) + 0.5) / others)
    most = float(shape.max()) - 1.0
    width = min(1.0, (longest / mean - 1.0) / most) if most > 0.0 else 0.0
    lengths = mean + (mean - 1.0) * width * (shape - shape.mean())
    found: I64 = np.diff(np.rint(np.cumsum(lengths)), prepend=0.0).astype(np.int64) - 1
    return np.concatenate(([longest - 1], np.maximum(found, 0)))


def _total(count: int, number: int, level: int) -> int:
    """Tokens at a point of the grid: at least one a sequence."""
    points = TOKENS_OF_OCTAVE << level
    return int(count * 2.0 ** (number / points)) if number > 0 else count + number


def _ratio(step: int, level: int) -> float:
    """The longest over the mean at a point of the grid."""
    return float(2.0 ** (step / (RATIOS_OF_OCTAVE << level)))


def _cell(count: int, tokens: int, longest: int, level: int) -> tuple[int, int, float, float]:
    """Numbers of a cell's tokens and of its ratio of the longest, and where in it a step is."""
    number = int(math.log2(tokens / count) * (TOKENS_OF_OCTAVE << level))
    while (below := _total(count, number, level)) > tokens:
        number -= 1
    while (above := _total(count, number + 1, level)) <= tokens:
        number, below = number + 1, above
    ratio = max(longest * count / tokens, 1.0)
    step = int(math.log2(ratio) * (RATIOS_OF_OCTAVE << level))
    low, high = _ratio(step, level), _ratio(step + 1, level)
    return number, step, (tokens - below) / (above - below), (ratio - low) / (high - low)
