"""What to say where a pipeline waits for a large part of its step."""

from __future__ import annotations

from silicast.distributed.pipeline.chunk import Rank
from silicast.distributed.pipeline.chunk_bounds import most_chunks
from silicast.distributed.step.step import DistributedStep

LARGE = 0.2
"""Share of a step from which the bubble is remarked."""
CHUNKED = ("1f1b", "interleaved")
"""Schedules whose bubble more chunks a rank make smaller."""


def bubble_advice(
    distributed_step: DistributedStep, rank: Rank, micro_batches: int
) -> tuple[str, ...]:
    """That the bubble is large, and the fields that make it smaller; nothing where it is not.

    A pipeline fills and empties for (p - 1) / (v m + p - 1) of its time, of p ranks with v chunks
    each and m micro-batches (Narayanan et al. 2021). Where that is less than half of what the
    rank that limits the step waits, the ranks have unequal work, which no schedule mends.

    Args:
        micro_batches: of one step, on each data rank.
    """
    step = distributed_step.step.part
    waits = sum(each.exposed_ps for each in step.children if each.name == "pipeline_bubble")
    share = waits / step.exposed_ps
    if share <= LARGE or distributed_step.run is None:
        return ()
    plan, others = rank.plan, rank.plan.pp - 1
    message = f"the pipeline's bubble takes {share:.0%} of the step"
    fills = others / (plan.virtual_stages * micro_batches + others)
    if fills < share / 2.0:
        busy = distributed_step.run.busy
        uneven = float(busy.max()) / float(busy.mean())
        most = f"rank {int(busy.argmax())} has {uneven:.2f} times the mean"
        return (f"{message}: the work of its ranks is uneven ({most}); fewer stages mend it",)
    ways = []
    chunks = most_chunks(rank.deployment.model.layers, plan.pp)
    if (
        distributed_step.schedule in CHUNKED
        and chunks > plan.virtual_stages
        and not micro_batches % plan.pp
    ):
        ways.append(f"parallel.virtual_stages = {chunks}")
    if rank.micro_batch > 1:
        ways.append(f"workload.micro_batch = {rank.micro_batch // 2}")
    batch = 2 * rank.micro_batch * micro_batches * plan.dp
    ways.append(f"workload.global_batch = {batch}")
    return (
        f"{message}; it is smaller with {' or '.join(ways)}, or with fewer stages (parallel.pp)",
    )
