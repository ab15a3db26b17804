"""Tokens after the first one, of the prompts of the stage before."""

from __future__ import annotations

from typing import ClassVar, final

from silicast.scenario.answers.workflow.stage_work import (
    EngineRequests,
    StageContext,
    StageWork,
    register,
)

ROUNDING = 1e-9


@register
@final
class Decode(StageWork):
    """``output_len`` tokens of the one stage of work "prefill" that it follows; ``exits``: shares
    of them that leave the model at equal depths, the last at its end.
    """

    name: ClassVar[str] = "decode"

    def work(self, stage: StageContext) -> EngineRequests:
        before = [name for name in stage.table.after if stage.stages[name].work == "prefill"]
        if len(before) != 1 or len(stage.table.after) != 1:
            raise stage.error(
                "does not follow one stage of work prefill, and nothing else",
                "after",
                'work = "generate" has both prompts and outputs',
            )
        source = stage.stages[before[0]]
        exits = tuple(stage.table.exits or ())
        if exits and abs(sum(exits) - 1.0) > ROUNDING:
            raise stage.error(
                f"shares sum to {sum(exits):g}", "exits", "one share for each exit, together 1"
            )
        pool = stage.pool[0]
        return EngineRequests(
            StageContext(stage.scenario, before[0], source).needed("input_len"),
            stage.needed("output_len"),
            exits=exits,
            decode_pool=pool if source.pool not in (None, pool) else "",
            prefill=before[0],
        )
