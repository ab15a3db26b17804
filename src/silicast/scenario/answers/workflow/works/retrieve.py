"""A query of an index of vectors on a host."""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from silicast.hardware.host import Host
from silicast.scenario.answers.workflow.stage_work import (
    StageContext,
    StageWork,
    TimedJobs,
    register,
)
from silicast.scenario.resolve import host_of
from silicast.workload.networks.vector_index import VectorIndex, workflow_constants


@register
@final
class Retrieve(StageWork):
    """One query of ``index`` on the scenario's host; ``servers`` queries run side by side."""

    name: ClassVar[str] = "retrieve"

    def work(self, stage: StageContext) -> TimedJobs:
        table = stage.table.index
        if table is None:
            raise stage.error("is missing", "index", "{kind, vectors, dimensions}")
        index = VectorIndex(
            table.kind,
            table.vectors,
            table.dimensions,
            table.bytes_per_dimension,
            table.lists or 0,
            table.probes,
            table.links,
            table.ef,
        )
        constants = workflow_constants().vector_search
        host = host_of(stage.scenario) or Host()
        seconds = index.seconds(table.threads, host.memory_gb_per_s, constants) / host.factor
        return TimedJobs(
            lambda count, _: np.full(count, seconds),
            stage.table.servers or 0,
            "analytic",
            constants.log_sd,
            warnings=(f"{stage.name}: no search of an index was measured: constants are judged",),
        )
