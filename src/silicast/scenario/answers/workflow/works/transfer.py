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

GB = 1e9


@register
@final
class Transfer(StageWork):
    """``data_gb`` over a link, or, after a stage of work "train", the new weights to every replica
    of the pool that generates with the same model: each device takes in its share of them, and
    replicas pass them on while they come.
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
            size, what = stage.table.data_gb * GB, "the stated bytes"
        else:
            size = float(
                weight_bytes(
                    deployment.model,
                    deployment.plan,
                    deployment.precision,
                    policy=deployment.policy,
                )
            )
            what = f"the weights of a device of {target}"
        seconds = size / rate + latency_s
        remark = (
            f"{stage.name}: {what}, {size / GB:.3g} GB, move over {kind} at {rate / GB:.3g} GB/s; "
            "what frameworks do beside it (gather, re-shard, load) is in the interval alone"
        )
        log_sd = workflow_constants().weight_sync.log_sd
        return TimedJobs(
            lambda count, _: np.full(count, seconds), 0, "analytic", log_sd, warnings=(remark,)
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
