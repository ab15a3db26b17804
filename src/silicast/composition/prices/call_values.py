"""What single groups of nodes take, as plain numbers: the leaves of prices of single steps.

Values are one tuple: the seconds of one execution, its shares of the cores and of memory, the
joules of the cores and of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar, final

import numpy as np
from numpy.typing import NDArray

from silicast.composition.prices.kept_fills import KeptFills
from silicast.composition.step.clocked_call import ClockedCall, numbers_of, values_of
from silicast.composition.step.op_state_grid import NodeGroup
from silicast.composition.step.states import BatchStates
from silicast.composition.step.timer import Timer
from silicast.core.numerics import F64, I64
from silicast.workload.graphs.nodes import DECODE_KV, PREFILL_KV

BLOCK = 64
"""Neighbouring sizes that are evaluated together."""
WIDE_BLOCK = 256
"""The same of sizes from :data:`WIDE_FROM` on, of which a simulation meets more of a block."""
WIDE_FROM = 1024
ALONE_FROM = 1 << 14
"""Sizes from which each is evaluated by itself: an engine's steps rarely have so many new tokens,
and prompts of static batches that are prefilled at once hardly meet a neighbour."""
LENGTHS = 1 << 15
"""Lengths of one sequence that are remembered at most."""
ASKED = 8
"""Questions of which the answer at boost is kept."""
Flags = NDArray[np.bool_]
Values = tuple[float, ...]
Pairs = Sequence[tuple[int, int]]
"""(new tokens, past plus new tokens) of sequences in prefill."""

K = TypeVar("K")
V = TypeVar("V")
_NONE: I64 = np.zeros(0, dtype=np.int64)


def block_of(size: int) -> range:
    """The sizes that are evaluated along with one.

    >>> block_of(70), block_of(1030), block_of(70_000)
    (range(64, 128), range(1024, 1280), range(70000, 70001))
    """
    width = BLOCK if size < WIDE_FROM else WIDE_BLOCK if size < ALONE_FROM else 1
    low = size // width * width
    return range(low, low + width)


@final
class CallValues:
    """Values of nodes with the same op by the full model.

    Args:
        timer: prices them.
        members: places of the nodes, one of which is evaluated.
        fills: what is kept of values.
    """

    def __init__(
        self, timer: Timer, group: NodeGroup, members: Sequence[int], fills: KeptFills
    ) -> None:
        self.timer = timer
        self._fills = fills
        self.group = group
        self.members: tuple[int, ...] = tuple(members[:1])
        self._count = sum(timer.nodes[index].count for index in members)
        dims = [dim for _, dim in timer.nodes[self.members[0]].op.dims]
        self._by_numbers = not (PREFILL_KV in dims or DECODE_KV in dims)
        self._asked: dict[object, ClockedCall] = {}

    def values(self, index: int, prefills: Sequence[Pairs], decodes: Sequence[I64]) -> F64:
        """Of several states, each with the sequences that it has in prefill and in decode, shape
        (states, values). Calls at boost are kept: next come the same questions at other clocks.
        """
        pairs = np.array([pair for each in prefills for pair in each], dtype=np.int64)
        cached = np.concatenate([*decodes, _NONE])
        starts, ends = (np.cumsum([0, *map(len, each)]) for each in (prefills, decodes))
        key = tuple(each.tobytes() for each in (pairs, cached, starts, ends))

        def evaluated() -> F64:
            call = self._asked.get(key)
            if call is None:
                new, total = pairs.reshape(-1, 2).T.copy()
                states = BatchStates(new, total, starts, cached, ends)
                timer, group = self.timer, self.group
                symbols = timer.symbols(states) if self._by_numbers else {}
                call = ClockedCall.of_states(timer, group, self.members, states, symbols)
                remember(self._asked, key, call, ASKED)
            numbers, device = call.by_tapes(index), call.device(index)
            if numbers is not None:  # a size for each state
                return values_of(numbers, device)
            grid = call.grid(index)
            return values_of(numbers_of(grid, device), device)[:, grid.positions[0]]

        question = repr(self.group), self.members, index, key
        return self._fills.array(evaluated, len(prefills), *question).T

    def near(self, result: F64, exact: F64, rest_s: float | F64, tolerance: float) -> Flags:
        """Whether the members' times are the same within a tolerance of a step whose other nodes
        take ``rest_s``, shape (...).

        Args:
            found, exact: values, shape (..., values).
            tolerance: share of the step.
        """
        off_s = np.abs(result[..., 0] - exact[..., 0]) * self._count
        whole_s = rest_s + exact[..., 0] * self._count
        near: Flags = off_s <= tolerance * whole_s
        return near


@final
class LengthTable:
    """Values by the length of the only sequence of a step, filled in blocks as they occur.

    Args:
        evaluated: a place in the grid of clocks and lengths -> the values at each.
    """

    def __init__(self, evaluated: Callable[[int, range], F64]) -> None:
        self._evaluated = evaluated
        self._known: dict[tuple[int, int], Values] = {}

    def at(self, index: int, length: int) -> Values:
        """The values at one length."""
        result = self._known.get((index, length))
        if result is None:
            every = block_of(length)
            lengths = range(max(every.start, 1), every.stop)
            for each, values in zip(
                lengths, map(tuple, self._evaluated(index, lengths).tolist()), strict=True
            ):
                if each == length:
                    result = values
                remember(self._known, (index, each), values, LENGTHS)
            assert result is not None
        return result


def remember(known: dict[K, V], key: K, value: V, most: int) -> V:
    """Puts a value into a dictionary that starts anew when it has ``most`` of them."""
    if len(known) >= most:
        known.clear()
    known[key] = value
    return value
