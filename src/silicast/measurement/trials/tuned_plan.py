"""A tuning plan whose best candidates were timed on the GPU at hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from silicast.core.errors import SilicastError, unsupported
from silicast.measurement.trials.tuning_trials import Timer, best_measured, gpu_timer, run_trials
from silicast.tuning.plan import TuningPlan, first_candidates

MOST_TRIALS = 1000
TIMED_ROUTINGS = ("", "balanced", "uniform")
TIMED_AT_RANDOM = "candidates were timed with tokens that choose experts at random, as tuners do"


def measured_plan(
    plan: TuningPlan, trials: int, folder: Path, timer_of: Callable[[str], Timer] = gpu_timer
) -> TuningPlan:
    """The plan with the fastest of the first ``trials`` configurations in every entry.

    Args:
        folder: that keeps what was timed, for a run that goes on after it was killed.
        timer_of: a format -> what times one configuration.

    Raises:
        SilicastError: no GPU, or the folder cannot be written.
    """
    if not 1 <= trials <= MOST_TRIALS:
        raise SilicastError(f"expected 1 to {MOST_TRIALS}, found {trials}", field="trials")
    if plan.routing not in TIMED_ROUTINGS:
        raise unsupported(
            f"tokens spread as {plan.routing} are not timed",
            "routing",
            "leave --measure out, or --routing",
        )
    timer = timer_of(plan.dtype)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SilicastError(
            f"cannot make the folder: {error.strerror or error}", kind="io", file=str(folder)
        ) from None
    files = []
    for one in plan.files:
        if one.layer is None:
            raise unsupported(
                "only layers of experts are timed", "--measure", "leave --measure out"
            )
        candidates = first_candidates(one, plan, trials)
        measured = best_measured(list(run_trials(one.name, one.layer, candidates, folder, timer)))
        files.append(one.with_entries({t: x.what for t, x in measured.items()}, plan.engine))
    return replace(plan, files=tuple(files), warnings=(*plan.warnings, TIMED_AT_RANDOM))
