"""What a run of a workflow says: latencies, waits, idle servers and the critical path."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from silicast.core.numerics import F64, I64
from silicast.workflow.jobs import JOIN
from silicast.workflow.run import WorkflowTimes

QUANTILES: Mapping[str, float] = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


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
            place = int(stage[job])
            if place != JOIN:
                ready, done = int(times.ready_ns[job]), int(times.done_ns[job])
                begun = min(max(int(times.begun_ns[job]), ready), done)
                path[place, 0] += begun - ready
                path[place, 1] += done - begun
            job = int(latest[job])
    mean: F64 = path / max(times.jobs.items, 1)
    return mean

