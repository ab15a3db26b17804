"""The clock at which work draws just what a board's power limit leaves.

    power(clock) = idle + (core energy x growth(clock) + memory energy) / time(clock)

Power rises with the clock and time falls, so that one clock holds a limit, and work under a limit
takes energy / (limit - idle): quicker units, more of them and quicker memory take less time at each
clock and never make it slower. The clocks are shares of a reference, that which the work runs at
while no limit binds: the boost clock, or above it what runs quicker (:func:`~.power.top_hz`), with
the energy of that clock. Times are evaluated at the clocks of :data:`CLOCKS` alone, and are
lines in one over the clock between them: never shorter at a slower clock, and never longer by more
than the clock is slower.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias, cast, final

import numpy as np
from numpy.typing import NDArray

from silicast.core import xp
from silicast.core.numerics import F64, I64
from silicast.hardware.device import Device
from silicast.kernels.physics.core_steps import held_between
from silicast.kernels.physics.energy import applies_to, dynamic_w, most_w, waiting_w
from silicast.kernels.physics.power import (
    MIN_CLOCK_SHARE,
    LimitedBoard,
    board,
    drawn,
    energy_growth,
    silicon,
    top_hz,
)
from silicast.workload.graphs.op import OpBatch

if TYPE_CHECKING:
    from silicast.kernels.implementation import Analysis

CLOCKS = (*(1.0 - step / 40.0 for step in range(21)), *(0.47 * 0.93**step for step in range(40)))
"""Shares of the reference at which work is evaluated: a kernel turns from memory to compute bound
within a few percent.
"""
_FALLING = tuple(-share for share in CLOCKS)
_LAST = next(position for position, share in enumerate(CLOCKS) if share <= MIN_CLOCK_SHARE)
_SHARES = np.array(CLOCKS)
_REFINED = 5
"""Steps of the secant between two neighbouring clocks: the limit is met to 1e-9."""
ONE_ROW: I64 = np.zeros(1, dtype=np.int64)
Longer: TypeAlias = Callable[[int, I64], F64]
"""A place in :data:`CLOCKS`, rows of the work -> how many times as long these take there."""
Used: TypeAlias = Callable[[int, I64], F64]
"""The same -> the power that they draw there, over the limit; see :class:`Use`."""
Analysed: TypeAlias = "Callable[[OpBatch, Device], Analysis]"
"""Kernels and a device -> what their family's model says of them there."""


def in_proportion(position: int, rows: I64) -> F64:
    """Work of the cores alone: it takes as much longer as the clock is slower."""
    return np.full(len(rows), 1.0 / CLOCKS[position])


def unlimited(position: int, rows: I64) -> F64:  # noqa: ARG001 - the same at every clock
    """Work of which no more is known than what it draws of cores and memory."""
    return np.zeros(len(rows))


def clock_share(
    budget: LimitedBoard,
    core_w: F64,
    memory_w: F64,
    longer: Longer = in_proportion,
    used: Used = unlimited,
) -> F64:
    """The clock that a board holds in endless work, as a share of the clock at which the draw was
    taken, shape (n,); no board is slowed to less than a tenth.

    Args:
        core_w, memory_w: what it draws at that clock, as of :class:`~.power.Draw`.
        longer: how the clock slows it.
        used: what it draws by the law of energy, which holds the limit too.
    """
    left = budget.limit_w - budget.idle_w
    share = np.ones(len(core_w))
    over = np.flatnonzero((core_w + memory_w > left) | (used(0, np.arange(len(core_w))) > 1.0))
    if len(over):
        law = _Law(budget.floor, left, core_w[over], memory_w[over], over, longer, used)
        share[over] = law.share()
    return share


