"""Times of attention and recurrent mixers in prefill, by the sequences of a step.

Prompts that come alone and without a past, the most frequent ones, are rows of a table by their
tokens. What several such prompts take depends on all of their lengths, but nearly all of it through
their number, their tokens and the sum of squares of these, to which the pairs of queries and keys
are in proportion: a surface over the three, in cells whose corners are evaluated at prompts of
which one differs from all others. A cell is checked at prompts of other distributions with the same
three numbers; where it is not within the tolerance, and where sequences have a past, the step is
evaluated by the full model.
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
    Pairs,
    Values,
    between,
    remember,
)
from silicast.composition.node_times import NodeGroup
from silicast.composition.timer import Timer
from silicast.core.numerics import F64, I64
from silicast.workload.op import Affine
from silicast.workload.symbols import (
    PREFILL_KV,
    PREFILL_LONGEST,
    PREFILL_Q,
    PREFILL_SEQUENCES,
    PREFILL_TOKENS,
)

SYMBOLS = frozenset((PREFILL_Q, PREFILL_KV, PREFILL_SEQUENCES, PREFILL_TOKENS, PREFILL_LONGEST))
"""What the sizes of nodes may depend on."""
TOKENS_OF_OCTAVE = 4
"""Cells in an octave of tokens."""
TOLERANCE = 0.004
"""Largest error, at the points where a cell is checked, of a step: what prompts leave over of whole
tiles moves their times more than that of a cell's size."""
CELLS = 1 << 14
"""Cells that are remembered at most."""
MOST = 64
"""More prompts are evaluated."""
INSIDE = ((0.5, 0.5), (0.2, 0.8), (0.8, 0.2))
"""Where a cell is checked."""

_NONE: I64 = np.zeros(0, dtype=np.int64)
Distribution = Callable[[F64], F64]
OTHERS: tuple[Distribution, ...] = (
    lambda quantile: quantile - 0.5,  # uniform
    lambda quantile: np.where(quantile < 0.5, -1.0, 1.0),  # two groups
)
"""Quantiles -> how far lengths are from their mean, in any unit."""


@final
class PrefillSurface:
    """One group of nodes that run in steps with a prefill alone.

    Args:
        timer: prices them.
        members: places of the nodes.
        device: clocks.
        rest_s: a place in the grid of clocks, prompts, tokens -> what all other nodes of such a
            step take.
    """

    def __init__(
        self,
        timer: Timer,
        group: NodeGroup,
        members: Sequence[int],
        device: Clocks,
        rest_s: Callable[[int, int, int], float],
    ) -> None:
        self.members = tuple(members)
        self._calls, self._rest_s = CallValues(timer, group, members, device), rest_s
        self._sees_past = any(PREFILL_KV in _symbols(timer, index) for index in members)
        self._alone = LengthTable(self._of_lengths)
        self._cells: dict[tuple[int, int, int, int], Corners | None] = {}

    @staticmethod
    def describes(timer: Timer, group: NodeGroup, index: int) -> bool:
        """Whether the sizes of a node are the sequences in prefill."""
        return group.phase == "prefill" and _symbols(timer, index) <= SYMBOLS

    def at(self, place: int, prefill: Pairs) -> Values:
        """Values of a call; they depend on the arguments alone.

        Args:
            place: in the grid of clocks.
            prefill: the sequences.
        """
        if not self._sees_past or all(new == total for new, total in prefill):
            count = len(prefill)
            if count == 1:
                return self._alone.at(place, prefill[0][0])
            if count <= MOST:
                tokens = squares = 0
                for new, _ in prefill:
                    tokens, squares = tokens + new, squares + new * new
                number, step, right, up = _cell(count, tokens, squares)
                key = (place, count, number, step)
                if key not in self._cells:
                    remember(self._cells, key, self._checked(*key), CELLS)
                if corners := self._cells[key]:
                    return between(corners, right, up)
        return self._calls.of_one(place, prefill, _NONE)

    def _checked(self, place: int, count: int, number: int, step: int) -> Corners | None:
        """The corners of a cell; None where it does not hold."""
        below, above = (_total(count, each) for each in (number, number + 1))
        low, high = (_moment(count, each) for each in (step, step + 1))

        def inside(right: float, up: float) -> tuple[float, float]:
            return below + right * (above - below), low + up * (high - low)

        lists = [_one_differs(count, *inside(*corner)) for corner in CORNERS]
        checks = [_one_differs(count, *inside(*point)) for point in INSIDE]
        checks += [
            each for of in OTHERS if (each := _spread(count, *inside(0.5, 0.5), of)) is not None
        ]
        prompts = [[(new, new) for new in each.tolist()] for each in (*lists, *checks)]
        found = self._calls.of(place, prompts, [_NONE] * len(prompts))
        corners = [tuple(row) for row in found[: len(lists)].tolist()]
        exact = found[len(lists) :]
        rest_s = self._rest_s(place, count, below)
        for each, values in zip(checks, exact, strict=True):
            tokens, squares = int(each.sum()), int((each * each).sum())
            right = (tokens - below) / (above - below)
            up = (count * squares / (tokens * tokens) - low) / (high - low)
            expected = np.array(between(corners, right, up))
            if not self._calls.near(expected, values, rest_s, TOLERANCE):
                return None
        return corners

    def _of_lengths(self, place: int, lengths: range) -> F64:
        return self._calls.of(place, [[(new, new)] for new in lengths], [_NONE] * len(lengths))


