"""A frozen model whose forward pass a loss needs: the reference of DPO, a teacher.

Its passes come before those that train, over the same tokens on the same ranks (Rafailov et al.
2023; Hinton et al. 2015). It keeps nothing for gradients and has none; of sharded weights each
layer's are gathered once.
"""

from __future__ import annotations

from dataclasses import replace

from silicast.composition.errors.uncertainty import narrowed_sum
from silicast.composition.passes.training_step import repeated
from silicast.core.prediction import (
    ErrorFactors,
    Later,
    Part,
    Prediction,
    said_by,
    weakest_tier,
    worst_domain,
)
from silicast.distributed.pipeline.chunk import Rank, predict_chunk
from silicast.distributed.pipeline.chunk_bounds import chunk_bounds
from silicast.distributed.step.step import MicroBatches, Overlap, alike, schedule_of

NAME = "reference"


def reference_passes(rank: Rank, micro_batches: int, overlap: Overlap) -> Prediction:
    """Forward passes of all micro-batches of a step through a model that is not trained.

    A pipeline is filled and drained once: (micro-batches + stages - 1) passes of the slowest stage.

    Args:
        rank: of the frozen model, with the degrees of the one that is trained.
    """
    frozen = replace(rank, framework=replace(rank.framework, training=None), adapters=None)
    kinds = MicroBatches.from_rank(frozen, overlap)
    quiet = replace(kinds.between, gathers_backward=False, sums=False, gradients_down=False)
    order = schedule_of(frozen).order(frozen.plan.pp, micro_batches, frozen.plan.virtual_stages)
    bounds = chunk_bounds(frozen.deployment.model.layers, order.placement.stages)
    passes = [predict_chunk(frozen, *each, quiet).total for each in alike(frozen, bounds)]
    stages = [[passes[chunk] for chunk in row] for row in order.placement.stage.tolist()]
    times = [sum(each.part.exposed_ps for each in row) for row in stages]
    slowest: list[Prediction] = stages[times.index(max(times))]
    parts = [repeated(each.part, micro_batches) for each in slowest]
    fills = frozen.plan.pp - 1
    if fills:
        waits = fills * max(times) // len(slowest)
        parts.append(Part("pipeline_bubble", waits, bound_by="network"))
    return replace(slowest[0], part=Part.group(NAME, parts))


def with_reference(step: Prediction, passes: Prediction) -> Prediction:
    """A step behind the passes of a frozen model."""
    both = [(each.part.exposed_ps, each.error, each.narrowed) for each in (passes, step)]
    return replace(
        step,
        part=Part.group(step.part.name, (passes.part, *step.part.children)),
        error=ErrorFactors.of_sum([(time, error) for time, error, _ in both]),
        tier=weakest_tier(each.tier for each in (passes, step)),
        domain=worst_domain(each.domain for each in (passes, step)),
        warnings=said_by(passes, step),
        narrowed=Later(lambda: narrowed_sum(both)),
    )
