"""Tokens that one model drafts and another verifies, both on the pool's devices."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, final

from silicast.scenario.answers.workflow.stage_work import (
    EngineRequests,
    StageContext,
    StageWork,
    register,
)
from silicast.scenario.answers.workflow.works.generate import requests_of


@register
@final
class DraftVerify(StageWork):
    """As work "generate", by steps that verify what ``speculative`` drafts: the pool's model brings
    the first drafts that it agrees with, and one token of its own.
    """

    name: ClassVar[str] = "draft_verify"

    def work(self, stage: StageContext) -> EngineRequests:
        if stage.table.speculative is None:
            raise stage.error(
                "is missing", "speculative", '{ method = "draft", draft, k, acceptance }'
            )
        return replace(requests_of(stage), speculative=stage.table.speculative)
