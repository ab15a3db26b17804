"""The timeline of a training step: ranks of a pipeline, or the kernels of one of its devices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from silicast.composition.passes.training_step import TrainingStep
from silicast.composition.timeline.trace_events import (
    MOST_PASSES,
    Arrow,
    PredictedTimeline,
    Slice,
    Track,
    trace_training_step,
)
from silicast.core.numerics import I64
from silicast.distributed.pipeline.chunk import Rank, predict_chunk
from silicast.distributed.pipeline.dependencies import producers
from silicast.distributed.pipeline.pipeline import PipelineTimes
from silicast.distributed.schedules.order import KINDS, Order
from silicast.distributed.step.step import SLOWEST, DistributedStep, MicroBatches, Overlap

PICOSECONDS = 1e12
_MESSAGES = ("activations", "gradients", "gradients", "gradients")
"""What an action of each kind receives from another rank."""


def pipeline_trace(times: PipelineTimes, title: str = "pipeline") -> PredictedTimeline:
    """Slices and arrows of one plan, named by micro-batch, for
    :mod:`silicast.report.drawing.trace`.

    Args:
        times: in whole picoseconds, or in seconds.
    """
    order = times.order
    start, end = _picoseconds(times.start), _picoseconds(times.end)
    width = len(str(order.placement.ranks - 1))
    tracks = [Track("pipeline", f"rank {r:0{width}d}") for r in range(order.placement.ranks)]
    second = np.concatenate(([False], order.together[:-1]))
    slices: list[Slice] = []
    for i, rank in enumerate(order.rank.tolist()):
        if second[i]:  # drawn with the one before it
            slices.append(slices[-1])
            continue
        name = _name(order, i)
        if order.together[i]:
            name = f"{name} | {_name(order, i + 1)}"
        about: dict[str, Any] = {
            "micro_batch": int(order.micro_batch[i]),
            "chunk": int(order.chunk[i]),
            "stage": int(order.stage[i]),
        }
        slices.append(Slice(tracks[rank], name, int(start[i]), int(end[i]), about))
    sources = producers(order)
    arrows = [
        Arrow(slices[source], slices[i], f"{_MESSAGES[order.kind[i]]} {order.micro_batch[i]}")
        for i, source in enumerate(sources.tolist())
        if source >= 0 and order.rank[source] != order.rank[i]
    ]
    drawn = tuple(each for each, behind in zip(slices, second.tolist(), strict=True) if not behind)
    return PredictedTimeline(title, drawn, tuple(arrows), (), int(end.max()))


def _name(order: Order, action: int) -> str:
    name = f"{KINDS[order.kind[action]]} {order.micro_batch[action]}"
    return f"{name} of chunk {order.chunk[action]}" if order.placement.chunks > 1 else name


def _picoseconds(values: Any) -> I64:
    if values.dtype.kind == "i":
        return np.asarray(values)
    rounded: I64 = np.rint(values * PICOSECONDS).astype(np.int64)
    return rounded


def text_timeline(times: PipelineTimes, cell: float = 1.0) -> str:
    """One line a rank, one column of four characters a ``cell`` of time; ``.`` = idle.

    Actions are named by the first letter of their kind (Forward, Backward, Input gradient, Weight
    gradient) and their micro-batch, those of later chunks in lower case; ``=`` goes on with one.

    >>> from silicast.distributed.pipeline.pipeline import Durations, pipeline_times
    >>> from silicast.distributed.schedules.schedule import schedule
    >>> order = schedule("1f1b").order(ranks=2, micro_batches=2)
    >>> print(text_timeline(pipeline_times(order, Durations.equal(order.placement, 1, 1, 1))))
    rank 0 F0  F1  .   .   B0  ==  .   B1  ==
    rank 1 .   F0  B0  ==  F1  B1  ==  .   .
    """
    order, width = times.order, 4
    lines = []
    for rank in range(order.placement.ranks):
        cells = ["."] * round(times.makespan / cell)
        for i in range(order.first[rank], order.first[rank + 1]):
            name = f"{KINDS[order.kind[i]][0].upper()}{order.micro_batch[i]}"
            first, last = round(times.start[i] / cell), round(times.end[i] / cell)
            cells[first:last] = ["=" * 2] * (last - first)
            cells[first] = name.lower() if order.chunk[i] else name
        lines.append(f"rank {rank} " + "".join(each.ljust(width) for each in cells).rstrip())
    return "\n".join(lines)


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
    part = distributed_step.step.part
    waits = [each for each in part.children if each.name == SLOWEST]
    trace = trace_training_step(
        passes, distributed_step.update, part.exposed_ps, micro_batches, waits
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
