"""Times of attention in decode steps as a surface over three numbers of a step.

What attention over cached tokens takes depends on every sequence's length, but nearly all of it
through the number of sequences, their tokens and the longest. A surface evaluates the full model at
sequences of which one is the longest and all others are alike, at the corners of a grid's cells as
they are visited, and interpolates. In the middle of a cell it evaluates others that are alike and
others that are spread out as well: where the interpolation is not within :data:`TOLERANCE` of both
(few sequences, whose split among the cores changes in jumps), every step of the cell is evaluated.
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
"""Largest error, in the middle of a cell, of one that is interpolated."""
UNLIMITED = 1 << 62
_RATIO = 2.0 ** (1.0 / RATIOS_OF_OCTAVE)

Values = tuple[float, ...]
Corners = Sequence[Values]


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
        self._cells: dict[tuple[int, int, int, int], Corners | None] = {}

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
        """Values as of :func:`values_of`; they depend on the arguments alone.

        Args:
            place: in the grid of clocks.
            cached: tokens of each sequence without the new one.
            tokens: as of :meth:`tokens`; ``longest``: tokens of the longest sequence, not cut by
                the window.
        """
        number, step, right, up = _cell(len(cached), tokens, longest)
        key = (place, len(cached), number, step)
        if key not in self._cells:
            self._cells[key] = self._checked(*key)
        corners = self._cells[key]
        if corners is None:
            return self._evaluated(place, [cached])[0]
        return _mean(corners, right, up)

    def _checked(self, place: int, count: int, number: int, step: int) -> Corners | None:
        """The corners of a cell; None where interpolation does not do."""
        below, above = (_total(count, each) for each in (number, number + 1))
        ratios = [2.0 ** (each / RATIOS_OF_OCTAVE) for each in (step, step + 1)]
        points = [(tokens, ratio) for tokens in (below, above) for ratio in ratios]
        corners = [(tokens, round(ratio * tokens / count)) for tokens, ratio in points]
        tokens = (below + above) // 2
        middle = (tokens, round(sum(ratios) / 2.0 * tokens / count))
        lists = [self._sequences(count, *point) for point in corners]
        lists += [self._sequences(count, *middle, spread=spread) for spread in (0.0, 1.0)]
        *found, alike, spread = self._evaluated(place, lists)
        *_, right, up = _cell(count, self.tokens(lists[-1]), int(lists[-1].max()) + 1)
        own = len(self.members)
        for exact in (alike, spread):
            pairs = zip(_mean(found, right, up)[:own], exact[:own], strict=True)
            if any(abs(a - b) > TOLERANCE * b for a, b in pairs):
                return None
        return found

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

    def _sequences(self, count: int, tokens: int, longest: int, spread: float = 0.0) -> I64:
        """Cached tokens of sequences, the longest first.

        Args:
            tokens: as of :meth:`tokens`.
            spread: of the others, from alike to as different as their mean allows, 0..1.
        """
        others = count - 1
        if longest < self.window:
            longest = min(max(longest, -(-tokens // count)), tokens - others)
        if not others:
            return np.array([longest - 1])
        rest = max(tokens - min(longest, self.window), others)
        mean = rest / others
        width = spread * max(min(mean - 1.0, min(longest, self.window) - mean), 0.0)
        sums = np.rint(np.cumsum(np.linspace(mean - width, mean + width, others)))
        found: I64 = np.diff(sums, prepend=0.0).astype(np.int64) - 1
        return np.concatenate(([longest - 1], np.maximum(found, 0)))


def _total(count: int, number: int) -> int:
    """Tokens at a point of the grid: at least one a sequence."""
    return int(count * 2.0 ** (number / TOKENS_OF_OCTAVE)) if number > 0 else count + number


def _cell(count: int, tokens: int, longest: int) -> tuple[int, int, float, float]:
    """Numbers of a cell's tokens and of its ratio of the longest, and where in it a step is."""
    number = int(math.log2(tokens / count) * TOKENS_OF_OCTAVE)
    while (below := _total(count, number)) > tokens:
        number -= 1
    while (above := _total(count, number + 1)) <= tokens:
        number, below = number + 1, above
    ratio = max(longest * count / tokens, 1.0)
    step = int(math.log2(ratio) * RATIOS_OF_OCTAVE)
    low = 2.0 ** (step / RATIOS_OF_OCTAVE)
    up = (ratio - low) / (low * (_RATIO - 1.0))
    return number, step, (tokens - below) / (above - below), up


def _mean(corners: Corners, right: float, up: float) -> Values:
    left, down = 1.0 - right, 1.0 - up
    s, t, u, v = left * down, left * up, right * down, right * up
    return tuple([a * s + b * t + c * u + d * v for a, b, c, d in zip(*corners, strict=True)])
