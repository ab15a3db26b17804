"""Scores of texts against a question: one pass over each pair."""

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
class Rerank(StageWork):
    """``items`` pairs of ``input_len`` tokens each, up to ``max_batch`` in a pass."""

    name: ClassVar[str] = "rerank"

    def work(self, stage: StageContext) -> EngineRequests | NetworkPasses:
        return text_passes(stage)
