"""An optimizer step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import msgspec
import numpy as np

from silicast.core.errors import errors_at
from silicast.scenario.answers.training.training_runs import TrainingRun, run_of
from silicast.scenario.answers.workflow.stage_work import (
    StageContext,
    StageWork,
    TimedJobs,
    register,
)
from silicast.scenario.checks import check_workload
from silicast.workload.networks.vector_index import workflow_constants

PICO = 1e-12
GENERATES = ("generate", "decode", "draft_verify")


@final
@dataclass(frozen=True)
class LearningStep:
    """A training step of a workflow.

    Attributes:
        loss_s: the part that the loss of a policy takes beside that of a language model.
        warnings: what was assumed, with the stage's name.
    """

    run: TrainingRun
    loss_s: float
    warnings: tuple[str, ...]

    @property
    def seconds(self) -> float:
        return self.run.step.seconds + self.loss_s

    @property
    def log_sd(self) -> float:
        """Of its time: both parts are off by themselves, and a step that learns from rollouts by
        what trainers of such frameworks are off beyond that.
        """
        step_s, constants = self.run.step.seconds, workflow_constants().policy
        errors = self.run.step.error.log_sd * step_s, constants.loss_log_sd * self.loss_s
        further = constants.step_log_sd if self.loss_s else 0.0
        return math.hypot(*errors, further * self.seconds) / self.seconds


@register
@final
class Train(StageWork):
    """One step of ``training``; sequences that the data ranks cannot share out evenly are padded
    to a number that they can. Where the workflow generates, it learns from that: the loss is of a
    policy.
    """

    name: ClassVar[str] = "train"

    def work(self, stage: StageContext) -> TimedJobs:
        step = learning_step(stage)
        seconds, run = step.seconds, step.run
        return TimedJobs(
            lambda count, _: np.full(count, seconds),
            1,
            run.step.tier,
            step.log_sd,
            run.rank.deployment.machine,
            run.rank.plan.gpus,
            run.kernels_j,
            step.warnings,
        )


def learning_step(stage: StageContext) -> LearningStep:
    """A step of a stage's ``training`` on its pool.

    Raises:
        SilicastError: it is not stated, or cannot be.
    """
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
    with errors_at(stage.field):
        check_workload(scenario.raw, table, {})
        run = run_of(scenario)
    loss_s = 0.0
    if any(each.work in GENERATES for each in stage.stages.values()):
        loss_s = policy_loss_s(run)
        remarks.append(
            f"{loss_s:.3g} s of it for log-probabilities of the policy in fp32, as PRIME-RL's "
            "trainer takes them"
        )
    texts = (*run.step.warnings, *run.warnings, *remarks, *run.memory.advice)
    return LearningStep(run, loss_s, tuple(f"{stage.name}: {text}" for text in texts))


def policy_loss_s(run: TrainingRun) -> float:
    """What log-probabilities, entropy and their gradients take over the vocabulary of a step, s:
    on the last stage of a pipeline, a share of the words on each tensor-parallel rank.
    """
    plan, words = run.rank.plan, run.rank.deployment.model.vocab
    logits = run.tokens / (plan.dp * plan.cp) * words / plan.tp
    return logits * workflow_constants().policy.loss_ps_per_logit * PICO


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
