"""Tokens from a language model, by the engine that serves it."""

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
