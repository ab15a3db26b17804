"""What slow devices and failures make of a training step: goodput, and the time that is lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from silicast.core.errors import SilicastError
from silicast.core.numerics import F64
from silicast.core.prediction import Quantity
from silicast.distributed.reliability import DAY_S, HOUR_S, Failures, best_interval_s
from silicast.distributed.slowed import slowed_steps
from silicast.distributed.variation import Spread
from silicast.scenario.decode import Scenario
from silicast.scenario.schema import FailureTable, SlowTable
from silicast.scenario.training_runs import TrainingRun

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


def lost(scenario: Scenario, found: TrainingRun, step: Quantity) -> Lost:
    """Metrics of a step with the slow devices and the failures that a scenario states.

    Metrics: with ``slow_gpus`` ``step_time_slowed_s``; with ``failures`` ``goodput`` (useful share
    of the time: no failures, restarts, repeated work, checkpoints), ``checkpoint_interval_s``
    (stated, or the best) and ``tokens_per_s_with_failures`` of all devices.

    Args:
        step: its time without either, seconds.

    Raises:
        SilicastError: no best interval between checkpoints that take no time.
    """
    cluster = scenario.raw.cluster
    slow, failing = (cluster.slow_gpus, cluster.failures) if cluster is not None else (None, None)
    if slow is None and failing is None:
        return Lost({}, {})
    seed = scenario.raw.seed or 0
    metrics: dict[str, Quantity] = {}
    about: dict[str, Any] = {"seed": seed}
    if slow is not None:
        drawn = slowed_steps(found.many, found.rank.plan, _spread(slow), seed)
        step = _times(step, drawn)
        metrics["step_time_slowed_s"] = step
        about["step_time_slowed_s"] = _quantiles(drawn * found.step.seconds)
        about["steps_drawn"] = len(drawn)
    if failing is not None:
        failures = _failures(failing, found.rank.plan.gpus)
        goodput, runs = _goodput(failures, seed)
        interval = failures.interval_s
        metrics |= {
            "goodput": goodput,
            "checkpoint_interval_s": Quantity(interval, interval, interval),
            "tokens_per_s_with_failures": Quantity(
                found.tokens / step.estimate * goodput.estimate,
                found.tokens / step.p95 * goodput.p05,
                found.tokens / step.p05 * goodput.p95,
            ),
        }
        stated = failing.checkpoint_interval_s is not None
        about |= {
            "mtbf_hours": failures.mtbf_s / HOUR_S, "shares_of_time": failures.losses,
            "checkpoint_interval": "stated" if stated else "the best", **runs,
        }  # fmt: skip
        if failing.checkpoint_s > 0.0:
            best = failures.with_interval(best_interval_s(failing.checkpoint_s, failures.mtbf_s))
            about["best_checkpoint_interval_s"] = best.interval_s
            about["goodput_at_best_interval"] = best.goodput
    return Lost(metrics, {"goodput": about})


def _spread(slow: SlowTable) -> Spread:
    return Spread(0.0, slow.fraction, slow.slowdown)


def _failures(stated: FailureTable, gpus: int) -> Failures:
    if stated.checkpoint_interval_s is None and not stated.checkpoint_s:
        raise SilicastError(
            "checkpoints that take no time have no best interval",
            field="cluster.failures.checkpoint_s",
            hint="state how long one holds up the run, or checkpoint_interval_s",
        )
    return Failures.of_gpus(
        gpus, stated.mtbf_hours_per_gpu * HOUR_S, stated.checkpoint_s, stated.restart_s,
        stated.checkpoint_interval_s,
    )  # fmt: skip


def _goodput(failures: Failures, seed: int) -> tuple[Quantity, dict[str, Any]]:
    """Its mean over a long run, with the interval and the quantiles of runs that were drawn."""
    mean = failures.goodput
    useful = min(RUN_S, MOST_FAILURES * failures.mtbf_s * mean)
    if useful < failures.interval_s:  # hardly any interval ends without a failure
        return Quantity(mean, mean, mean), {"goodput": {"mean": mean}}
    drawn = np.minimum(useful / failures.drawn_wall_s(useful, RUNS, seed), 1.0)
    found = _quantiles(drawn)
    said = {
        "goodput": {**found, "mean": mean}, "runs_drawn": RUNS,
        "useful_days_of_a_run": useful / DAY_S,
    }  # fmt: skip
    return Quantity(mean, min(found["p05"], mean), max(found["p95"], mean)), said


def _times(step: Quantity, drawn: F64) -> Quantity:
    """A step so many times as long as drawn."""
    found, mean = _quantiles(drawn), float(drawn.mean())
    return Quantity(
        step.estimate * mean, step.p05 * min(found["p05"], mean), step.p95 * max(found["p95"], mean)
    )


def _quantiles(drawn: F64) -> dict[str, float]:
    return {
        name: float(np.quantile(drawn, share))
        for name, share in (("p05", 0.05), ("p50", 0.5), ("p95", 0.95))
    }
