"""A search problem, and how methods choose what to try next.

What is searched: a space, what counts, and a way to find out what a design comes to.

Each file of ``silicast.exploration.methods`` is a method. What a method proposes follows from what
was tried and from the seed alone, so that a search that was cut off goes on as if it had not been.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, final

import numpy as np

from silicast.core.numerics import I64
from silicast.core.registry import Registry
from silicast.exploration.history import DesignOutcome, History, MetricObjective
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


class Method(ABC):
    """A way to search a space.

    Attributes:
        name: on the command line.
    """

    name: ClassVar[str]

    @abstractmethod
    def batch(self, tried: int) -> int:
        """Designs that are proposed together once ``tried`` have been."""

    @abstractmethod
    def propose(self, history: History, seed: int, count: int) -> I64:
        """Codes of designs to try next: different, none of them tried before.

        Args:
            history: all that was tried before this batch.
            seed: of the search.
            count: how many; fewer are returned only where no more are left.
        """


METHODS: Registry[Method] = Registry("silicast.exploration.methods", "method", "method")


def generator(seed: int, tried: int) -> np.random.Generator:
    """Random numbers of one batch: they depend on nothing but the seed and where the search is."""
    return np.random.default_rng([seed, tried])


def crossed(rng: np.random.Generator, first: I64, second: I64) -> I64:
    """Each parameter from one of two parents, (designs, parameters)."""
    return np.where(rng.random(first.shape) < 0.5, first, second)


def stepped(rng: np.random.Generator, space: Space, designs: I64) -> I64:
    """Designs with one parameter changed or more, each with chance 1 / parameters.

    A parameter of numbers moves by few levels rather than by many; another takes any level.
    """
    result = designs.copy()
    count, parameters = result.shape
    change = rng.random(result.shape) < 1.0 / parameters
    sure = rng.integers(0, parameters, count)
    change[np.arange(count), sure] = True
    for i, parameter in enumerate(space.parameters):
        levels = len(parameter.values)
        if parameter.is_ordered:
            far = np.minimum(rng.geometric(0.5, count), max(levels - 1, 1))
            moved = result[:, i] + np.where(rng.random(count) < 0.5, -far, far)
            # What would leave the range turns back into it.
            moved = np.abs(moved)
            moved = np.where(moved > levels - 1, 2 * (levels - 1) - moved, moved)
        else:
            moved = rng.integers(0, levels, count)
        result[:, i] = np.where(change[:, i], np.clip(moved, 0, levels - 1), result[:, i])
    return space.canonical(result)


def new_codes(space: Space, designs: I64, tried: I64) -> I64:
    """Codes of designs that are new and allowed, each once, in order."""
    codes = space.encode(designs[space.allowed(designs)])
    _, first = np.unique(codes, return_index=True)
    codes = codes[np.sort(first)]
    return codes[~np.isin(codes, tried)]
