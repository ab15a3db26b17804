"""The timeline of a training step: ranks of a pipeline, or the kernels of one of its devices."""

from __future__ import annotations

from dataclasses import replace

from silicast.composition.passes.training_step import TrainingStep
from silicast.composition.timeline.trace import MOST_PASSES, trace_training_step
from silicast.composition.timeline.trace_events import PredictedTimeline, Slice
from silicast.distributed.pipeline.chunk import Rank, predict_chunk
from silicast.distributed.pipeline.pipeline_trace import pipeline_trace
from silicast.distributed.step.step import DistributedStep, MicroBatches, Overlap


def trace_alone(training_step: TrainingStep, micro_batches: int) -> PredictedTimeline:
    """The first micro-batches of a device that trains alone, and the update."""
    passes = (training_step.micro,) * min(micro_batches, MOST_PASSES)
    return trace_training_step(
        passes, training_step.update, training_step.step.part.exposed_ps, micro_batches
    )


def trace_step(
    distributed_step: DistributedStep,
    rank: Rank,
    micro_batches: int,
    overlap: Overlap = Overlap(),
    again_share: float = 1.0,
) -> PredictedTimeline:
    """One track a rank of a pipeline, with arrows for what it sends; of a single stage the kernels
    of one device, collectives on streams of their own: the first micro-batches and the last.

    Args:
        again_share: of the layers, those that run again; kernels are drawn as if all did.
    """
    if distributed_step.run is not None:
        return _pipeline(distributed_step)
    kinds = MicroBatches.from_rank(rank, overlap).in_order(micro_batches)
    each = [kind for kind, count in kinds for _ in range(min(count, MOST_PASSES))]
    shown = each if len(each) <= MOST_PASSES else [*each[: MOST_PASSES - 1], each[-1]]
    passes = [predict_chunk(rank, *distributed_step.bounds[0], kind) for kind in shown]
    trace = trace_training_step(
        passes, distributed_step.update, distributed_step.step.part.exposed_ps, micro_batches
    )
    if again_share == 1.0:
        return trace
    return replace(trace, about={**trace.about, "share_of_layers_run_again": again_share})


def _pipeline(distributed_step: DistributedStep) -> PredictedTimeline:
    """The scheduled actions, then what is left of the exchanges over data ranks, and the update."""
    assert distributed_step.run is not None
    drawn = pipeline_trace(distributed_step.run, "training step")
    total = distributed_step.step.part.exposed_ps
    updates = total - distributed_step.update.total.part.exposed_ps
    left = next(
        (
            p.exposed_ps
            for p in distributed_step.step.part.children
            if p.name == "gradients_and_weights"
        ),
        0,
    )
    last: dict[str, Slice] = {}
    for each in drawn.slices:
        before = last.get(each.track.thread)
        if before is None or each.end_ps > before.end_ps:
            last[each.track.thread] = each
    after = []
    for each in last.values():
        begin = max(each.end_ps, updates - left)
        if begin < updates:
            after.append(Slice(each.track, "gradients and weights", begin, updates))
        after.append(Slice(each.track, "update", updates, total))
    about = {
        "schedule": distributed_step.schedule,
        "step_time_s": total / 1e12,
        "transfer_s": float(distributed_step.run.transfer) / 1e12,
    }
    return replace(drawn, slices=(*drawn.slices, *after), total_ps=total, about=about)
