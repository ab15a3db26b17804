"""Stages of a stated time, on no device: a number or a distribution."""

from __future__ import annotations

from typing import ClassVar, final

from silicast.scenario.answers.workflow.stage_work import (
    StageContext,
    StageWork,
    TimedJobs,
    register,
    stated_times,
)


@register
@final
class FixedTime(StageWork):
    """``duration_ms``, on ``servers``."""

    name: ClassVar[str] = "fixed"

    def work(self, stage: StageContext) -> TimedJobs:
        return stated_times(stage)


@register
@final
class ToolCall(StageWork):
    """``duration_ms``, on ``servers``."""

    name: ClassVar[str] = "tool_call"

    def work(self, stage: StageContext) -> TimedJobs:
        return stated_times(stage)
