"""Bytes from one pool to another: stated ones, or the weights that a step has changed."""

from __future__ import annotations

from typing import ClassVar, final

import msgspec
import numpy as np

from silicast.scenario.answers.workflow.stage_work import (
    StageContext,
    StageWork,
    TimedJobs,
    register,
)
from silicast.scenario.resolving.deployments import deployment_of
from silicast.scenario.resolving.fleets import link_rate
from silicast.scenario.schema import PoolLinkTable
from silicast.workload.models.counting import weight_bytes
from silicast.workload.networks.vector_index import workflow_constants
from silicast.workload.transformers.plan import ParallelPolicy, Plan

GB = 1e9
ALONE, AS_IT_IS = Plan(), ParallelPolicy()
"""All of a model on one device."""


@register
@final
class Transfer(StageWork):
    """``data_gb`` over a link, or, after a stage of work "train", the new weights to every replica
    of the pool that generates with the same model: the trainer's ranks gather them tensor by tensor
    at the rate that frameworks reach, and each device takes in its share over the link meanwhile.
    """

    name: ClassVar[str] = "transfer"

    def work(self, stage: StageContext) -> TimedJobs:
        target = self._target(stage)
        table = msgspec.structs.replace(stage.table, pool=target)
        context = StageContext(stage.scenario, stage.name, table)
        deployment, _ = deployment_of(context.of_pool("serving"))
        link = next(
            (each for each in stage.scenario.links.values() if each.target in (None, target)),
            PoolLinkTable(),
        )
        rate, latency_s, kind = link_rate(link, deployment.machine.links, f"{stage.field}.link")
        if stage.table.data_gb is not None:
            size, log_sd = stage.table.data_gb * GB, workflow_constants().links.log_sd
            seconds = size / rate + latency_s
            remark = f"the stated bytes, {size / GB:.3g} GB, move over {kind} at "
            remark += f"{rate / GB:.3g} GB/s"
        else:
            constants = workflow_constants().weight_sync
            share, whole = (
                float(weight_bytes(deployment.model, plan, deployment.precision, policy=policy))
                for plan, policy in ((deployment.plan, deployment.policy), (ALONE, AS_IT_IS))
            )
            gathered_s = whole / (constants.gather_gb_per_s * GB)
            seconds, log_sd = max(share / rate, gathered_s) + latency_s, constants.log_sd
            remark = (
                f"{whole / GB:.3g} GB of weights are gathered, re-sharded and loaded at "
                f"{constants.gather_gb_per_s:.3g} GB/s, as veRL and slime publish it; the "
                f"{share / GB:.3g} GB of a device of {target} move over {kind} meanwhile"
            )
        return TimedJobs(
            lambda count, _: np.full(count, seconds),
            0,
            "analytic",
            log_sd,
            warnings=(f"{stage.name}: {remark}",),
        )

    def _target(self, stage: StageContext) -> str:
        """The pool that takes it in: the stage's own, or the one that generates."""
        if stage.table.pool is not None:
            return stage.table.pool
        generating = [
            table.pool
            for table in stage.stages.values()
            if table.work in ("generate", "prefill", "draft_verify") and table.pool is not None
        ]
        if not generating:
            raise stage.error("is missing", "pool", "the pool that takes in what moves")
        return generating[0]
