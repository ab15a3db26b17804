"""The loop of a sweep: which family is next, what it wants measured, and when time is up.

Families share the time by weight. The next one is always the one that is furthest behind its share,
so that a family whose kernels are quick gets more of them, and one that has nothing left to ask for
gives its time to the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Protocol, final

from silicast.measurement.budget import WEIGHTS
from silicast.measurement.records import Columns, FailedRow, KernelRow

FIRST_COST_S = 0.3
"""What a kernel is thought to take before one of its family was measured."""
RECENT = 9
"""Kernels of a family whose time says what the next one takes."""
SAFETY = 1.5
"""A kernel is only begun if so many times its expected time are left."""


class Chooser(Protocol):
    """Says what to measure next in one family, as :mod:`silicast.measurement.design` does."""

    def next(self) -> Columns | None:
        """The next kernel, None if nothing is left."""

    def tell(self, kernel: Columns, latency_us: float) -> None:
        """A kernel was measured, now or before."""

    def failed(self, kernel: Columns) -> None:
        """A kernel cannot be measured."""


Measure = Callable[[Columns], KernelRow | FailedRow]
Clock = Callable[[], float]


@final
@dataclass
class Family:
    """One op's part in a sweep.

    Attributes:
        weight: of its share; spent_s: time that it has had; walls: of its last kernels.
        done: it has nothing more to ask for.
    """

    op: str
    chooser: Chooser
    weight: float = 1.0
    spent_s: float = 0.0
    walls: list[float] = field(default_factory=list)
    rows: int = 0
    failed: int = 0
    done: bool = False

    @property
    def expected_s(self) -> float:
        """Wall time of its next kernel, about."""
        return median(self.walls[-RECENT:]) if self.walls else FIRST_COST_S

    @property
    def behind(self) -> float:
        """The smaller, the more it lags behind its share."""
        return self.spent_s / self.weight


def families_of(choosers: Mapping[str, Chooser]) -> list[Family]:
    """Families with their usual weights."""
    return [Family(op, chooser, WEIGHTS.get(op, 1.0)) for op, chooser in choosers.items()]


@final
@dataclass(frozen=True)
class Measured:
    """One step of a sweep: what was measured, how long that took, and what time is left."""

    family: Family
    row: KernelRow | FailedRow
    wall_s: float
    left_s: float


@final
class Sweep:
    """Measures kernels until the time is up or nobody asks for more.

    Args:
        families: that share the time; measure: times one kernel.
        end: when to stop, by ``clock``; clock: seconds.
        stopped: asked before each kernel whether to end early.
    """

    def __init__(
        self,
        families: Sequence[Family],
        measure: Measure,
        end: float,
        *,
        clock: Clock = time.monotonic,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self.families = tuple(families)
        self._measure, self._end, self._clock, self._stopped = measure, end, clock, stopped

    def __iter__(self) -> Iterator[Measured]:
        """Measures one kernel after the other."""
        while not self._stopped():
            left = self._end - self._clock()
            family = self._next(left)
            if family is None:
                return
            start = self._clock()
            kernel = family.chooser.next()
            if kernel is None:
                family.done = True
                continue
            row = self._measure(kernel)
            if isinstance(row, KernelRow):
                family.chooser.tell(kernel, row.latency_us)
                family.rows += 1
            else:
                family.chooser.failed(kernel)
                family.failed += 1
            wall = self._clock() - start
            family.spent_s += wall
            family.walls.append(wall)
            yield Measured(family, row, wall, self._end - self._clock())

    def _next(self, left_s: float) -> Family | None:
        """The family that lags most, of those whose next kernel still fits."""
        fit = [each for each in self.families
               if not each.done and SAFETY * each.expected_s <= left_s]  # fmt: skip
        return min(fit, key=lambda each: each.behind, default=None)
