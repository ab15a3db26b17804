"""What to say where a pipeline waits for a large part of its step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from silicast.core.errors import SilicastError
from silicast.distributed.pipeline.chunk import Rank
from silicast.distributed.pipeline.chunk_bounds import most_chunks
from silicast.distributed.step.step import DistributedStep, predict_step

LARGE = 0.2
"""Share of a step from which the bubble is remarked."""
UNEVEN = 1.25
"""Work of the busiest rank over the mean from which it is remarked."""
CHUNKED = ("1f1b", "interleaved")
"""Schedules whose bubble more chunks a rank make smaller."""


def bubble_advice(
    distributed_step: DistributedStep, rank: Rank, micro_batches: int
) -> tuple[str, ...]:
    """That the bubble is large or that ranks have unequal work, and the fields that mend it;
    nothing where neither is so.

    A pipeline fills and empties for (p - 1) / (v m + p - 1) of its time, of p ranks with v chunks
    each and m micro-batches (Narayanan et al. 2021). Each change that is named was predicted: with
    it a token takes less time.

    Args:
        micro_batches: of one step, on each data rank.
    """
    step, run = distributed_step.step.part, distributed_step.run
    if run is None:
        return ()
    waits = sum(each.exposed_ps for each in step.children if each.name == "pipeline_bubble")
    share, most = waits / step.exposed_ps, float(run.busy.max()) / float(run.busy.mean())
    causes = [f"the pipeline's bubble takes {share:.0%} of the step"] if share > LARGE else []
    if most > UNEVEN:
        busiest = int(run.busy.argmax())
        causes.append(f"pipeline rank {busiest} has {most:.2f} times the mean work: others wait")
    if not causes:
        return ()
    now = predict_step(rank, micro_batches)
    seconds = _of_a_sequence(now, rank, micro_batches)
    ways: dict[str, int] = {}
    for field, value, other, count in _ways(rank, micro_batches, now.schedule):
        try:
            quicker = _of_a_sequence(predict_step(other, count), other, count) < seconds
        except SilicastError:
            continue
        if quicker:
            ways.setdefault(field, value)
    words = " or ".join(f"{field} = {value}" for field, value in ways.items())
    mended = [f"a token takes less time with {words}"] if ways else []
    return ("; ".join((*causes, *mended)),)


def _of_a_sequence(step: DistributedStep, rank: Rank, micro_batches: int) -> float:
    return step.step.seconds / (micro_batches * rank.micro_batch * rank.plan.dp)


def _ways(rank: Rank, micro_batches: int, schedule: str) -> Iterator[tuple[str, int, Rank, int]]:
    """Changes of one field that mend it as a rule: field, value, rank and micro-batches."""
    plan, micro = rank.plan, rank.micro_batch
    if schedule in CHUNKED and not micro_batches % plan.pp:
        for chunks in (most_chunks(rank.deployment.model.layers, plan.pp), 2):
            if chunks > plan.virtual_stages:
                more = replace(plan, virtual_stages=chunks, schedule="")
                field = "parallel.virtual_stages"
                yield field, chunks, replace(rank, plan=more), micro_batches
    if not micro % 2:
        halved = replace(rank, micro_batch=micro // 2)
        yield "workload.micro_batch", micro // 2, halved, 2 * micro_batches
    batch = 2 * micro * micro_batches * plan.dp
    yield "workload.global_batch", batch, rank, 2 * micro_batches
    if plan.pp > 2 and not plan.pp % 2 and not micro_batches % 2:
        fewer = replace(plan, pp=plan.pp // 2, dp=2 * plan.dp)
        yield "parallel.pp", plan.pp // 2, replace(rank, plan=fewer), micro_batches // 2
