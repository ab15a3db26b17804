"""What slow devices and failures make of a training step: goodput, and the time that is lost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from silicast.composition.engines.host_copies import link_bytes_per_s
from silicast.core.errors import SilicastError
from silicast.core.numerics import F64
from silicast.core.prediction import Quantity
from silicast.distributed.pipeline.stalls import Checkpoint
from silicast.distributed.ranks.dispersion import Dispersion
from silicast.distributed.step.reliability import (
    DAY_S,
    HOUR_S,
    Failures,
    best_interval_s,
    experience,
)
from silicast.distributed.step.variation import slowed_steps
from silicast.scenario.answers.training.training_memory import checkpoint_size
from silicast.scenario.answers.training.training_runs import TrainingRun
from silicast.scenario.decode import Scenario
from silicast.scenario.resolving.failure_rates import gpu_mtbf_s
from silicast.scenario.schema import FailureTable, SlowTable
from silicast.scenario.workloads import CheckpointTable, TrainingWorkload

RUN_S = 30.0 * DAY_S
"""Useful time of the runs that are drawn."""
MOST_FAILURES = 2000
"""Of a run that is drawn, in the mean: with more it is shorter."""
RUNS = 1000


@final
@dataclass(frozen=True)
class Lost:
    """What an answer says of slow devices and failures; nothing where none are stated."""

    metrics: Mapping[str, Quantity]
    why: Mapping[str, Any]


def lost(scenario: Scenario, training_run: TrainingRun, step: Quantity) -> Lost:
    """Metrics of a step with the slow devices, failures and checkpoints that a scenario states.

    Metrics: with ``workload.checkpoint`` ``checkpoint_gb``, ``checkpoint_stall_s`` (for which one
    holds up the run), ``step_time_with_checkpoints_s`` in the mean, and without failures
    ``tokens_per_s_with_checkpoints``; with ``slow_gpus`` ``step_time_slowed_s``; with either of the
    others ``goodput`` (useful share of the time: no failures, restarts, repeated work, checkpoints)
    and ``checkpoint_interval_s`` (stated, or the best); with ``failures``
    ``tokens_per_s_with_failures`` of all devices.

    Args:
        step: its time without either, seconds.

    Raises:
        SilicastError: no best interval between checkpoints that take no time; what is stated twice.
    """
    cluster = scenario.raw.cluster
    slow, failing = (cluster.slow_gpus, cluster.failures) if cluster is not None else (None, None)
    work = scenario.workload
    saving = work.checkpoint if isinstance(work, TrainingWorkload) else None
    if slow is None and failing is None and saving is None:
        return Lost({}, {})
    seed = scenario.raw.seed or 0
    metrics: dict[str, Quantity] = {}
    about: dict[str, Any] = {"seed": seed}
    if slow is not None:
        drawn = slowed_steps(training_run.many, training_run.rank.plan, _spread(slow), seed)
        step = _times(step, drawn)
        metrics["step_time_slowed_s"] = step
        about["step_time_slowed_s"] = _quantiles(drawn * training_run.step.seconds)
        about["steps_drawn"] = len(drawn)
    if failing is None and saving is None:
        return Lost(metrics, {"goodput": about})
    if saving is not None:
        checkpoint = _checkpoint(saving, training_run)
        failures, best = _with_checkpoints(
            failing, saving, checkpoint, training_run.rank.plan.gpus, step
        )
        stalls = failures.write_s
        metrics |= {
            "checkpoint_gb": _known(checkpoint.size / 1e9),
            "checkpoint_stall_s": _known(stalls),
            "step_time_with_checkpoints_s": _scaled(step, 1.0 + stalls / failures.interval_s),
        }
        about |= {"checkpoint_write_s": checkpoint.write_s, "checkpoint_copy_s": checkpoint.copy_s}
        is_stated = not best
    else:
        assert failing is not None
        failures = _failures(failing, training_run.rank.plan.gpus)
        is_stated = failing.checkpoint_interval_s is not None
    if failing is not None:
        failures = _elastic(failures, failing, training_run.rank.plan.dp)
        about["mtbf_hours"] = failures.mtbf_s / HOUR_S
        if isinstance(failing.mtbf_hours_per_gpu, str):
            about["mtbf_source"] = experience().sources[failing.mtbf_hours_per_gpu]
    goodput, runs = _goodput(failures, seed)
    metrics |= {
        "goodput": goodput,
        "checkpoint_interval_s": _known(failures.interval_s),
        f"tokens_per_s_with_{'checkpoints' if failing is None else 'failures'}": Quantity(
            training_run.tokens / step.estimate * goodput.estimate,
            training_run.tokens / step.p95 * goodput.p05,
            training_run.tokens / step.p05 * goodput.p95,
        ),
    }
    about |= {
        "shares_of_time": failures.losses,
        "checkpoint_interval": "stated" if is_stated else "the best",
        **runs,
    }
    if failing is not None and saving is None and failures.write_s > 0.0:
        interval = best_interval_s(failures.write_s, failures.mtbf_s)
        about["best_checkpoint_interval_s"] = interval
        about["goodput_at_best_interval"] = failures.with_interval(interval).goodput
    return Lost(metrics, {"goodput": about})


def _known(value: float) -> Quantity:
    return Quantity(value, value, value)


def _scaled(step: Quantity, by: float) -> Quantity:
    return Quantity(step.estimate * by, step.p05 * by, step.p95 * by)


def _checkpoint(saving: CheckpointTable, training_run: TrainingRun) -> Checkpoint:
    """The checkpoint of all ranks together."""
    machine = training_run.rank.deployment.machine
    link = None
    if saving.asynchronous:
        link = link_bytes_per_s(machine) * machine.engine.parallel.host_link_share
    size = checkpoint_size(training_run.rank, training_run.optimizer)
    return Checkpoint.from_sizes(
        size, training_run.rank.plan.gpus, saving.storage_gb_per_s * 1e9, link
    )


def _with_checkpoints(
    failing: FailureTable | None,
    saving: CheckpointTable,
    checkpoint: Checkpoint,
    gpus: int,
    step: Quantity,
) -> tuple[Failures, bool]:
    """Failures of a run that writes such checkpoints, and whether their interval is the best one.

    Raises:
        SilicastError: a checkpoint or its interval is stated twice, or none without failures.
    """
    if failing is not None and failing.checkpoint_s:
        raise SilicastError(
            "states how long a checkpoint takes, as workload.checkpoint does",
            field="cluster.failures.checkpoint_s",
            hint="leave one of them out",
        )
    every = saving.interval_steps
    every_interval = [
        saving.interval_s,
        None if every is None else every * step.estimate,
        None if failing is None else failing.checkpoint_interval_s,
    ]
    intervals = [each for each in every_interval if each is not None]
    if len(intervals) > 1 or not (intervals or failing is not None):
        raise SilicastError(
            "is stated more than once"
            if intervals
            else "is missing: without failures none is best",
            field="workload.checkpoint.interval_s",
            hint="one of interval_s, interval_steps, cluster.failures.checkpoint_interval_s",
        )
    if failing is None:
        return Failures(math.inf, checkpoint.stall_s(intervals[0]), 0.0, intervals[0]), False
    mtbf_s = gpu_mtbf_s(failing) / gpus
    least = checkpoint.stall_s(math.inf)
    interval = (
        intervals[0]
        if intervals
        else max(best_interval_s(least, mtbf_s), checkpoint.least_interval_s)
    )
    restart_s = failing.restart_s + checkpoint.lag_s
    return Failures(mtbf_s, checkpoint.stall_s(interval), restart_s, interval), not intervals


def _elastic(failures: Failures, failing: FailureTable, replicas: int) -> Failures:
    """Failures of a run that goes on without the replica that failed.

    Raises:
        SilicastError: there is no other.
    """
    if failing.repair_s is None:
        return failures
    if replicas < 2:
        raise SilicastError(
            "no other replica goes on: dp = 1",
            field="cluster.failures.repair_s",
            hint="leave it out, or more data ranks",
        )
    return replace(failures, repair_s=failing.repair_s, replicas=replicas)


def _spread(slow: SlowTable) -> Dispersion:
    return Dispersion(0.0, slow.fraction, slow.slowdown)


def _failures(table: FailureTable, gpus: int) -> Failures:
    if table.checkpoint_interval_s is None and not table.checkpoint_s:
        raise SilicastError(
            "checkpoints that take no time have no best interval",
            field="cluster.failures.checkpoint_s",
            hint="state how long one holds up the run, or checkpoint_interval_s",
        )
    return Failures.of_gpus(
        gpus, gpu_mtbf_s(table), table.checkpoint_s, table.restart_s, table.checkpoint_interval_s
    )


def _goodput(failures: Failures, seed: int) -> tuple[Quantity, dict[str, Any]]:
    """Its mean over a long run, with the interval and the quantiles of runs that were drawn."""
    mean = failures.goodput
    if math.isinf(failures.mtbf_s):
        return _known(mean), {}
    useful = min(RUN_S, MOST_FAILURES * failures.mtbf_s * mean)
    if useful < failures.interval_s:  # hardly any interval ends without a failure
        return Quantity(mean, mean, mean), {"goodput": {"mean": mean}}
    drawn = np.minimum(useful / failures.drawn_wall_s(useful, RUNS, seed), 1.0)
    quantiles = _quantiles(drawn)
    details = {
        "goodput": {**quantiles, "mean": mean},
        "runs_drawn": RUNS,
        "useful_days_of_a_run": useful / DAY_S,
    }
    return Quantity(mean, min(quantiles["p05"], mean), max(quantiles["p95"], mean)), details


def _times(step: Quantity, drawn: F64) -> Quantity:
    """A step so many times as long as drawn."""
    quantiles, mean = _quantiles(drawn), float(drawn.mean())
    return Quantity(
        step.estimate * mean,
        step.p05 * min(quantiles["p05"], mean),
        step.p95 * max(quantiles["p95"], mean),
    )


def _quantiles(drawn: F64) -> dict[str, float]:
    return {
        name: float(np.quantile(drawn, share))
        for name, share in (("p05", 0.05), ("p50", 0.5), ("p95", 0.95))
    }