def _symbols(timer: Timer, index: int) -> set[str]:
    dims = (dim for _, dim in timer.nodes[index].op.dims)
    named = (dim.symbol if isinstance(dim, Affine) else dim for dim in dims)
    return {name for name in named if isinstance(name, str)}


def _one_differs(count: int, tokens: float, moment: float) -> I64:
    """Prompts of which the first is longer than all others.

    Args:
        tokens: of all of them.
        moment: the mean square over the square of the mean.
    """
    mean = tokens / count
    off = math.sqrt(max(moment - 1.0, 0.0) * (count - 1))
    longest = min(mean * (1.0 + off), tokens - (count - 1))
    others = np.full(count - 1, (tokens - longest) / (count - 1))
    return _whole(np.concatenate(([longest], others)))


def _spread(count: int, tokens: float, moment: float, of: Distribution) -> I64 | None:
    """Prompts of a distribution; None where none of it has such a moment."""
    shape = of((np.arange(count) + 0.5) / count)
    shape = shape - shape.mean()
    off = math.sqrt(max(moment - 1.0, 0.0) / float((shape * shape).mean()))
    lengths = tokens / count * (1.0 + off * shape)
    return _whole(lengths) if lengths.min() >= 1.0 else None


def _whole(lengths: F64) -> I64:
    found: I64 = np.maximum(np.diff(np.rint(np.cumsum(lengths)), prepend=0.0), 1.0).astype(np.int64)
    return found


def _total(count: int, number: int) -> int:
    """Tokens at a point of the grid: at least one a prompt."""
    return int(count * 2.0 ** (number / TOKENS_OF_OCTAVE)) if number > 0 else count + number


def _moment(count: int, step: int) -> float:
    """The mean square over the square of the mean at a point of the grid; ``count`` at most."""
    return min(float(1 << step), float(count))


def _cell(count: int, tokens: int, squares: int) -> tuple[int, int, float, float]:
    """Numbers of a cell's tokens and of its moment, and where in it a step is."""
    number = int(math.log2(tokens / count) * TOKENS_OF_OCTAVE)
    while (below := _total(count, number)) > tokens:
        number -= 1
    while (above := _total(count, number + 1)) <= tokens:
        number, below = number + 1, above
    moment = max(count * squares / (tokens * tokens), 1.0)
    step = int(math.log2(moment))
    while _moment(count, step) == count:  # the last cell ends where one prompt has all tokens
        step -= 1
    low, high = _moment(count, step), _moment(count, step + 1)
    return number, step, (tokens - below) / (above - below), (moment - low) / (high - low)
