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

from silicast.composition.node_times import Call, NodeGroup
from silicast.composition.states import BatchStates
from silicast.composition.timer import Timer
from silicast.core.numerics import F64, I64
from silicast.hardware.device import Device
from silicast.kernels.implementation import KernelTimes
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
TOLERANCE = 0.002
"""Largest error, at the points where a cell is checked, of a step that decodes."""
FEW = 16
"""Fewer sequences are evaluated: their split among the cores changes in jumps."""
CORNERS = ((0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0))
NEAR_CORNERS = ((0.15, 0.15), (0.15, 0.85), (0.85, 0.15), (0.85, 0.85))
"""Places in a cell where it is checked beside its middle: jumps lie near a corner as well."""

Values = tuple[float, ...]
Corners = Sequence[Values]
Distribution = Callable[[F64], F64]

ALIKE: Distribution = np.ones_like
DISTRIBUTIONS: tuple[Distribution, ...] = (
    ALIKE,
    lambda quantile: 2.0 * quantile,  # uniform
    lambda quantile: -np.log1p(-quantile),  # exponential
    lambda quantile: np.where(quantile < 0.5, 0.25, 1.75),  # two groups
)
"""Quantiles -> lengths over their mean."""


def values_of(call: Call, device: Device) -> F64:
    """What one execution of each member of a call takes, shape (5 x members, rows): seconds, the
    shares of cores and of memory, joules of the cores and of memory.
    """
    times = call.times
    assert isinstance(times, KernelTimes)
    seconds, demand = call.spread(times.estimate_s), times.analysis.demand
    moved = call.spread(demand.level_bytes["dram"])
    shares = np.minimum(moved / device.dram.bandwidth_bytes_per_s / seconds, 1.0)
    core_j, memory_j = call.joules(device) or (np.zeros_like(seconds), np.zeros_like(seconds))
    return np.concatenate(
        (seconds, call.spread(np.minimum(demand.waves, 1.0)), shares, core_j, memory_j)
    )


@final
class DecodeSurface:
    """One group of attention nodes.

    Args:
        timer: prices the grid.
        members: places of the nodes.
        device: a place in the grid of clocks -> the device at that clock, 0 = boost.
        rest_s: that place, sequences -> what all other nodes of a decode step take.
    """

    def __init__(
        self,
        timer: Timer,
        group: NodeGroup,
        members: Sequence[int],
        device: Callable[[int], Device],
        rest_s: Callable[[int, int], float],
    ) -> None:
        self.timer, self.group, self.members = timer, group, tuple(members)
        self._device, self._rest_s = device, rest_s
        self._runs = [timer.nodes[index].count for index in members]
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
        for level in range(LEVELS):
            number, step, right, up = _cell(len(cached), tokens, longest, level)
            key = (place, len(cached), number, step, level)
            if key not in self._cells:
                if len(self._cells) >= CELLS:
                    self._cells.clear()
                self._cells[key] = self._checked(*key)
            corners = self._cells[key]
            if corners:
                return _mean(corners, right, up)
            if corners is None:
                break
        return self._evaluated(place, [cached])[0]

    def _checked(
        self, place: int, count: int, number: int, step: int, level: int
    ) -> Corners | None:
        """The corners of a cell; () where a finer one may do, None where none does."""
        if count < FEW:
            return None
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
        if not all(self._is_near(others[0], each, rest_s) for each in others):
            return None
        for cached, exact in zip(lists[middle:], found[middle:], strict=True):
            *_, right, up = _cell(count, int(cached.sum()) + count, int(cached.max()) + 1, level)
            if not self._is_near(_mean(corners, right, up), exact, rest_s):
                return ()
        return corners

    def _is_near(self, found: Values, exact: Values, rest_s: float) -> bool:
        """Whether the members' times are the same within the tolerance of a step."""
        off_s, whole_s = 0.0, rest_s
        for runs, one, other in zip(self._runs, found, exact, strict=False):
            off_s, whole_s = off_s + runs * abs(one - other), whole_s + runs * other
        return off_s <= TOLERANCE * whole_s

    def _evaluated(self, place: int, lists: Sequence[I64]) -> list[Values]:
        """The values of steps with the given cached tokens, by the full model."""
        none = np.zeros(0, dtype=np.int64)
        ends = np.cumsum([0, *(len(each) for each in lists)])
        starts = np.zeros(len(ends), dtype=np.int64)
        states = BatchStates(none, none, starts, np.concatenate(lists), ends)
        boost, device = self._device(0), self._device(place)
        rows = np.arange(len(lists))
        call = self.timer.call(self.group, self.members, rows, states, {}, boost)
        if place:
            call = self.timer.slowed(call, device)
        return [tuple(row) for row in values_of(call, device).T.tolist()]


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


def _mean(corners: Corners, right: float, up: float) -> Values:
    left, down = 1.0 - right, 1.0 - up
    s, t, u, v = left * down, left * up, right * down, right * up
    return tuple([a * s + b * t + c * u + d * v for a, b, c, d in zip(*corners, strict=True)])
