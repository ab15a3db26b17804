"""Task ``training``: one optimizer step on a cluster; not answered yet.

Its scenarios are decoded and checked in full.
"""

from __future__ import annotations

from typing import ClassVar, final

from silicast.scenario.answer import Answer
from silicast.scenario.answerer import Answerer, not_yet, register
from silicast.scenario.decode import Scenario
from silicast.scenario.named import check_names


@register
@final
class TrainingAnswerer(Answerer):
    """Checks the names, then says what is missing."""

    task: ClassVar[str] = "training"

    def answer(self, scenario: Scenario) -> Answer:
        """See :class:`~silicast.scenario.answerer.Answerer`."""
        check_names(scenario)
        raise not_yet("training steps", "task", "see the road map for what comes next")
