"""What a search has tried so far: designs, and what came of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from silicast.core.dominance import front
from silicast.core.numerics import F64, I64
from silicast.exploration.pareto import hypervolume
from silicast.exploration.space import Space


@final
@dataclass(frozen=True)
class MetricObjective:
    """A metric that counts.

    Attributes:
        metric: its name.
        largest: whether more is better.
        reference: value that is just not good enough, for hypervolumes; None = the worst seen.
    """

    metric: str
    largest: bool = False
    reference: float | None = None

    @property
    def sign(self) -> float:
        """Times this, it is made small."""
        return -1.0 if self.largest else 1.0


@final
@dataclass(frozen=True)
class DesignOutcome:
    """What came of one design.

    Attributes:
        metrics: name -> value; empty where the design is infeasible.
        cause: why it is infeasible; "" where it is not.
    """

    metrics: Mapping[str, float] = field(default_factory=dict)
    cause: str = ""


@final
@dataclass(frozen=True)
class History:
    """Designs in the order in which they were tried.

    Attributes:
        space: that they are of.
        objectives: that count.
        codes: of the designs, (designs,).
        outcomes: of each.
    """

    space: Space
    objectives: tuple[MetricObjective, ...]
    codes: I64
    outcomes: tuple[DesignOutcome, ...]

    def __len__(self) -> int:
        return len(self.outcomes)

    @cached_property
    def designs(self) -> I64:
        """Level numbers, (designs, parameters)."""
        return self.space.decode(self.codes)

    @cached_property
    def feasible(self) -> NDArray[np.bool_]:
        """Whether each design is one, (designs,)."""
        return np.array([not outcome.cause for outcome in self.outcomes], dtype=bool)

    @cached_property
    def values(self) -> F64:
        """Objectives of the feasible designs, made small, (feasible designs, objectives)."""
        return np.array(
            [
                [
                    objective.sign * outcome.metrics[objective.metric]
                    for objective in self.objectives
                ]
                for outcome in self.outcomes
                if not outcome.cause
            ],
            dtype=float,
        ).reshape(-1, len(self.objectives))

    @cached_property
    def scaled(self) -> F64:
        """:attr:`values` by logarithm where all of a metric are above zero: for distances."""
        scaled = self.values.copy()
        for k, objective in enumerate(self.objectives):
            plain = objective.sign * scaled[:, k]
            if len(plain) and plain.min() > 0:
                scaled[:, k] = objective.sign * np.log(plain)
        return scaled

    @cached_property
    def front(self) -> I64:
        """Places of the designs that no other one beats, by the first objective."""
        positions = np.flatnonzero(self.feasible)[front(self.values)]
        keys = self.values[front(self.values)]
        return positions[np.lexsort(keys.T[::-1])]

    @cached_property
    def reference(self) -> F64:
        """Corner of the hypervolume, made small: as given, else the worst value met."""
        worst = self.values.max(axis=0, initial=-np.inf)
        return np.array(
            [
                worst[k] if objective.reference is None else objective.sign * objective.reference
                for k, objective in enumerate(self.objectives)
            ]
        )

    @cached_property
    def hypervolume(self) -> float:
        """What the front encloses below :attr:`reference`, in the objectives' own units."""
        return hypervolume(self.values, self.reference)

    @cached_property
    def infeasible(self) -> dict[str, int]:
        """Cause -> designs, the commonest first."""
        counts = Counter(outcome.cause for outcome in self.outcomes if outcome.cause)
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def first(self, count: int) -> History:
        """The first of the designs alone."""
        return History(self.space, self.objectives, self.codes[:count], self.outcomes[:count])
