"""What holds up a step beside its work: batches that are not there yet, and checkpoints.

A loader that works beside the step holds it up by what it takes longer; else by all of it. A
checkpoint holds a run up until it is written or, where it is written beside the steps, until the
devices have copied their states to their hosts, and while the one before is still being written.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import final

from silicast.core.errors import SilicastError
from silicast.core.prediction import Part, Prediction, to_picoseconds
from silicast.distributed.pipeline.chunk import Rank
from silicast.distributed.pipeline.chunk_bounds import most_chunks
from silicast.distributed.step.step import DistributedStep, predict_step


@final
@dataclass(frozen=True, slots=True)
class Loading:
    """The batches of a step.

    Attributes:
        seconds: that a step's batches take to load; overlaps: while the step before runs.
    """

    seconds: float
    overlaps: bool = True

    def __post_init__(self) -> None:
        if not 0.0 <= self.seconds < math.inf:
            raise SilicastError(f"is {self.seconds:g}, expected a time", field="data_loading")

    def total_s(self, step_s: float) -> float:
        """A step with what it waits for its batches.

        >>> Loading(3.0).total_s(2.0), Loading(3.0, overlaps=False).total_s(2.0)
        (3.0, 5.0)
        """
        return max(step_s, self.seconds) if self.overlaps else step_s + self.seconds

    def beside(self, step: Prediction) -> Prediction:
        """:meth:`total_s` as a part of the step, whose errors stay the relative ones."""
        load, exposed_ps = to_picoseconds(self.seconds), step.part.exposed_ps
        waits = max(load - exposed_ps, 0) if self.overlaps else load
        part = Part("data_loading", waits, load - waits, bound_by="host")
        return replace(step, part=Part.group(step.part.name, (*_children(step.part), part)))


def _children(part: Part) -> tuple[Part, ...]:
    return part.children or (part,)


@final
@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint of all states.

    Attributes:
        size: bytes of all ranks together.
        write_s: until it is written.
        copy_s: until each device has copied its part to its host.
        beside: it is written while the run goes on.

    >>> Checkpoint(10**12, 100.0, 2.0, beside=True).stall_s(600.0)
    2.0
    >>> Checkpoint(10**12, 100.0, 2.0, beside=True).stall_s(60.0)
    40.0
    """

    size: int
    write_s: float
    copy_s: float = 0.0
    beside: bool = False

    @staticmethod
    def from_sizes(
        size: int, ranks: int, storage_bytes_per_s: float, link_bytes_per_s: float | None = None
    ) -> Checkpoint:
        """Of so many bytes, of which each rank writes as much.

        Args:
            storage_bytes_per_s: of all ranks together.
            link_bytes_per_s: of each to its host, where it is written beside the steps; else None.

        Raises:
            SilicastError: a rate is none.
        """
        for field, rate in (
            ("storage_gb_per_s", storage_bytes_per_s),
            ("link_gb_per_s", link_bytes_per_s),
        ):
            if rate is not None and not rate > 0.0:
                raise SilicastError(f"is {rate:g}, expected above 0", field=field)
        write_s = size / storage_bytes_per_s
        if link_bytes_per_s is None:
            return Checkpoint(size, write_s)
        return Checkpoint(size, write_s, size / ranks / link_bytes_per_s, beside=True)

    def stall_s(self, interval_s: float) -> float:
        """For which one holds up the run, of which ``interval_s`` lie between two."""
        if not self.beside:
            return self.write_s
        return max(self.copy_s, self.write_s - interval_s)

    @property
    def least_interval_s(self) -> float:
        """The shortest interval in which it holds the run up for its own copy alone."""
        return max(self.write_s - self.copy_s, 0.0) if self.beside else 0.0

    @property
    def lag_s(self) -> float:
        """Work behind a checkpoint that is lost with it where the run fails: it is not yet written
        when the run goes on.
        """
        return self.write_s if self.beside else 0.0


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
    chunked = rank.deployment.engine.parallel.has_schedule("interleaved")
    if chunked and schedule in CHUNKED and not micro_batches % plan.pp:
        for chunks in (most_chunks(rank.deployment.model.staged_layers, plan.pp), 2):
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
