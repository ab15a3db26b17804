"""What a step takes where devices are not all alike: pipelines and replicas that are drawn.

Devices of a group wait for each other in every layer, ranks of a pipeline for messages, replicas at
the end of a step; :class:`~silicast.distributed.ranks.dispersion.Dispersion` says how unlike they
are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np

from silicast.core.errors import SilicastError
from silicast.core.numerics import F64
from silicast.distributed.pipeline.pipeline import Durations, pipeline_times
from silicast.distributed.ranks.dispersion import Dispersion
from silicast.distributed.ranks.plan import TrainingPlan
from silicast.distributed.step.step import DistributedStep

_PIPELINES = 4096
"""That are drawn at a time."""


@final
@dataclass(frozen=True)
class WaitingPattern:
    """How the devices of a step wait for each other.

    Attributes:
        ranks: of a pipeline.
        group: devices of a rank, which wait for each other in every layer (tensor, context and
            expert parallel).
        replicas: pipelines, which wait for each other at the end of a step.
    """

    ranks: int = 1
    group: int = 1
    replicas: int = 1


def step_times(
    makespan: Callable[[F64], F64],
    layout: WaitingPattern,
    spread: Dispersion,
    trials: int = 1000,
    seed: int = 0,
) -> F64:
    """Times of a step on as many draws of devices, shape (trials,), in the order drawn.

    Args:
        makespan: of a pipeline whose ranks take so many times as long as usual: an array of shape
            (ranks, n) to one of shape (n,), called for some thousand pipelines at a time.
        seed: of the random numbers; the same seed gives the same draws for any spread.

    >>> slow = step_times(lambda ranks: ranks.sum(axis=0), WaitingPattern(4, 8, 16),
    ...     Dispersion(0.02))
    >>> bool(slow.min() > 4.0)
    True
    """
    if trials < 1:
        raise SilicastError(f"is {trials}, expected at least 1", field="trials")
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    group = spread.slowest(layout.group)
    step_times = np.empty(trials)
    block = max(_PIPELINES // layout.replicas, 1)
    for first in range(0, trials, block):
        part = step_times[first : first + block]
        factors = group.sampled((layout.ranks, len(part) * layout.replicas), random)
        part[:] = makespan(factors).reshape(len(part), layout.replicas).max(axis=1)
    return step_times


MOST_PIPELINES = 32_768
"""That are drawn in all: fewer steps where each has many."""
MOST_STEPS, LEAST_STEPS = 1000, 100
_AT_ONCE = 512


def layout_of(plan: TrainingPlan) -> WaitingPattern:
    """How the devices of a plan wait for each other.

    >>> layout_of(TrainingPlan(tp=8, pp=4, dp=2))
    WaitingPattern(ranks=4, group=8, replicas=2)
    """
    group = max(plan.tp * plan.cp, plan.ep * plan.etp)
    return WaitingPattern(plan.pp, group, plan.stage_ranks // group)


def slowed_steps(
    distributed_step: DistributedStep | None, plan: TrainingPlan, spread: Dispersion, seed: int = 0
) -> F64:
    """Times of a step relative to one whose devices are all alike, shape (trials,).

    Args:
        distributed_step: the step; None = of one device alone.
    """
    layout = layout_of(plan)
    trials = min(max(MOST_PIPELINES // layout.replicas, LEAST_STEPS), MOST_STEPS)
    return step_times(
        lambda ranks: _relative(distributed_step, ranks), layout, spread, trials, seed
    )


def _relative(distributed_step: DistributedStep | None, ranks: F64) -> F64:
    """By how much a pipeline with ranks as slow as this takes longer, shape (n,) of (ranks, n).

    What a rank runs, with what its devices exchange inside layers, takes so many times as long;
    messages between stages and sums of gradients do not.
    """
    if distributed_step is None or distributed_step.run is None:
        alone: F64 = ranks[0]
        return alone
    drawn, position = np.unique(ranks, axis=1, return_inverse=True)
    run, total = distributed_step.run, distributed_step.step.part.exposed_ps
    later = np.empty(drawn.shape[1])
    for first in range(0, len(later), _AT_ONCE):
        batch = drawn[:, first : first + _AT_ONCE]
        slower = Durations(run.durations.each[..., None] * batch[None, :, None, :])
        ends = pipeline_times(run.order, slower, run.transfer).makespan
        updated = distributed_step.update.total.part.exposed_ps * (batch.max(axis=0) - 1.0)
        later[first : first + _AT_ONCE] = ends - float(run.makespan) + updated
    relative: F64 = 1.0 + np.maximum(later, 0.0) / total
    whole: F64 = relative[position.reshape(-1)]
    return whole
