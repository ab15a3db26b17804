"""The clock that a board's power limit, or a user's limit, holds over a mix of work."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from silicast.composition.step.machine import Machine
from silicast.core.numerics import F64, I64
from silicast.kernels.physics.energy import most_w, waiting_w
from silicast.kernels.physics.held_clock import Use, beyond_own, clock_share, unlimited
from silicast.kernels.physics.power import MIN_CLOCK_SHARE, board, held

TOLERANCE = 0.005
"""A clock this close to boost is boost."""
ROUNDING = 1e-9
_ANY = "fp32"
"""Limit, idle power and floor of a board are the same in every format."""
NOT_HELD = "limits.power_w cannot be held: the slowest clock, {:.0f} MHz, is assumed"


class ClockedWork(NamedTuple):
    """Some work at one clock.

    Attributes:
        seconds: that it takes.
        core_j, memory_j: what the cores and main memory take for it, by the law of the clock.
        dynamic_j: what it takes beyond what the board draws while it waits, by the law of energy
            and as if no limit held; 0 where the board's own limit and clock hold.
    """

    seconds: float
    core_j: float
    memory_j: float
    dynamic_j: float


def held_clock(machine: Machine, work: ClockedWork, at: Callable[[int], ClockedWork]) -> float:
    """The clock in hertz that is held over work that repeats; boost where nothing limits it.

    Args:
        machine: what it runs on.
        work: at the boost clock.
        at: the work at a place in :data:`~.held_clock.CLOCKS`; each is asked for once.
    """
    device = machine.limited_device
    boost, share = device.clocks.boost_hz, 1.0
    if device.power_cap_w is not None:
        known = {0: work}

        def at_place(position: int) -> ClockedWork:
            if position not in known:
                known[position] = at(position)
            return known[position]

        def longer(position: int, rows: I64) -> F64:
            return np.full(len(rows), max(at_place(position).seconds / work.seconds, 1.0))

        def dynamic_w(position: int, rows: I64) -> F64:
            one = at_place(position)
            return np.full(len(rows), one.dynamic_j / max(one.seconds, work.seconds))

        core_w, memory_w = (
            np.array([joules / work.seconds]) for joules in (work.core_j, work.memory_j)
        )
        used = Use(device, dynamic_w).used if beyond_own(device) else unlimited
        share = clock_share(board(device, _ANY), core_w, memory_w, longer, used).item()
    hz = min(share * boost, math.inf if machine.clock_hz is None else machine.clock_hz)
    return hz if hz < boost * (1.0 - TOLERANCE) else boost


def not_held(share: float, boost_hz: float) -> tuple[str, ...]:
    """A remark where a user's power limit asks for less than the slowest clock; or nothing.

    Args:
        share: of ``boost_hz``, the clock that is held.

    >>> not_held(0.1, 1.83e9)
    ('limits.power_w cannot be held: the slowest clock, 183 MHz, is assumed',)
    >>> not_held(0.2, 1.83e9)
    ()
    """
    if share > MIN_CLOCK_SHARE * (1.0 + ROUNDING):
        return ()
    return (NOT_HELD.format(boost_hz * share / 1e6),)


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
