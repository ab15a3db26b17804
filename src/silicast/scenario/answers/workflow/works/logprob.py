"""A forward pass that reads off what a model gives each token of the rollouts."""

from __future__ import annotations

import math
from typing import ClassVar, final

import numpy as np

from silicast.scenario.answers.workflow.stage_work import (
    StageContext,
    StageWork,
    TimedJobs,
    register,
)
from silicast.scenario.answers.workflow.works.train import learning_step
from silicast.workload.networks.vector_index import workflow_constants


@register
@final
class LogProb(StageWork):
    """Log-probabilities of the sequences of ``training``, by the policy or by its reference: the
    share of an update over the same sequences that frameworks publish.
    """

    name: ClassVar[str] = "logprob"

    def work(self, stage: StageContext) -> TimedJobs:
        step, policy = learning_step(stage), workflow_constants().policy
        seconds, run = step.seconds * policy.logprob_share, step.run
        return TimedJobs(
            lambda count, _: np.full(count, seconds),
            1,
            "analytic",
            math.hypot(step.log_sd, policy.log_sd),
            run.rank.deployment.machine,
            run.rank.plan.gpus,
            run.kernels_j * policy.logprob_share,
            step.warnings,
        )
