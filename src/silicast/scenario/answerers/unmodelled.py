"""Tasks that no model answers yet: their scenarios are decoded and checked in full."""

from __future__ import annotations

from typing import ClassVar, final

from silicast.scenario.answer import Answer
from silicast.scenario.answerer import UNMODELLED, Answerer, not_yet, register
from silicast.scenario.decode import Scenario
from silicast.scenario.named import check_names


@register
@final
class UnmodelledAnswerer(Answerer):
    """Checks the names, then says what is missing."""

    task: ClassVar[str] = "unmodelled"

    def answer(self, scenario: Scenario) -> Answer:
        """See :class:`~silicast.scenario.answerer.Answerer`."""
        check_names(scenario)
        missing = UNMODELLED[scenario.raw.task]
        raise not_yet(missing, "task", "see the road map for what comes next")