@final
class _Law:
    """Rows whose power at the full clock is above the limit; arrays of shape (n,)."""

    def __init__(
        self,
        floor: float,
        left: float,
        core_w: F64,
        memory_w: F64,
        rows: I64,
        longer: Longer,
        used: Used,
    ) -> None:
        self._floor, self._left = floor, left
        self._core_w, self._memory_w, self._rows = core_w, memory_w, rows
        self._longer, self._used = longer, used

    def share(self) -> F64:
        """The clock whose power is the limit, between two of :data:`CLOCKS`."""
        fast, slow = self._bracket()
        share = np.full(len(self._rows), MIN_CLOCK_SHARE)
        for position in _distinct(fast[slow <= _LAST]):
            rows = np.flatnonzero((fast == position) & (slow <= _LAST))
            share[rows] = self._between(position, rows)
        held: F64 = np.maximum(share, MIN_CLOCK_SHARE)
        return held

    def _bracket(self) -> tuple[I64, I64]:
        """Neighbouring clocks: the first draws more than the limit, the second does not; beyond
        the last where none holds it.

        The search begins where work that goes with the clock, which falls quickest, holds it.
        """
        fast = self._first()
        slow, step = np.full_like(fast, _LAST + 1), np.ones_like(fast)
        while len(open_rows := np.flatnonzero(slow - fast > 1)):
            low, high = fast[open_rows], slow[open_rows]
            probe = np.where(
                high > _LAST, np.minimum(low + step[open_rows], _LAST), (low + high) // 2
            )
            held = self._holds(probe, open_rows)
            slow[open_rows] = np.where(held, probe, high)
            fast[open_rows] = np.where(held, low, probe)
            step[open_rows] *= 2
        return fast, slow

    def _first(self) -> I64:
        """The last clock at which even work that goes with it draws too much."""
        growth = growths(self._floor)
        low = np.zeros(len(self._rows), dtype=np.int64)
        high = np.full_like(low, _LAST + 1)
        while (high - low > 1).any():
            middle = (low + high) // 2
            drawn = (self._core_w * growth[middle] + self._memory_w) * _SHARES[middle]
            above = drawn > self._left
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        return low

    def _holds(self, probe: I64, positions: I64) -> NDArray[np.bool_]:
        """Whether rows draw no more than the limit at clocks."""
        growth, longer = growths(self._floor)[probe], np.empty(len(positions))
        used = np.empty(len(positions))
        for position in _distinct(probe):
            here = np.flatnonzero(probe == position)
            rows = self._rows[positions[here]]
            longer[here] = self._longer(position, rows)
            used[here] = self._used(position, rows)
        drawn = self._core_w[positions] * growth + self._memory_w[positions]
        held: NDArray[np.bool_] = (drawn <= self._left * longer) & (used <= 1.0)
        return held

    def _between(self, position: int, positions: I64) -> F64:
        """The clock between two neighbours, by secants that keep it enclosed."""
        rows, core_w, memory_w = (
            self._rows[positions],
            self._core_w[positions],
            self._memory_w[positions],
        )
        before, after = (self._longer(at, rows) for at in (position, position + 1))
        most, least = (self._used(at, rows) for at in (position, position + 1))

        def excess(share: F64) -> F64:
            weight = weight_of(position, share)
            longer = before + weight * (after - before)
            drawn = core_w * growth_at(share, self._floor) + memory_w
            used = most + weight * (least - most)
            above: F64 = np.maximum(drawn - self._left * longer, self._left * (used - 1.0))
            return above

        high = np.full(len(positions), CLOCKS[position])
        low = np.full(len(positions), CLOCKS[position + 1])
        above, below = excess(high), excess(low)
        share = low
        for _ in range(_REFINED):
            wide = above - below
            part = np.divide(-below, wide, out=np.zeros_like(wide), where=wide > 0.0)
            part = np.minimum(np.maximum(part, 0.0), 1.0)
            share = low + part * (high - low)
            middle = excess(share)
            more = middle > 0.0
            high, above = np.where(more, share, high), np.where(more, middle, above)
            low, below = np.where(more, low, share), np.where(more, below, middle)
        return share


