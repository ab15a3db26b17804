"""Times of attention in decode steps, by sequences, their mean length and the longest.

What attention over cached tokens takes depends on every sequence's length, but nearly all of it
through these three numbers. A :class:`~.surface.Surface` over them is evaluated at sequences of
which one is the longest and all others are spread evenly. Where a window ends inside some sequences
and beyond others, they count as long as it lets a node see them; in chunks, from the beginning of
their chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

import numpy as np

from silicast.composition.engines.host_weights import ON_HOST
from silicast.composition.prices.call_values import CallValues, Flags, Values
from silicast.composition.prices.decode_lengths import Lengths
from silicast.composition.prices.kept_fills import KeptFills
from silicast.composition.prices.surface import Surface
from silicast.composition.step.op_state_grid import NodeGroup
from silicast.composition.step.timer import Timer
from silicast.core.numerics import F64, I64
from silicast.workload.graphs.nodes import DECODE_KV

TOLERANCE = 0.002
"""Largest error, in the middle of a cell, of a step that decodes."""
TOGETHER = 4
"""Neighbouring numbers of sequences that are evaluated at once: a server meets most of them."""
SHORT = 0.02
"""Share of a window, over all sequences, that lacks tokens where lengths are cut at it."""
MOST = 1 << 21
"""Sequences at most in one evaluation (tens of megabytes)."""


@final
class DecodeSurface:
    """Attention nodes with the same op.

    Args:
        timer: prices the grid.
        members: places of the nodes, which have the same op.
        fills: what is kept of values.
        rest_s: a place in the grid of clocks, sequences -> what all other nodes of a decode step
            take.
    """

    def __init__(
        self,
        timer: Timer,
        group: NodeGroup,
        members: Sequence[int],
        fills: KeptFills,
        rest_s: Callable[[int, int], float],
    ) -> None:
        self._calls, self._rest_s = CallValues(timer, group, members, fills), rest_s
        op = timer.nodes[members[0]].op
        window = dict(op.dims).get("window", 0)
        assert isinstance(window, int)
        self._window, self._chunked = window, op.variant.flag("chunked")
        self._surface = Surface(_sequences, _numbers, self._values, self._near, TOGETHER)

    @property
    def windowed(self) -> bool:
        """Whether more than three numbers of the sequences may count."""
        return bool(self._window)

    @staticmethod
    def describes(timer: Timer, index: int) -> bool:
        """Whether a node's sizes are the cached tokens of the sequences in decode, and numbers."""
        op = timer.nodes[index].op
        lengths = [(name, dim) for name, dim in op.dims if not isinstance(dim, int)]
        return lengths == [("kv_len", DECODE_KV)] and not op.variant.flag(ON_HOST)

    def at(self, index: int, cached: Lengths, tokens: int, longest: int) -> Values:
        """Values as of :func:`.clocked_call.values_of`; they depend on the arguments alone.

        Args:
            index: in the grid of clocks.
            cached: tokens of each sequence without the new one.
            tokens: of all sequences, the new ones included; ``longest``: of the longest.
        """
        count, window = len(cached), self._window
        if window and longest > window:
            each = np.asarray(cached)
            seen = each % window if self._chunked else np.minimum(each, window - 1)
            in_window = int(seen.sum()) + count
            if self._chunked or count * window - in_window > SHORT * count * window:
                tokens, longest = in_window, int(seen.max()) + 1
        mean = tokens / count
        return self._surface.at(index, count, mean, longest / mean)

    def _values(self, index: int, states: Sequence[I64]) -> F64:
        each = max(MOST // max(len(states[0]), len(states[-1])), 1)
        parts = [states[start : start + each] for start in range(0, len(states), each)]
        return np.concatenate([self._calls.values(index, [()] * len(part), part) for part in parts])

    def _near(self, result: F64, exact: F64, count: int, mean: F64) -> Flags:  # noqa: ARG002
        return self._calls.near(result, exact, self._rest_s(0, count), TOLERANCE)


def _numbers(cached: I64) -> tuple[float, float]:
    mean = float(cached.mean()) + 1.0
    return mean, (int(cached.max()) + 1) / mean


def _sequences(count: int, mean: F64, ratio: F64) -> list[I64]:
    """Cached tokens of the sequences of several steps, the longest first, the others spread evenly
    around their mean.

    Args:
        count: of the sequences.
        mean: of their tokens with the new one; ``ratio``: of the longest to it, as near as can be.

    >>> _sequences(4, np.array([100.0]), np.array([1.5]))[0].tolist()
    [149, 38, 83, 126]
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
    result = np.maximum(np.diff(ends, prepend=0.0, axis=1) - 1.0, 0.0)
    return list(np.concatenate((longest[:, None] - 1.0, result), axis=1).astype(np.int64))
