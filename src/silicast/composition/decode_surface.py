"""Times of attention in decode steps as a surface over three numbers of a step.

What attention over cached tokens takes depends on every sequence's length, but nearly all of it
through the number of sequences, their tokens and the longest. A surface evaluates the full model at
sequences of which one is the longest and all others are alike, at the corners of a grid's cells as
they are visited, and interpolates. The first visit of a cell evaluates the step itself as well:
where the two differ (few sequences, whose split among the cores changes in jumps), every step of
the cell is evaluated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import final

import numpy as np

from silicast.composition.node_times import Call, NodeGroup, Timer
from silicast.composition.states import BatchStates
from silicast.core.numerics import F64, I64
from silicast.hardware.device import Device
from silicast.kernels.implementation import KernelTimes
from silicast.workload.symbols import DECODE_KV

FAMILIES = frozenset(("attention_decode", "mla_decode"))
TOKENS_OF_OCTAVE = 16
"""Points of the grid in an octave of tokens."""
RATIOS_OF_OCTAVE = 4
"""Points of the grid in an octave of the longest sequence over the mean one."""
TOLERANCE = 0.005
"""Largest error, at its first visit, of a cell that is interpolated."""
UNLIMITED = 1 << 62
_RATIO = 2.0 ** (1.0 / RATIOS_OF_OCTAVE)

Values = tuple[float, ...]


def values_of(call: Call, device: Device) -> F64:
    """What one execution of each member of a call takes, shape (5 x members, rows): seconds, the
    shares of cores and of memory, FLOPs of the matrix pipe, bytes of memory.
    """
    times = call.times
    assert isinstance(times, KernelTimes)
    seconds, demand = call.spread(times.estimate_s), times.analysis.demand
    moved = call.spread(demand.level_bytes["dram"])
    shares = np.minimum(moved / device.dram.bandwidth_bytes_per_s / seconds, 1.0)
    flops = demand.pipe_work.get("tensor")
    work = np.zeros_like(seconds) if flops is None else call.spread(flops)
    return np.concatenate(
        (seconds, call.spread(np.minimum(demand.waves, 1.0)), shares, work, moved)
    )


@final
class DecodeSurface:
    """One group of attention nodes.

    Args:
        timer: prices the grid.
        members: places of the nodes; ``window``: tokens that each of them sees, 0 = all.
        device: a place in the grid of clocks -> the device at that clock, 0 = boost.
    """

    def __init__(
        self,
        timer: Timer,
        group: NodeGroup,
        members: Sequence[int],
        window: int,
        device: Callable[[int], Device],
    ) -> None:
        self.timer, self.group, self.members = timer, group, tuple(members)
        self.window = window or UNLIMITED
        self._device = device
        self._cells: dict[tuple[int, int, int, int], tuple[Values, ...] | None] = {}

    @staticmethod
    def window_of(timer: Timer, group: NodeGroup, index: int) -> int | None:
        """The window of a node that a surface describes, 0 = none; None = no such node."""
        op = timer.nodes[index].op
        if group.family not in FAMILIES or op.variant.flag("chunked"):
            return None
        dims = dict(op.dims)
        if [name for name, dim in op.dims if isinstance(dim, str)] != ["kv_len"]:
            return None
        window = dims.get("window", 0)
        return window if dims["kv_len"] == DECODE_KV and isinstance(window, int) else None

    def tokens(self, cached: I64) -> int:
        """Tokens that the sequences see, the new ones included."""
        if self.window == UNLIMITED:
            return int(cached.sum()) + len(cached)
        return int(np.minimum(cached, self.window - 1).sum()) + len(cached)

    def at(self, place: int, cached: I64, tokens: int, longest: int) -> Values:
        """Values as of :func:`values_of`.

        Args:
            place: in the grid of clocks.
            cached: tokens of each sequence without the new one.
            tokens: as of :meth:`tokens`; ``longest``: tokens of the longest sequence, not cut by
                the window.
        """
        count = len(cached)
        number = int(math.log2(tokens / count) * TOKENS_OF_OCTAVE)
        while _total(count, number) > tokens:
            number -= 1
        while (above := _total(count, number + 1)) <= tokens:
            number += 1
        ratio = max(longest * count / tokens, 1.0)
        step = int(math.log2(ratio) * RATIOS_OF_OCTAVE)
        key = (place, count, number, step)
        cell = self._cells.get(key, ())
        if cell is None:
            return self._evaluated(place, [cached])[0]
        below, low = _total(count, number), 2.0 ** (step / RATIOS_OF_OCTAVE)
        right = (tokens - below) / (above - below)
        up = (ratio - low) / (low * (_RATIO - 1.0))
        shares = ((1.0 - right) * (1.0 - up), (1.0 - right) * up, right * (1.0 - up), right * up)
        if cell:
            return _mean(cell, shares)
        corners = [self._sequences(count, number + i, step + j) for i in (0, 1) for j in (0, 1)]
        exact, *found = self._evaluated(place, [cached, *corners])
        own = len(self.members)
        off = max(
            abs(a - b) / b for a, b in zip(_mean(found, shares)[:own], exact[:own], strict=True)
        )
        self._cells[key] = tuple(found) if off <= TOLERANCE else None
        return exact

    def _evaluated(self, place: int, lists: Sequence[I64]) -> list[Values]:
        """The values of steps with the given cached tokens, by the full model."""
        none = np.zeros(0, dtype=np.int64)
        ends = np.cumsum([0, *(len(each) for each in lists)])
        starts = np.zeros(len(ends), dtype=np.int64)
        states = BatchStates(none, none, starts, np.concatenate(lists), ends)
        symbols, rows = self.timer.symbols(states), np.arange(len(lists))
        boost, device = self._device(0), self._device(place)
        call = self.timer.call(self.group, self.members, rows, states, symbols, boost)
        if place:
            call = self.timer.slowed(call, device)
        return [tuple(row) for row in values_of(call, device).T.tolist()]

    def _sequences(self, sequences: int, number: int, step: int) -> I64:
        """Cached tokens of the sequences at a point of the grid."""
        tokens = _total(sequences, number)
        longest = round(2.0 ** (step / RATIOS_OF_OCTAVE) * tokens / sequences)
        others = sequences - 1
        if self.window == UNLIMITED or longest < self.window:
            longest = min(max(longest, -(-tokens // sequences)), tokens - others)
        found = np.full(sequences, longest - 1, dtype=np.int64)
        if others:
            least, more = divmod(max(tokens - min(longest, self.window), others), others)
            found[1:] = least - 1
            found[1 : 1 + more] += 1
        return found


def _total(sequences: int, number: int) -> int:
    """Tokens at a point of the grid: at least one a sequence."""
    return int(sequences * 2.0 ** (number / TOKENS_OF_OCTAVE)) if number > 0 else sequences + number


def _mean(corners: Sequence[Values], shares: Sequence[float]) -> Values:
    a, b, c, d = shares
    return tuple([a * w + b * x + c * y + d * z for w, x, y, z in zip(*corners, strict=True)])
