"""The battery that every pipeline schedule must pass, ours or a newcomer's.

    from tests.property.schedule_battery import check_schedule
    check_schedule(MySchedule())

The first broken promise raises :class:`AssertionError` with the sizes and what was found.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from silicast.distributed.pipeline.pipeline import Durations, pipeline_times
from silicast.distributed.schedules.order import FORWARD, WEIGHT
from silicast.distributed.schedules.schedule import PipelineSchedule

SIZES = ((1, 1), (1, 5), (2, 4), (2, 6), (4, 4), (4, 8), (4, 2), (6, 12), (8, 24), (3, 7))
"""(ranks, micro-batches)."""


def check_schedule(
    schedule: PipelineSchedule, sizes: Iterable[tuple[int, int]] = SIZES, seed: int = 0
) -> int:
    """Runs the battery; returns how many sizes the schedule is made for.

    Every action stands once, and where it can (:meth:`Order.from_actions` checks that); no rank
    waits for
    ever; no action starts before its message; nothing is held at the end; more time for any action
    never makes a step shorter; a step is never shorter than the busiest rank's work.
    """
    random, made = np.random.default_rng(seed), 0
    for ranks, micro_batches in sizes:
        for chunks in (schedule.chunks,) if schedule.chunks else (1, 2, 3):
            if schedule.refusal(ranks, micro_batches, chunks):
                continue
            made += 1
            _check_one(schedule, (ranks, micro_batches, chunks), random)
    assert made, f"{schedule.name} is made for none of the sizes"
    return made


def _check_one(
    schedule: PipelineSchedule, size: tuple[int, int, int], random: np.random.Generator
) -> None:
    where = f"{schedule.name} of {size} ranks, micro-batches and chunks"
    order = schedule.order(*size)
    position = order.placement
    paths = int(position.path.max()) + 1
    expected = size[1] * position.stages
    assert paths * position.stages == position.ranks * position.chunks, f"{where}: stages are lost"
    assert (order.kind == FORWARD).sum() == expected, f"{where}: forward passes are missing"
    assert order.splits_backward <= schedule.splits_backward, f"{where}: splits backward passes"
    split = order.kind == WEIGHT
    assert split.sum() <= expected, f"{where}: too many weight gradients"
    parts = random.integers(1, 1000, (3, position.stages))
    transfer = int(random.integers(0, 50))
    durations = Durations.of_stages(position, *parts)
    result = pipeline_times(order, durations, transfer)
    same = order.rank[1:] == order.rank[:-1]
    begins = np.where(order.together[:-1], result.start[:-1], result.end[:-1])
    assert (result.start[1:] >= begins)[same].all(), f"{where}: a rank runs two actions at once"
    assert result.makespan >= result.busy.max(), f"{where}: a rank works longer than the step"
    longer = parts.copy()
    longer[int(random.integers(3)), int(random.integers(position.stages))] += 500
    slower = pipeline_times(order, Durations.of_stages(position, *longer), transfer)
    assert slower.makespan >= result.makespan, f"{where}: more work takes less time"
    later = pipeline_times(order, durations, transfer + 10)
    assert later.makespan >= result.makespan, f"{where}: slower messages take less time"
    assert (order.peak() <= size[1] * position.chunks).all(), f"{where}: more is held than there is"
