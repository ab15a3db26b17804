"""Prompts alone: a first token, or the prompts of a stage of decoding."""

from __future__ import annotations

from typing import ClassVar, final

from silicast.scenario.answers.workflow.stage_work import (
    EngineRequests,
    StageContext,
    StageWork,
    register,
)


@register
@final
class Prefill(StageWork):
    """A prompt of ``input_len`` tokens. Where a stage of work "decode" follows it, both are one
    request, whose first token ends this stage.
    """

    name: ClassVar[str] = "prefill"

    def work(self, stage: StageContext) -> EngineRequests:
        return EngineRequests(stage.needed("input_len"), 1, answers=True)
