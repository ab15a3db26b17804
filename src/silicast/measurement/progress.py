"""How far a session of measuring is, and what it came to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from silicast.measurement.budget import shown

Clock = Callable[[], float]
"""Seconds, from any moment on."""


@final
class Progress:
    """How far a session is, for whoever watches it.

    Attributes:
        phase: "host", "collectives", "kernels", "models"; op: that is being measured.
        rows, failed: that were added so far.
    """

    def __init__(self, budget_s: float, started_s: float, clock: Clock) -> None:
        self.budget_s, self.started_s, self.clock = budget_s, started_s, clock
        self.phase, self.op = "host", ""
        self.rows = self.failed = 0

    def __str__(self) -> str:
        passed = min(self.clock() - self.started_s, self.budget_s)
        failed = f", {self.failed} failed" if self.failed else ""
        what = f"{self.phase} {self.op}".strip()
        return f"{shown(passed)} of {shown(self.budget_s)}: {self.rows} rows{failed}; {what}"


@final
@dataclass(frozen=True)
class Outcome:
    """What a session came to.

    Attributes:
        seconds: it took; rows, failed: that it added.
        ended: "" if by its budget, else why before.
        exhausted: no kernel is left to measure, however long it would take.
    """

    seconds: float
    rows: int
    failed: int
    ended: str = ""
    exhausted: bool = False