def clock_share_of_one(
    budget: LimitedBoard,
    core_w: float,
    memory_w: float,
    longer: Callable[[int], float],
    used: Callable[[int], float],
) -> float:
    """:func:`clock_share` of one piece of work, the same bits; numbers take a tenth of the time."""
    left = budget.limit_w - budget.idle_w
    if not (core_w + memory_w > left or used(0) > 1.0):
        return 1.0
    growth = _growths_listed(budget.floor)
    fast, beyond = 0, _LAST + 1
    while beyond - fast > 1:
        middle = (fast + beyond) // 2
        if (core_w * growth[middle] + memory_w) * CLOCKS[middle] > left:
            fast = middle
        else:
            beyond = middle
    slow, step = _LAST + 1, 1
    while slow - fast > 1:
        probe = min(fast + step, _LAST) if slow > _LAST else (fast + slow) // 2
        drawn_w = core_w * growth[probe] + memory_w
        if drawn_w <= left * longer(probe) and used(probe) <= 1.0:
            slow = probe
        else:
            fast = probe
        step *= 2
    if slow > _LAST:
        return MIN_CLOCK_SHARE
    before, after, most, least = longer(fast), longer(slow), used(fast), used(slow)
    floor, first = budget.floor, 1.0 / CLOCKS[fast]
    width = 1.0 / CLOCKS[slow] - first

    def excess(share: float) -> float:
        weight = (1.0 / share - first) / width
        growth = energy_growth(share if share >= floor else floor)
        above = core_w * growth + memory_w - left * (before + weight * (after - before))
        return max(above, left * (most + weight * (least - most) - 1.0))

    high, low = CLOCKS[fast], CLOCKS[slow]
    above, below = excess(high), excess(low)
    share = low
    for _ in range(_REFINED):
        wide = above - below
        part = min(max(-below / wide, 0.0), 1.0) if wide > 0.0 else 0.0
        share = low + part * (high - low)
        middle_w = excess(share)
        if middle_w > 0.0:
            high, above = share, middle_w
        else:
            low, below = share, middle_w
    return max(share, MIN_CLOCK_SHARE)


@lru_cache(maxsize=1024)
def growths(floor: float) -> F64:
    """:func:`growth_at` the clocks of :data:`CLOCKS`."""
    return growth_at(_SHARES, floor)


@lru_cache(maxsize=1024)
def _growths_listed(floor: float) -> list[float]:
    listed: list[float] = growths(floor).tolist()
    return listed


def growth_at(share: F64, floor: float) -> F64:
    """Energy of an operation at a share of the clock, over that at the clock; from ``floor`` down
    voltage stays.
    """
    return energy_growth(xp.maximum(share, floor))


