"""Times of attention and recurrent mixers in prefill, by the sequences of a step.

Prompts that come alone and without a past, the most frequent ones, are rows of a table by their
tokens. What several such prompts take depends on all of their lengths, but nearly all of it through
their number, their tokens and the sum of squares of these, to which the pairs of queries and keys
are in proportion: a :class:`~.surface.Surface` over the three, evaluated at prompts of which one
differs from all others. What pasts add is a second surface, evaluated at prompts that are alike,
with and without one: over the number of those that have one, their tokens, and the mean past of a
new token.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import final

import numpy as np

from silicast.composition.prices.call_values import CallValues, Flags, LengthTable, Pairs, Values
from silicast.composition.prices.kept_fills import KeptFills
from silicast.composition.prices.surface import Surface
from silicast.composition.step.op_state_grid import NodeGroup
from silicast.composition.step.timer import Timer
from silicast.core.numerics import F64, I64
from silicast.workload.graphs.nodes import (
    PREFILL_KV,
    PREFILL_LONGEST,
    PREFILL_LONGEST_KV,
    PREFILL_Q,
    PREFILL_SEQUENCES,
    PREFILL_TOKENS,
)
from silicast.workload.graphs.op import Affine

SYMBOLS = frozenset(
    (PREFILL_Q, PREFILL_KV, PREFILL_SEQUENCES, PREFILL_TOKENS, PREFILL_LONGEST, PREFILL_LONGEST_KV)
)
"""What the sizes of nodes may depend on."""
_PAST = frozenset((PREFILL_KV, PREFILL_LONGEST_KV))
TOLERANCE = 0.004
"""Largest error, in the middle of a cell, of a step of prompts alone."""

_NONE: I64 = np.zeros(0, dtype=np.int64)


@final
class PrefillSurface:
    """Nodes with the same op that run in steps with a prefill alone.

    Args:
        timer: prices them.
        members: places of the nodes, which have the same op.
        fills: what is kept of values.
        rest_s: a place in the grid of clocks, prompts, tokens -> what all other nodes of such a
            step take.
    """

    def __init__(
        self,
        timer: Timer,
        group: NodeGroup,
        members: Sequence[int],
        fills: KeptFills,
        rest_s: Callable[[int, int, int], float],
    ) -> None:
        self._calls, self._rest_s = CallValues(timer, group, members, fills), rest_s
        self._sees_past = any(_PAST & _symbols(timer, index) for index in members)
        window = dict(timer.nodes[members[0]].op.dims).get("window", 0)
        self._reach = window if isinstance(window, int) and window else 1 << 40
        self._alone = LengthTable(self._of_lengths)
        self._fresh = Surface(_prompts, _numbers, self._values, self._near)
        self._past = Surface(_alike, _numbers_of_past, self._added, self._near)

    @staticmethod
    def describes(timer: Timer, group: NodeGroup, index: int) -> bool:
        """Whether the sizes of a node are the sequences in prefill."""
        return group.phase == "prefill" and _symbols(timer, index) <= SYMBOLS

    def at(self, index: int, prefill: Pairs) -> Values:
        """Values of a call; they depend on the arguments alone.

        Args:
            index: in the grid of clocks.
            prefill: the sequences.
        """
        count = len(prefill)
        tokens = squares = after = known = seen = 0
        reach = self._reach
        for new, total in prefill:
            tokens, squares = tokens + new, squares + new * new
            if total > new:
                after, known, seen = after + 1, known + new, seen + new * min(total - new, reach)
        mean = tokens / count
        if count == 1:
            values = self._alone.at(index, tokens)
        else:
            values = self._fresh.at(index, count, mean, squares / (mean * tokens))
        if not seen or not self._sees_past:
            return values
        mean = known / after
        more = self._past.at(index, after, mean, 1.0 + seen / known / mean)
        return tuple([max(one + other, 0.0) for one, other in zip(values, more, strict=True)])

    def _values(self, index: int, states: Sequence[Pairs]) -> F64:
        return self._calls.values(index, states, [_NONE] * len(states))

    def _added(self, index: int, states: Sequence[Pairs]) -> F64:
        """Seconds that cached past tokens add to a prefill."""
        without = [[(new, new) for new, _ in state] for state in states]
        values = self._values(index, [*states, *without])
        more: F64 = values[: len(states)] - values[len(states) :]
        return more

    def _near(self, result: F64, exact: F64, count: int, mean: F64) -> Flags:
        remaining = [self._rest_s(0, count, int(count * each)) for each in mean]
        return self._calls.near(result, exact, np.array(remaining), TOLERANCE)

    def _of_lengths(self, index: int, lengths: range) -> F64:
        return self._calls.values(index, [[(new, new)] for new in lengths], [_NONE] * len(lengths))


def _symbols(timer: Timer, index: int) -> set[str]:
    dims = (dim for _, dim in timer.nodes[index].op.dims)
    named = (dim.symbol if isinstance(dim, Affine) else dim for dim in dims)
    return {name for name in named if isinstance(name, str)}


def _numbers(prompts: Pairs) -> tuple[float, float]:
    """The mean, and the mean square over the square of the mean."""
    tokens, squares = (sum(new**power for new, _ in prompts) for power in (1, 2))
    return tokens / len(prompts), len(prompts) * squares / tokens**2


def _numbers_of_past(prompts: Pairs) -> tuple[float, float]:
    """The mean, and past and new tokens over it, of prompts that are alike."""
    mean = sum(new for new, _ in prompts) / len(prompts)
    past = sum(total - new for new, total in prompts) / len(prompts)
    return mean, 1.0 + past / mean


def _alike(count: int, mean: F64, ratio: F64) -> list[list[tuple[int, int]]]:
    """Prompts with a past, of several steps."""
    alike = []
    for each, times in zip(mean.tolist(), ratio.tolist(), strict=True):
        past = round(each * (times - 1.0))
        alike.append([(new, new + past) for new in _whole(np.full(count, each)).tolist()])
    return alike


def _prompts(count: int, mean: F64, moment: F64) -> list[list[tuple[int, int]]]:
    """Prompts without a past of which the first is longer than all others, of several steps.

    Args:
        moment: the mean square over the square of the mean, as near as can be.
    """
    prompts = []
    for each, times in zip(mean.tolist(), moment.tolist(), strict=True):
        off = math.sqrt(max(times - 1.0, 0.0) * (count - 1))
        longest = max(min(each * (1.0 + off), count * each - (count - 1)), each)
        others = np.full(count - 1, (count * each - longest) / max(count - 1, 1))
        lengths = _whole(np.concatenate(([longest], others)))
        prompts.append([(new, new) for new in lengths.tolist()])
    return prompts


def _whole(lengths: F64) -> I64:
    whole: I64 = np.maximum(np.diff(np.rint(np.cumsum(lengths)), prepend=0.0), 1.0).astype(np.int64)
    return whole
