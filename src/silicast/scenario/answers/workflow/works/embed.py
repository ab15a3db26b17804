"""One pass over each text: its vector, its score against a question, or a reward."""

from __future__ import annotations

from typing import ClassVar, final

from silicast.composition.passes.framework_pass import prefill_model
from silicast.composition.passes.program import ProgramPass, predict_pass
from silicast.composition.step.states import BatchStates
from silicast.scenario.answers.workflow.stage_work import (
    EngineRequests,
    NetworkPasses,
    StageContext,
    StageWork,
    in_jobs,
    register,
)
from silicast.scenario.resolving.deployments import deployment_of
from silicast.workload.frameworks.eager import Framework

MOST = 64
"""Texts of a pass where the stage states no ``max_batch``."""


@register
@final
class Embed(StageWork):
    """``items`` texts of ``input_len`` tokens, up to ``max_batch`` in a pass."""

    name: ClassVar[str] = "embed"

    def work(self, stage: StageContext) -> EngineRequests | NetworkPasses:
        return text_passes(stage)


def text_passes(stage: StageContext) -> EngineRequests | NetworkPasses:
    """One pass over each text: by an engine that serves, or by a framework."""
    if stage.engine.kind == "serving":
        return EngineRequests(stage.needed("input_len"), 1, answers=False)
    tokens = stage.one_length("input_len")
    deployment, warnings = deployment_of(stage.of_pool("graph"))
    framework = Framework(compiled=deployment.engine.compiles, attention="fused")

    most = stage.table.max_batch or MOST
    copies, each, jobs = in_jobs(stage.table.items, most)

    def passes(batch: int, size: int) -> ProgramPass:
        model = prefill_model(deployment, batch * each, size, framework)
        return predict_pass(model, BatchStates.prefill([size] * (batch * each)))

    remark = f"{stage.name}: up to {most} texts run in a pass (max_batch)"
    remarks = () if stage.table.max_batch else (remark,)
    return NetworkPasses(
        deployment.machine,
        tokens,
        passes,
        jobs,
        copies,
        deployment,
        warnings=(*(f"{stage.name}: {text}" for text in warnings), *remarks),
    )


@register
@final
class Rerank(StageWork):
    """``items`` pairs of ``input_len`` tokens each, up to ``max_batch`` in a pass."""

    name: ClassVar[str] = "rerank"

    def work(self, stage: StageContext) -> EngineRequests | NetworkPasses:
        return text_passes(stage)


@register
@final
class Reward(StageWork):
    """``batch`` answers of ``input_len`` tokens each with their prompts."""

    name: ClassVar[str] = "reward"

    def work(self, stage: StageContext) -> EngineRequests | NetworkPasses:
        return text_passes(stage)
