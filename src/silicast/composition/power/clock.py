"""The clock that a board's power limit, or a user's limit, holds over a mix of work."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeAlias, TypeVar, final

import numpy as np

from silicast.composition.step.machine import Machine
from silicast.core.numerics import F64, I64
from silicast.hardware.device import Device
from silicast.kernels.physics.energy import most_w, waiting_w
from silicast.kernels.physics.held_clock import (
    ONE_ROW,
    Use,
    beyond_own,
    clock_share,
    clock_share_of_one,
    unlimited,
)
from silicast.kernels.physics.power import MIN_CLOCK_SHARE, board, held, silicon, top_hz

TOLERANCE = 0.005
"""A clock this close to that of unlimited work is that clock."""
ROUNDING = 1e-9
_ANY = "fp32"
"""Limit, idle power and floor of a board are the same in every format."""
T = TypeVar("T", float, F64)

NOT_HELD = "limits.power_w cannot be held: the slowest clock, {:.0f} MHz, is assumed"


class ClockedWork(NamedTuple, Generic[T]):
    """Some work at one clock: numbers, or arrays of several pieces of work, shape (n,).

    Attributes:
        seconds: that it takes.
        core_j, memory_j: what the cores and main memory take for it, by the law of the clock.
        dynamic_j: what it takes beyond what the board draws while it waits, by the law of energy
            and as if no limit held; 0 where the board's own limit and clock hold.
    """

    seconds: T
    core_j: T
    memory_j: T
    dynamic_j: T


@final
class PowerLimit:
    """What a machine's power limit leaves for work that repeats, asked for many times.

    Attributes:
        free_hz: the clock of work that the power limit does not slow.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine, device = machine, machine.limited_device
        self.free_hz: float = _nearly_top(machine, top_hz(device))
        self._left_w = math.inf
        if device.power_cap_w is not None:
            self._board = board(device, _ANY)
            self._left_w = self._board.limit_w - self._board.idle_w
        self._by_energy = device.power_cap_w is not None and beyond_own(device)

    def is_free(self, work: ClockedWork[float]) -> bool:
        """Whether the limit slows nothing: most steps in decode, which wait for memory."""
        return self.leaves(work.seconds, work.core_j, work.memory_j)

    def leaves(self, seconds: float, core_j: float, memory_j: float) -> bool:
        """The same of work by what it takes."""
        return core_j / seconds + memory_j / seconds <= self._left_w and not self._by_energy

    def clock(self, work: ClockedWork[float], at: Callable[[int], ClockedWork[float]]) -> float:
        """The clock in hertz that is held over some work; the top where nothing limits it.

        Args:
            work: at the top clock.
            at: the work at a place in :data:`~.held_clock.CLOCKS`; each is asked for once.
        """
        if self.is_free(work):
            return self.free_hz
        known = {0: work}

        def slowed(position: int) -> ClockedWork[float]:
            if position not in known:
                known[position] = at(position)
            return known[position]

        def longer(position: int) -> float:
            return max(slowed(position).seconds / work.seconds, 1.0)

        def dynamic_w(position: int, rows: I64) -> F64:  # noqa: ARG001 - there is one
            slow = slowed(position)
            watts: F64 = slow.dynamic_j / max(slow.seconds, work.seconds)  # type: ignore[assignment]
            return watts

        device = self._machine.limited_device
        by_energy = Use(device, _built(device), dynamic_w).used if self._by_energy else None

        def used(position: int) -> float:
            return 0.0 if by_energy is None else float(by_energy(position, ONE_ROW))

        draw = work.core_j / work.seconds, work.memory_j / work.seconds
        share = clock_share_of_one(self._board, *draw, longer, used)
        return _nearly_top(self._machine, share * top_hz(device))


At: TypeAlias = Callable[[int, I64], tuple[F64, F64]]
"""A place in :data:`~.held_clock.CLOCKS` and rows of some work, ascending -> ``seconds`` and
``dynamic_j`` of these at that clock, as of :class:`ClockedWork`.
"""


