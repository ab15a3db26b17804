"""What is searched: a space, what counts, and a way to find out what a design comes to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final

from silicast.core.numerics import I64
from silicast.exploration.history import DesignOutcome, MetricObjective
from silicast.exploration.space import Space


class Evaluation(ABC):
    """Finds the metrics of designs."""

    @abstractmethod
    def outcome(self, design: I64) -> DesignOutcome:
        """Metrics of one design, or why it is none.

        Args:
            design: level numbers, (parameters,).
        """

    def prepare(self, designs: I64) -> None:  # noqa: B027 - most need not
        """Told of designs that are asked for next, (designs, parameters)."""


@final
@dataclass(frozen=True)
class SearchProblem:
    """A space to be searched.

    Attributes:
        space: of the designs.
        objectives: what counts; more than one makes a front.
        evaluation: of a design.
        identity: hash of everything that results depend on.
        caps: metric -> largest value that a design may have.
    """

    space: Space
    objectives: tuple[MetricObjective, ...]
    evaluation: Evaluation
    identity: str
    caps: Mapping[str, float] = field(default_factory=dict)


def over_a_cap(caps: Mapping[str, float], metrics: Mapping[str, float]) -> str:
    """The first cap that metrics are over, in words; "" where there is none.

    >>> over_a_cap({"area_mm2": 10.0}, {"area_mm2": 12.5})
    'area_mm2 above 10'
    """
    for metric, most in caps.items():
        if metric in metrics and metrics[metric] > most:
            return f"{metric} above {most:g}"
    return ""