@final
class Slowing:
    """How many times as long kernels take at slower clocks, each evaluated when it is needed.

    Args:
        batch: the kernels; of a batch of numbers, one row.
        device: on which they take ``time_s``, shape (n,).
        at: times of some of them on a slower device.
        clock_hz: that they run at on the device; None = :func:`~.power.top_hz`.
        at_step: the same as ``at`` of the only row of a batch of numbers, at a step of
            :data:`CLOCKS`.
    """

    def __init__(
        self,
        batch: OpBatch,
        device: Device,
        time_s: F64,
        at: Callable[[OpBatch, Device], F64],
        clock_hz: float | None = None,
        at_step: Callable[[int], F64] | None = None,
    ) -> None:
        self._batch, self._device, self._at = batch, device, at
        self._at_step = at_step or self._by_device
        self.clock_hz: float = top_hz(device) if clock_hz is None else clock_hz
        self._time_s = np.atleast_1d(time_s)
        self._known: dict[int, F64] = {}
        self._of_one: dict[int, float] = {}
        self._exact: dict[float, tuple[Device, Any]] = {}

    def longer(self, position: int, rows: I64) -> F64:
        """How many times as long some rows take at a step of :data:`CLOCKS`."""
        if not position:
            return np.ones(len(rows))
        table = self._known.setdefault(position, np.full(len(self._time_s), np.nan))
        missing = rows[np.isnan(table[rows])]
        if len(missing):
            batch = self._batch if self._batch.numbers else self._batch.rows(missing)
            slow_s = np.atleast_1d(self._at(batch, self.device(position)))
            ratio = slow_s / self._time_s[missing]
            table[missing] = np.minimum(np.maximum(ratio, 1.0), 1.0 / CLOCKS[position])
        longer: F64 = table[rows]
        return longer

    def longer_of_one(self, position: int) -> float:
        """:meth:`longer` of the only row of a batch of numbers."""
        if not position:
            return 1.0
        if position not in self._of_one:
            slow_s = float(self._at_step(position))
            ratio = slow_s / float(self._time_s[0])
            self._of_one[position] = min(max(ratio, 1.0), 1.0 / CLOCKS[position])
        return self._of_one[position]

    def _by_device(self, position: int) -> F64:
        return self._at(self._batch, self.device(position))

    def exactly(self, share: float) -> tuple[Device, Any]:
        """The device at a share of the clock, also between two of :data:`CLOCKS`, and what the
        kernels take there; shape (n,), of a batch of numbers a number.
        """
        if share not in self._exact:
            slow = self._device.at_clock(share * self.clock_hz)
            slow_s, fast_s = self._at(self._batch, slow), self._time_s
            clocked_s = fast_s if not self._batch.numbers else float(fast_s[0])
            slow_s = xp.minimum(xp.maximum(slow_s, clocked_s), clocked_s / share)
            self._exact[share] = slow, slow_s
        return self._exact[share]

    def device(self, position: int) -> Device:
        """The device at a step of :data:`CLOCKS`."""
        return slower(self._device, self.clock_hz, position)

    def _at_share(self, share: float) -> float:
        if share >= 1.0:
            return 1.0
        position = step_below(share)
        before, after = self.longer_of_one(position), self.longer_of_one(position + 1)
        weight = float(weight_of(position, share))  # type: ignore[arg-type]
        return before + weight * (max(after, before) - before)

    def at_shares(self, share: F64) -> F64:
        """How many times longer each kernel takes at its own share of the clock, shape (n,); of a
        batch of numbers, a number.
        """
        if not isinstance(share, np.ndarray):
            return self._at_share(share)
        slowdown = np.ones(len(share))
        slow = np.flatnonzero(share < 1.0)
        positions = np.searchsorted(_FALLING, -share[slow], side="right") - 1
        positions = np.minimum(positions, len(CLOCKS) - 2)
        for position in _distinct(positions):
            rows = slow[positions == position]
            before, after = (self.longer(at, rows) for at in (position, position + 1))
            after = np.maximum(after, before)
            slowdown[rows] = before + weight_of(position, share[rows]) * (after - before)
        return slowdown