def held_clocks(machine: Machine, work: ClockedWork[F64], at: At) -> F64:
    """:meth:`PowerLimit.clock` of several pieces of work, shape (n,); the same bits as alone.

    Args:
        machine: what each runs on.
        work: at the top clock.
        at: each is asked for once.
    """
    device = machine.limited_device
    top, share = top_hz(device), np.ones(len(work.seconds))
    if device.power_cap_w is not None:
        slowed = _Slowed(work, at)
        used = unlimited
        if beyond_own(device):
            used = Use(device, _built(device), slowed.dynamic_w).used
        core_w, memory_w = (joules / work.seconds for joules in (work.core_j, work.memory_j))
        share = clock_share(board(device, _ANY), core_w, memory_w, slowed.longer, used)
    return np.array([_nearly_top(machine, hz) for hz in (share * top).tolist()])


def _nearly_top(machine: Machine, hz: float) -> float:
    """A clock within the user's limit; the top where it is as good as that."""
    top = top_hz(machine.limited_device)
    hz = min(hz, math.inf if machine.clock_hz is None else machine.clock_hz)
    return hz if hz < top * (1.0 - TOLERANCE) else top


def _built(device: Device) -> float:
    """The top clock of the board as it was built, over the device's."""
    return top_hz(silicon(device)) / top_hz(device)


@final
class _Slowed:
    """Several pieces of work at slower clocks, each evaluated when it is needed.

    Args:
        work: at the top clock; ``at``: see :func:`held_clocks`.
    """

    def __init__(self, work: ClockedWork[F64], at: At) -> None:
        self._work, self._at = work, at
        self._tables = {0: (work.seconds, work.dynamic_j)}

    def longer(self, position: int, rows: I64) -> F64:
        """How many times as long rows take at a place in the clocks."""
        seconds, _ = self._at_place(position, rows)
        longer: F64 = np.maximum(seconds / self._work.seconds[rows], 1.0)
        return longer

    def dynamic_w(self, position: int, rows: I64) -> F64:
        """What rows draw there beyond what the board draws while it waits."""
        seconds, dynamic_j = self._at_place(position, rows)
        watts: F64 = dynamic_j / np.maximum(seconds, self._work.seconds[rows])
        return watts

    def _at_place(self, position: int, rows: I64) -> tuple[F64, F64]:
        if position not in self._tables:
            unknown = np.full((2, len(self._work.seconds)), np.nan)
            self._tables[position] = (unknown[0], unknown[1])
        seconds, dynamic_j = self._tables[position]
        missing = rows[np.isnan(seconds[rows])]
        if len(missing):
            seconds[missing], dynamic_j[missing] = self._at(position, missing)
        return seconds[rows], dynamic_j[rows]


def not_held(share: float, clock_hz: float) -> tuple[str, ...]:
    """A remark where a user's power limit asks for less than the slowest clock; or nothing.

    Args:
        share: of ``clock_hz``, that of unlimited work, what is held.

    >>> not_held(0.1, 1.83e9)
    ('limits.power_w cannot be held: the slowest clock, 183 MHz, is assumed',)
    >>> not_held(0.2, 1.83e9)
    ()
    """
    if share > MIN_CLOCK_SHARE * (1.0 + ROUNDING):
        return ()
    return (NOT_HELD.format(clock_hz * share / 1e6),)


class PowerDraw(NamedTuple):
    """What one device draws over some work.

    Attributes:
        power_w: on average, at most its limit; energy_j: in all.
    """

    power_w: float
    energy_j: float


def drawn(machine: Machine, seconds: float, kernels_j: float) -> PowerDraw:
    """What a device draws over some work. Of a board, no more than its limit lets it: its voltage
    falls with the clock. Of a design each action takes what its file states, however long it is
    held up, so that work which was predicted quicker than the limit allows still takes it all.

    Args:
        seconds: what the work takes, waiting included.
        kernels_j: what its kernels take beyond what the board draws while it waits.
    """
    device = machine.limited_device
    waiting, most = waiting_w(device), most_w(device)
    if device.structure is None:
        watts = min(waiting + kernels_j / seconds, most)
        return PowerDraw(watts, watts * seconds)
    result = held(seconds, kernels_j, waiting, most)  # type: ignore[arg-type]
    took_s, joules = map(float, result)
    return PowerDraw(joules / took_s, joules)


def power_w(machine: Machine, seconds: float, kernels_j: float) -> float:
    """What the device draws on average over some work, at most its limit; watts. As
    :func:`drawn`.
    """
    return drawn(machine, seconds, kernels_j).power_w
