"""A space of designs as an environment of gymnasium: one action is one design.

Needs gymnasium (``pip install 'silicast[design]'``); nothing else in the package imports it.
"""

from __future__ import annotations

from typing import Any, ClassVar, final

import gymnasium
import numpy as np
from numpy.typing import NDArray

from silicast.core.errors import SilicastError
from silicast.core.numerics import F64, I64
from silicast.exploration.history import DesignOutcome, History
from silicast.exploration.pareto import hypervolume
from silicast.exploration.problem import SearchProblem
from silicast.exploration.search import answered

LARGEST = 1e3
"""No logarithm of a number is beyond this."""
F32 = NDArray[np.float32]


@final
class DesignEnvironment(gymnasium.Env[F32, I64]):
    """Each step tries a design; the reward is how much the front then encloses more.

    An action is the level number of every parameter. An observation is the last design (each
    parameter between 0 and 1), its objectives (made small, as natural logarithms where they are
    above zero; 0 of a design that is none) and whether it is a design. Rewards are shares of the
    box between the best values possible (0) and the objectives' references, and sum to what the
    front encloses of it. ``info`` has ``design``, ``metrics`` and ``cause``.

    Args:
        problem: with a reference for each objective.
        steps: of an episode, after which it is truncated.

    Raises:
        SilicastError: an objective has no reference, or one that is not above zero.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(self, problem: SearchProblem, steps: int = 100) -> None:
        for objective in problem.objectives:
            if objective.reference is None or objective.reference <= 0:
                raise SilicastError(
                    "a reward needs a reference above 0",
                    field=f"objective.{objective.metric}",
                    hint="give the value that is just not good enough",
                )
        self.problem = problem
        self.steps = steps
        self.action_space = gymnasium.spaces.MultiDiscrete(problem.space.levels)
        size = len(problem.space.parameters) + len(problem.objectives) + 1
        self.observation_space = gymnasium.spaces.Box(-LARGEST, LARGEST, (size,), np.float32)
        self._tried: dict[int, DesignOutcome] = {}
        self._enclosed, self._count = 0.0, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[F32, dict[str, Any]]:
        """Forgets what was tried; no design is the last one."""
        super().reset(seed=seed, options=options)
        self._tried = {}
        self._enclosed, self._count = 0.0, 0
        return np.zeros(self.observation_space.shape or (), dtype=np.float32), {}

    def step(self, action: I64) -> tuple[F32, float, bool, bool, dict[str, Any]]:
        """Tries a design; one that was tried before gains nothing."""
        space = self.problem.space
        design = space.canonical(np.asarray(action, dtype=np.int64)[None])
        code = int(space.encode(design)[0])
        if code not in self._tried:
            self._tried[code] = answered(self.problem, code)
        outcome = self._tried[code]
        before, self._enclosed = self._enclosed, self._share()
        self._count += 1
        info = {
            "design": space.settings(design[0]),
            "metrics": dict(outcome.metrics),
            "cause": outcome.cause,
        }
        observed = self._observed(design, outcome)
        return observed, self._enclosed - before, False, self._count >= self.steps, info

    def _history(self) -> History:
        codes = np.array(list(self._tried), dtype=np.int64)
        outcomes = tuple(self._tried.values())
        return History(self.problem.space, self.problem.objectives, codes, outcomes)

    def _share(self) -> float:
        """What the front encloses of the box that the references span.

        An objective that is to be large spans from its reference to twice of it.
        """
        history = self._history()
        box = float(np.prod([abs(r) for r in history.reference]))
        values = np.maximum(history.values, self._floor(history))
        return hypervolume(values, history.reference) / box

    def _floor(self, history: History) -> F64:
        signs = np.array([objective.sign for objective in self.problem.objectives])
        return np.where(signs > 0, 0.0, 2.0 * history.reference)

    def _observed(self, design: I64, outcome: DesignOutcome) -> F32:
        space = self.problem.space
        values = []
        for objective in self.problem.objectives:
            metric = outcome.metrics.get(objective.metric, 0.0)
            values.append(objective.sign * float(np.log(metric)) if metric > 0 else 0.0)
        return np.concatenate(
            [space.coordinates(design)[0], values, [0.0 if outcome.cause else 1.0]]
        ).astype(np.float32)
