"""How fast steps of several engines run while they share a device.

Between two events each step progresses at a rate of its own: what it would take alone over what it
takes now. A step keeps the device busy for a share b of its time (the rest is the host's) and is
slowed by s while the device works for it, so that it takes (1 - b) + b s times as long; how much
others slow it depends on how often they are there, which depends on how slow they are: rates are
the fixed point of both.

Rates are whole numbers of :data:`UNIT`, rounded down, and progress is counted in the same unit, so
that work is conserved exactly.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from silicast.composition.prices.step_price import Needs
from silicast.composition.step.concurrency import slowdown

UNIT = 1 << 16
"""Progress of a nanosecond of work that nothing slows."""
ROUNDS = 64


@final
@dataclass(frozen=True)
class DeviceLoad:
    """What one engine does with the device.

    Attributes:
        busy: share of its step's time in which the device works; 0 = nothing runs.
        needs: shares of the whole device's cores, memory bandwidth and links meanwhile.
        step_ns: that the device works for a step, alone; 0 = much longer than a turn.
    """

    busy: float = 0.0
    needs: Needs = (1.0, 1.0, 0.0)
    step_ns: float = 0.0


class Law(ABC):
    """How work on one device slows other work down."""

    @abstractmethod
    def slowdowns(self, present: Sequence[float], loads: Sequence[DeviceLoad]) -> list[float]:
        """Of the device's work of each engine, at least 1.

        Args:
            present: share of the time in which each has work on the device.
        """


@final
@dataclass(frozen=True)
class TimeSlicing(Law):
    """One at a time, in turns: a step takes whole turns and ends within the last one, so that
    short steps have shorter turns.

    Attributes:
        weights: of the lengths of each engine's turns, 1 = ``turn_ns``.
        switch_ns: before each turn, if another one ran.

    >>> rates(TimeSlicing((1.0, 1.0)), [DeviceLoad(1.0), DeviceLoad(1.0)]) == [UNIT // 2, UNIT // 2]
    True
    >>> rates(TimeSlicing((1.0, 1.0)), [DeviceLoad(0.4), DeviceLoad()]) == [UNIT, UNIT]
    True
    """

    weights: tuple[float, ...]
    switch_ns: float = 0.0
    turn_ns: float = 1.0

    def slowdowns(self, present: Sequence[float], loads: Sequence[DeviceLoad]) -> list[float]:
        turns = [self._turn_ns(*pair) for pair in zip(self.weights, loads, strict=True)]
        slowdowns = []
        for current, turn in enumerate(turns):
            others = [each for each in range(len(loads)) if each != current]
            waits = math.fsum(present[each] * (turns[each] + self.switch_ns) for each in others)
            alone = math.prod(1.0 - present[each] for each in others)
            slowdowns.append(1.0 + (waits + (1.0 - alone) * self.switch_ns) / turn)
        return slowdowns

    def _turn_ns(self, weight: float, load: DeviceLoad) -> float:
        """Mean length of an engine's turns."""
        longest = weight * self.turn_ns
        if not load.step_ns:
            return longest
        return load.step_ns / math.ceil(load.step_ns / longest)


@final
@dataclass(frozen=True)
class Together(Law):
    """All at once: by the one law of :mod:`~silicast.composition.step.concurrency`.

    >>> full = DeviceLoad(1.0, (1.0, 0.5, 0.0))
    >>> rates(Together(), [full, full]) == [UNIT // 2, UNIT // 2]
    True
    >>> rates(Together(), [DeviceLoad(1.0, (0.4, 0.3, 0.0)),
    ...     DeviceLoad(1.0, (0.6, 0.7, 0.0))]) == [UNIT] * 2
    True
    """

    def slowdowns(self, present: Sequence[float], loads: Sequence[DeviceLoad]) -> list[float]:
        slowdowns = []
        for current, load in enumerate(loads):
            others = [each for each in range(len(loads)) if each != current]
            totals = (
                need + math.fsum(present[each] * loads[each].needs[index] for each in others)
                for index, need in enumerate(load.needs)
            )
            beside = max((present[each] for each in others), default=0.0)
            slowdowns.append(slowdown(totals) if beside > 0.0 else 1.0)
        return slowdowns


def rates(law: Law, loads: Sequence[DeviceLoad]) -> list[int]:
    """The rate of each engine, in :data:`UNIT`."""
    busy = [load.busy for load in loads]
    slower = [1.0] * len(loads)
    for _ in range(ROUNDS):
        longer = [1.0 + b * (s - 1.0) for b, s in zip(busy, slower, strict=True)]
        present = [b * s / each for b, s, each in zip(busy, slower, longer, strict=True)]
        slowdowns = law.slowdowns(present, loads)
        if slowdowns == slower:
            break
        slower = slowdowns
    return [
        max(math.floor(UNIT / (1.0 + b * (s - 1.0))), 1) for b, s in zip(busy, slower, strict=True)
    ]
