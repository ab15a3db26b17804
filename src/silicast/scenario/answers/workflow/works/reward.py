"""Scores of answers by a reward model: one pass over each."""

from __future__ import annotations

from typing import ClassVar, final

from silicast.scenario.answers.workflow.stage_work import (
    EngineRequests,
    NetworkPasses,
    StageContext,
    StageWork,
    register,
)
from silicast.scenario.answers.workflow.works.embed import text_passes


@register
@final
class Reward(StageWork):
    """``batch`` answers of ``input_len`` tokens each with their prompts."""

    name: ClassVar[str] = "reward"

    def work(self, stage: StageContext) -> EngineRequests | NetworkPasses:
        return text_passes(stage)
