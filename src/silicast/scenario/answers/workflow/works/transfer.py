"""Bytes from one pool to another: stated ones, or the weights that a step has changed."""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from silicast.scenario.answers.workflow.stage_work import (
    StageContext,
    StageWork,
    TimedJobs,
    register,
)
from silicast.scenario.resolving.deployments import deployment_of
from silicast.scenario.resolving.fleets import stated_kind
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

    def of(self, stage: StageContext) -> TimedJobs:
        target = self._target(stage)
        context = StageContext(stage.scenario, stage.name, _on(stage, target))
        deployment, _ = deployment_of(context.of_pool("serving"))
        link = next(
            (each for each in stage.scenario.links.values() if each.target in (None, target)),
            PoolLinkTable(),
        )
        rate, latency_s, kind = stated_kind(link, deployment.machine.links, f"{stage.field}.link")
        if link.bandwidth_gb_per_s is not None:
            rate = link.bandwidth_gb_per_s * GB
        if link.latency_us is not None:
            latency_s = link.latency_us * 1e-6
        if stage.table.data_gb is not None:
            size, what = stage.table.data_gb * GB, "the stated bytes"
        else:
            size = float(
                weight_bytes(
                    deployment.model, deployment.plan, deployment.precision,
                    policy=deployment.policy,
                )
            )  # fmt: skip
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
            if table.work in ("generate", "prefill") and table.pool is not None
        ]
        if not generating:
            raise stage.error("is missing", "pool", "the pool that takes in what moves")
        return generating[0]


def _on(stage: StageContext, pool: str):  # type: ignore[no-untyped-def]
    import msgspec

    return msgspec.structs.replace(stage.table, pool=pool)
