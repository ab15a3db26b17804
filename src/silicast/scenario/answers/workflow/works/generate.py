"""Prompts and tokens of a language model, by the engine that serves it; or one of both alone."""

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
class Generate(StageWork):
    """A prompt of ``input_len`` and an output of ``output_len`` tokens; lengths that a trace of
    arrivals has may be left out.
    """

    name: ClassVar[str] = "generate"

    def work(self, stage: StageContext) -> EngineRequests:
        return requests_of(stage)


def requests_of(stage: StageContext) -> EngineRequests:
    """Requests of a stage's own lengths."""
    name, pool = stage.pool
    table = stage.table
    elsewhere = ""
    if pool.role == "prefill":
        decoding = [other for other, each in stage.scenario.pools.items() if each.role == "decode"]
        if len(decoding) != 1:
            raise stage.error(
                f"pool {name} prefills, and {len(decoding)} pools have role decode",
                "pool",
                "one pool of role decode takes its caches",
            )
        elsewhere = decoding[0]
    return EngineRequests(
        table.input_len, table.output_len, exits=tuple(table.exits or ()), decode_pool=elsewhere
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