@final
class Use:
    """What share of a power limit work draws by the law of energy (:mod:`.energy`).

    That law says more of boards that wait for memory than the law of the clock does, and too much
    of boards at their own clock and limit, which were seen to hold both: there it says no more than
    that limit, and what it says of other clocks and limits is less in proportion.

    Args:
        device: under the limit.
        built: the clock of the work on the board as it was built, over that on this one.
        dynamic_w: a place in :data:`CLOCKS`, rows -> watts beyond what the board draws while it
            waits, as if it had no limit.
        built_w: the same of rows at the clock that the board was built for; None = between two of
            :data:`CLOCKS`, up to 2 % off where watts bend there.
    """

    def __init__(
        self,
        device: Device,
        built: float,
        dynamic_w: Callable[[int, I64], F64],
        built_w: Callable[[I64], F64] | None = None,
    ) -> None:
        board_ = silicon(device)
        self._dynamic_w = dynamic_w
        self._built_w = built_w or self._between
        self._limit_w, self._static_w = most_w(device), waiting_w(device)
        self._room_w = most_w(board_) - waiting_w(board_)
        self._built = min(built, 1.0)

    def used(self, position: int, rows: I64) -> F64:
        """What some rows draw at a step of :data:`CLOCKS`, see :data:`Used`."""
        built_w = xp.maximum(self._at_built(rows), 1e-9)
        part = xp.minimum(self._room_w / built_w, 1.0)
        used: F64 = (self._static_w + part * self._dynamic_w(position, rows)) / self._limit_w
        return used

    def _at_built(self, rows: I64) -> F64:
        return self._dynamic_w(0, rows) if self._built >= 1.0 else self._built_w(rows)

    def _between(self, rows: I64) -> F64:
        below = step_below(self._built)
        fast, slow = (self._dynamic_w(clock, rows) for clock in (below, below + 1))
        weight = float(weight_of(below, self._built))  # type: ignore[arg-type]
        return fast + weight * (slow - fast)


@lru_cache(maxsize=1024)
def beyond_own(device: Device) -> bool:
    """Whether a device has a lower power limit or a higher clock than the board was built with."""
    built = silicon(device)
    if not applies_to(device) or not applies_to(built):
        return False
    assert device.power_cap_w is not None
    assert built.power_cap_w is not None
    return device.power_cap_w < built.power_cap_w or device.clocks.boost_hz > built.clocks.boost_hz


def dynamic_j(
    analysis: Analysis, batch: OpBatch, device: Device, seconds: F64, analysed: Analysed
) -> F64:
    """Joules of kernels that take ``seconds``, beyond what the board draws while it waits, as a
    limit counts them; shape (n,).

    Work under a limit takes energy / (limit - idle). A board with more cores than it was built with
    can leave cores idle, so that these joules are no more than with fewer cores, and no less than
    with more of them (:mod:`.core_steps`).

    Args:
        analysis: at the clock of the device, or above it.
        analysed: on devices with other numbers of cores.
    """
    joules: F64 = seconds * dynamic_w(analysis, batch, device, seconds)
    if device.cores == silicon(device).cores:
        return joules
    here_s = analysed(batch, device).time_s

    def at(other: Device) -> F64:
        there = analysed(batch, other)
        bounded = xp.maximum if other.cores < device.cores else xp.minimum
        there_s = seconds * bounded(there.time_s / here_s, 1.0)
        other_j: F64 = there_s * dynamic_w(there, batch, other, there_s)
        return other_j

    return held_between(joules, device, at)


def held_share(
    analysis: Analysis,
    batch: OpBatch,
    device: Device,
    seconds: F64,
    slowing: Slowing,
    built: float,
    analysed: Analysed,
) -> F64:
    """:func:`clock_share` of each kernel by itself, in the state of the device; shape (n,).

    A cool board is heated by what it repeats: short kernels are done before it slows down.

    Args:
        built: see :class:`Use`; analysed: see :func:`dynamic_j`.
    """
    if not isinstance(seconds, np.ndarray):
        return _held_share_of_one(analysis, batch, device, seconds, slowing, built, analysed)
    dtype, clock_hz = batch.variant.dtype, slowing.clock_hz
    budget = board(device, dtype, clock_hz)
    draw = drawn(analysis, dtype, device, seconds, clock_hz)
    used = unlimited
    if beyond_own(device):
        boost_s = np.atleast_1d(seconds)

        def dynamic(position: int, rows: I64) -> F64:
            longer_s = boost_s.copy()
            longer_s[rows] *= slowing.longer(position, rows)
            joules = dynamic_j(analysis, batch, slowing.device(position), longer_s, analysed)
            watts: F64 = (joules / longer_s)[rows]
            return watts

        def built_w(rows: I64) -> F64:
            slow, slow_s = slowing.exactly(built)
            watts: F64 = (dynamic_j(analysis, batch, slow, slow_s, analysed) / slow_s)[rows]
            return watts

        used = Use(device, built, dynamic, built_w).used
    elif xp.all_of(draw.core_w + draw.memory_w <= budget.limit_w - budget.idle_w):
        return xp.full_like(seconds, 1.0)
    share = clock_share(budget, draw.core_w, draw.memory_w, slowing.longer, used)
    if device.power_state == "hot":
        return share
    heat = seconds / (seconds + budget.heat_s)
    held_share: F64 = 1.0 - heat * (1.0 - share)
    return held_share


