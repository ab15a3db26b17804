"""The one interface of what answers a task, and their registry.

A task is one file of :mod:`silicast.scenario.answers`, named like the task, that subclasses
:class:`Answerer` and registers itself.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, final

from silicast.core.errors import SilicastError, unmodelled
from silicast.scenario.answer import Answer
from silicast.scenario.decode import Scenario
from silicast.scenario.road import FIELDS, PARTS, not_yet_of
from silicast.scenario.schema import RawScenario

if TYPE_CHECKING:
    from silicast.composition.timeline.trace_events import PredictedTimeline
    from silicast.scenario.answers.serving.served import Served


@final
@dataclass(frozen=True)
class ProgressWatch:
    """By default nothing is told.

    Attributes:
        simulated: is given the requests on their replicas before task ``serving`` simulates them.
        searched: is told how many of how many plans task ``plan`` predicted in full.
        resume: file in which a search keeps plans that were predicted in full, and from which the
            same search goes on.
    """

    simulated: Callable[[Served], None] = lambda _served: None
    searched: Callable[[int, int], None] = lambda _done, _count: None
    resume: Path | None = None


class Answerer(ABC):
    """Answers the scenarios of one task.

    Class attributes:
        task: as the contract names it.
        searches: an answer takes many; what changes nothing about it is not asked with others.
    """

    task: ClassVar[str]
    searches: ClassVar[bool] = False

    @abstractmethod
    def answer(self, scenario: Scenario) -> Answer:
        """The answer to one scenario, without its id.

        Raises:
            SilicastError: it cannot be answered; kind "not_yet" names the missing capability.
        """

    def watched(self, scenario: Scenario, watch: ProgressWatch) -> Answer:  # noqa: ARG002
        """The same answer, of which a caller is told while it is worked out.

        Tasks that take long, or have more to show than an answer, override this.
        """
        return self.answer(scenario)

    def bounds(self, scenario: Scenario) -> dict[str, float]:  # noqa: ARG002
        """Metric -> its physical limit, of those that are known at much less cost than the answer;
        none is better in the answer. Nothing where the answer itself costs as little.
        """
        return {}

    def trace(self, scenario: Scenario) -> PredictedTimeline:
        """The timeline behind the answer to a scenario.

        Raises:
            SilicastError: it cannot be answered; kind "not_yet": its task has no timeline.
        """
        raise not_yet_of(PARTS["timeline"], "task", scenario.raw.task)

    def answer_many(self, scenarios: Sequence[Scenario]) -> list[Answer | SilicastError]:
        """The answers to many, in order, the same as one by one; errors stand in their place."""
        answer_many: list[Answer | SilicastError] = []
        for scenario in scenarios:
            try:
                answer_many.append(self.answer(scenario))
            except SilicastError as error:
                answer_many.append(error)
        return answer_many


_REGISTRY: dict[str, Answerer] = {}


def register(cls: type[Answerer]) -> type[Answerer]:
    """Class decorator: makes a task known."""
    if cls.task in _REGISTRY:
        raise ValueError(f"two answerers of {cls.task}")
    _REGISTRY[cls.task] = cls()
    return cls


def answerer_for(task: str) -> Answerer:
    """What answers a task; its module is imported on first use."""
    if task not in _REGISTRY:
        importlib.import_module(f"silicast.scenario.answers.{task}.answerer")
    return _REGISTRY[task]


def not_yet(capability: str, field: str, hint: str = "") -> SilicastError:
    """The error for something that a scenario may say but no model answers.

    >>> str(not_yet("serving simulation", "task"))
    'task: not yet: serving simulation'
    """
    return unmodelled(f"not yet: {capability}", field, hint)


def refuse_unmodelled(scenario: Scenario, *fields: str) -> None:
    """Refuses each of ``fields`` that the scenario sets, so that none is ignored in silence.

    Raises:
        SilicastError: kind "not_yet", for the first of them.
    """
    for field in fields:
        table, _, leaf = field.partition(".")
        value = getattr(scenario.raw, table)
        if leaf and value is not None:
            value = getattr(value, leaf)
        if value is not None:
            raise not_yet_of(FIELDS[field], field)


def ignored(scenario: Scenario, *fields: str) -> list[str]:
    """A warning for each of ``fields`` that the scenario sets though its task has no use for it."""
    default = RawScenario(task=scenario.raw.task)
    return [
        f"not used by task {scenario.raw.task}: {field}"
        for field in fields
        if getattr(scenario.raw, field) != getattr(default, field)
    ]
