"""What a run of a workflow says: latencies, waits, idle servers and the critical path."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np

from silicast.core.numerics import F64, I64
from silicast.workflow.jobs import JOIN
from silicast.workflow.run import WorkflowTimes

QUANTILES: Mapping[str, float] = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
GROWS = 0.4
"""Share of the mean latency by which it grows over half of a run where the queue has no end: from
an empty start it is two thirds.
"""
FEW = 100
"""Jobs from which a load is told."""


def statistics_ms(name: str, times_ns: I64) -> dict[str, float]:
    """Mean and quantiles of some times, as ``NAME_p99_ms``; nothing of none."""
    if not len(times_ns):
        return {}
    values = np.multiply(times_ns, 1e-6, dtype=np.float64)
    at = np.quantile(values, list(QUANTILES.values()))
    table = {f"{name}_mean_ms": float(values.mean())}
    return table | {f"{name}_{q}_ms": float(v) for q, v in zip(QUANTILES, at, strict=True)}


def item_latency_ns(times: WorkflowTimes) -> I64:
    """From an item's start to the end of its last job, shape (items,)."""
    latency: I64 = times.end_ns - times.start_ns
    return latency


def stage_statistics_ms(times: WorkflowTimes, stage: int) -> dict[str, float]:
    """Of one stage's jobs: ``stage`` from ready to done, ``wait`` of it in the queue."""
    rows = times.jobs.of_stages([stage])
    ready = times.ready_ns[rows]
    return {
        **statistics_ms("stage", times.done_ns[rows] - ready),
        **statistics_ms("wait", np.maximum(times.begun_ns[rows] - ready, 0)),
    }


@final
@dataclass(frozen=True)
class StageLoad:
    """What comes to a stage in some time, and what it does in it.

    Attributes:
        growth: of the latency over that time, by a straight line, over its mean.
    """

    offered_per_s: float
    served_per_s: float
    growth: float

    @property
    def ratio(self) -> float:
        """Jobs that come for each that ends."""
        return self.offered_per_s / self.served_per_s if self.served_per_s else math.inf

    @property
    def grows(self) -> bool:
        """Whether more comes than it can do: less ends than comes, and latencies rise with it."""
        return self.growth > GROWS and self.ratio > 1.02


def load_of(times: WorkflowTimes, stage: int, first_ns: int, last_ns: int) -> StageLoad | None:
    """Of the jobs of a stage that are ready between two moments; None = too few to tell."""
    rows = times.jobs.of_stages([stage])
    ready, done = times.ready_ns[rows], times.done_ns[rows]
    come = (ready >= first_ns) & (ready <= last_ns)
    ended = (done >= first_ns) & (done <= last_ns)
    if come.sum() < FEW:
        return None
    seconds = (last_ns - first_ns) * 1e-9
    at = (ready[come] - first_ns) * 1e-9
    latency = (done[come] - ready[come]) * 1e-9
    spread = at - at.mean()
    slope = float((spread * latency).sum() / max(float((spread * spread).sum()), 1e-30))
    growth = slope * seconds / max(float(latency.mean()), 1e-30)
    return StageLoad(int(come.sum()) / seconds, int(ended.sum()) / seconds, growth)


def critical_path_ns(times: WorkflowTimes, stages: int) -> F64:
    """Mean over items of what each stage adds to the critical path, shape (stages, 2): until the
    job left the queue, and after. The path goes back from the job that ended an item, each time to
    the one that ended last of those that it waited for; all of it sums to the mean latency.
    """
    path = np.zeros((stages, 2))
    stage, latest = times.jobs.stage, times.latest
    for end in times.last.tolist():
        job = end
        while job >= 0:
            number = int(stage[job])
            if number != JOIN:
                ready, done = int(times.ready_ns[job]), int(times.done_ns[job])
                begun = min(max(int(times.begun_ns[job]), ready), done)
                path[number, 0] += begun - ready
                path[number, 1] += done - begun
            job = int(latest[job])
    mean: F64 = path / max(times.jobs.items, 1)
    return mean
