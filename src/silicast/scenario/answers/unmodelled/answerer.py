"""Tasks that no model answers yet: their scenarios are decoded and checked in full."""

from __future__ import annotations

from typing import ClassVar, final

from silicast.scenario.answer import Answer
from silicast.scenario.answerer import Answerer, register
from silicast.scenario.decode import Scenario
from silicast.scenario.resolving.named import check_names
from silicast.scenario.road import TASKS, not_yet_of


@register
@final
class UnmodelledAnswerer(Answerer):
    """Checks the names, then says what is missing."""

    task: ClassVar[str] = "unmodelled"

    def answer(self, scenario: Scenario) -> Answer:
        check_names(scenario)
        raise not_yet_of(TASKS[scenario.raw.task], "task")
