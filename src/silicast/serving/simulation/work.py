"""A step, or a stretch of decode steps, that a replica has under way."""

from __future__ import annotations

from typing import NamedTuple, final

import numpy as np

from silicast.composition.prices.stepper import Run
from silicast.core.numerics import I64
from silicast.serving.simulation.scheduler import StepPlan

Counts = tuple[int, int, int, int, int]


@final
class RunningStep(NamedTuple):
    """A step or a stretch that is under way.

    Attributes:
        plans: of each group.
        run: of a stretch; None = one step.
        steps: that will be taken of it.
        queues: sequences that run and wait, and blocks in use, as it began.
        counts: sequences in decode, new tokens of prompts, prompts, their past and cached tokens of
            the sequences in decode, as it began.
    """

    plans: list[StepPlan]
    start_ns: int
    end_ns: int
    run: Run | None = None
    steps: int = 1
    queues: tuple[int, int, int] = (0, 0, 0)
    counts: Counts = (0, 0, 0, 0, 0)

    @property
    def times(self) -> tuple[I64, I64]:
        """When each step starts and ends, shape (steps,)."""
        if self.run is None:
            return np.array([self.start_ns]), np.array([self.end_ns])
        starts, ends = self.run
        return np.array(starts[: self.steps]), np.array(ends[: self.steps])

    def retimed(self, start_ns: I64, end_ns: I64) -> RunningStep:
        """The same at other times, see :attr:`times`."""
        run = None if self.run is None else Run(start_ns.tolist(), end_ns.tolist())
        return self._replace(start_ns=int(start_ns[0]), end_ns=int(end_ns[-1]), run=run)