def _held_share_of_one(
    analysis: Analysis,
    batch: OpBatch,
    device: Device,
    seconds: float,
    slowing: Slowing,
    built: float,
    analysed: Analysed,
) -> Any:
    """:func:`held_share` of a batch of numbers."""
    dtype, whole_s = batch.variant.dtype, cast("Any", seconds)
    draw = drawn(analysis, dtype, device, whole_s, slowing.clock_hz)

    def dynamic(position: int, rows: I64) -> Any:  # noqa: ARG001 - there is one
        longer_s: Any = seconds * slowing.longer_of_one(position)
        joules = dynamic_j(analysis, batch, slowing.device(position), longer_s, analysed)
        return joules / longer_s

    def built_w(rows: I64) -> Any:  # noqa: ARG001 - there is one
        slow, slow_s = slowing.exactly(built)
        return dynamic_j(analysis, batch, slow, slow_s, analysed) / slow_s

    by_energy = Use(device, built, dynamic, built_w).used if beyond_own(device) else None

    def used(position: int) -> float:
        return 0.0 if by_energy is None else float(by_energy(position, ONE_ROW))

    core_w, memory_w = float(draw.core_w), float(draw.memory_w)
    return share_in_state(device, dtype, core_w, memory_w, seconds, slowing, used)


def _no_draw(position: int) -> float:  # noqa: ARG001 - the same at every clock
    return 0.0


def share_in_state(
    device: Device,
    dtype: str,
    core_w: float,
    memory_w: float,
    seconds: float,
    slowing: Slowing,
    used: Callable[[int], float] = _no_draw,
) -> Any:
    """:func:`held_share` of one kernel whose draw at the clock is known.

    Args:
        used: what share of the limit it draws by the law of energy at a place in :data:`CLOCKS`.
    """
    budget = board(device, dtype, slowing.clock_hz)
    share = clock_share_of_one(budget, core_w, memory_w, slowing.longer_of_one, used)
    if device.power_state == "hot":
        return share
    heat = seconds / (seconds + budget.heat_s)
    return 1.0 - heat * (1.0 - share)


@lru_cache(maxsize=4096)
def slower(device: Device, clock_hz: float, index: int) -> Device:
    """The device at a place in :data:`CLOCKS`, shares of a reference."""
    if not index and clock_hz == top_hz(device):
        return device
    return device.at_clock(clock_hz * CLOCKS[index])


def at_step(device: Device, index: int) -> Device:
    """:func:`slower` than a device is while nothing limits it."""
    return slower(device, top_hz(device), index)


def step_below(share: float) -> int:
    """The faster of the two clocks of :data:`CLOCKS` around a share.

    >>> [CLOCKS[step_below(0.96) + step] for step in (0, 1)]
    [0.975, 0.95]
    """
    return min(bisect_right(_FALLING, -share) - 1, len(CLOCKS) - 2)


def weight_of(index: int, share: F64) -> F64:
    """How far a share is on the way to the slower of two clocks, in one over the clock."""
    high, low = 1.0 / CLOCKS[index], 1.0 / CLOCKS[index + 1]
    return (1.0 / share - high) / (low - high)


def _distinct(positions: I64) -> list[int]:
    """Each position once, rising; ``np.unique`` would import masked arrays for it, 13 ms."""
    return sorted(set(positions.tolist()))
