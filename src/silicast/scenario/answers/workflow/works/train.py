"""An optimizer step."""

from __future__ import annotations

from typing import ClassVar, final

import msgspec
import numpy as np

from silicast.core.errors import SilicastError
from silicast.scenario.answers.training.training_runs import run_of
from silicast.scenario.answers.workflow.stage_work import (
    StageContext,
    StageWork,
    TimedJobs,
    register,
)
from silicast.scenario.checks import check_workload


@register
@final
class Train(StageWork):
    """One step of ``training``; sequences that the data ranks cannot share out evenly are padded
    to a number that they can.
    """

    name: ClassVar[str] = "train"

    def work(self, stage: StageContext) -> TimedJobs:
        table = stage.table.training
        if table is None:
            raise stage.error("is missing", "training", "{seq_len, global_batch, micro_batch}")
        scenario = stage.of_pool("training")
        unit = (scenario.raw.parallel.dp or 1) * table.micro_batch
        padded = -(-table.global_batch // unit) * unit
        remarks = []
        if padded != table.global_batch:
            remarks.append(
                f"{table.global_batch} sequences are padded to {padded}, which "
                f"{unit} at a time share out"
            )
            table = msgspec.structs.replace(table, global_batch=padded)
        scenario = msgspec.structs.replace(scenario, workload=table)
        try:
            check_workload(scenario.raw, table, {})
            run = run_of(scenario)
        except SilicastError as error:
            raise error.at(stage.field) from None
        step, gpus = run.step, run.rank.plan.gpus
        seconds = step.seconds
        return TimedJobs(
            lambda count, _: np.full(count, seconds),
            1,
            step.tier,
            step.error.log_sd,
            run.rank.deployment.machine,
            gpus,
            run.kernels_j,
            tuple(f"{stage.name}: {text}" for text in (*step.warnings, *run.warnings, *remarks)),
        )
