"""`silicast sweep`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter, validators

from silicast.app import status
from silicast.app.arguments import described
from silicast.app.console import progress, show, warn, write_json
from silicast.app.flags import Calibrations, Json
from silicast.core.errors import SilicastError

if TYPE_CHECKING:
    from silicast.runner.sweep import Executor, Sweep, SweepTally
    from silicast.runner.workers import PointLimits


@described()
def sweep(
    space: Path,
    /,
    *,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    workers: int | None = None,
    shard: str | None = None,
    ray: str | None = None,
    point_seconds: Annotated[float, Parameter(validator=validators.Number(gte=0))] = 0.0,
    point_memory_gb: Annotated[float, Parameter(validator=validators.Number(gte=0))] = 0.0,
    watch: str | None = None,
    race: str | None = None,
    prune: str | None = None,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    calibration: Calibrations = None,
    json: Json = False,
) -> int:
    """Answer every point of a space of scenarios into a store; run it again to go on.

    Exit status: 0 if every point was answered, 3 if some were refused or lost, 130 if it was
    interrupted; what was answered until then is in the store. The first interrupt finishes the
    points that run, the second stops.

    Args:
        space: a TOML file with a scenario, axes and constraints.
        output: the folder of the store; made if it is not there.
        workers: processes that answer; left out, one for each processor.
        shard: the part of the space that this process answers: 0/8 to 7/8; auto/8 takes the number
            from a Slurm array, an indexed Job of Kubernetes or SkyPilot.
        ray: a cluster of Ray that answers in place of processes: HOST:PORT, or auto.
        point_seconds: a point that takes longer, twice, is lost; 0 = no limit.
        point_memory_gb: memory of a process that answers, in GB of 10^9 bytes; 0 = no limit.
        watch: a metric whose best estimate so far is told as points are answered.
        race: a metric: all points are simulated with a few seeds, the better half with more, until
            one is left; says how probable it is that a better one was dropped.
        prune: a metric: points of task serving whose physical bound is worse than the best so far
            are left out, which cannot lose the best.
        dry_run: count the points, estimate the time, and stop.
    """
    from silicast.exploration.scenario_space import read_scenario_space
    from silicast.runner.ray_workers import RayWorkers, connected
    from silicast.runner.sweep import Sweep, shard_of
    from silicast.runner.workers import PointLimits, usable_processors

    if ray is not None and workers is not None:
        raise SilicastError("a cluster has its own workers", field="--workers")
    if workers is not None and workers < 1:
        raise SilicastError(f"{workers} processes", field="--workers", hint="at least 1")
    if output is None and not dry_run:
        raise SilicastError("is missing", field="--output", hint="name a folder: -o STORE")
    number, count = shard_of(shard)
    swept = Sweep(read_scenario_space(space), space.parent, tuple(calibration or ()), number, count)
    swept.check()
    if output is None or dry_run:
        return _foretell(swept, workers, json=json)
    if race is not None and (shard is not None or watch is not None):
        raise SilicastError("has one process that decides", field="--race", hint="without --shard")
    if prune is not None and (shard is not None or watch is not None or race is not None):
        raise SilicastError(
            "has one process that decides", field="--prune", hint="without --shard, --race, --watch"
        )
    limits = PointLimits.from_gb(point_seconds, point_memory_gb)
    if ray is not None:
        connected(ray)  # before there is a store
    executor = None if ray is None else partial(RayWorkers, ray)
    if race is not None:
        answer = partial(swept.run, workers=workers or usable_processors(), limits=limits)
        return _race(swept, output, race, partial(answer, executor=executor), json=json)
    if prune is not None:
        count = workers or usable_processors()
        answer = partial(swept.run, workers=count, limits=limits, executor=executor)
        return _prune(swept, output, prune, answer, count, json=json)
    return _run(swept, output, workers, limits, executor, watch or "", json=json)


def _foretell(swept: Sweep, workers: int | None, *, json: bool) -> int:
    from silicast.report.tasks.sweep import foretold_data, foretold_report
    from silicast.runner.workers import usable_processors

    data = foretold_data(swept, workers or usable_processors())
    if json:
        write_json(data)
    else:
        show(foretold_report(data))
    return status.ANSWERED


def _race(
    swept: Sweep, output: Path, metric: str, answer: Callable[..., SweepTally], *, json: bool
) -> int:
    from silicast.report.tasks.sweep import raced_data, raced_report
    from silicast.runner.racing import raced
    from silicast.runner.store import AnswerStore

    store = AnswerStore.begun(output)
    with progress("simulations") as advance:
        run = raced(
            swept, store, metric, lambda cases: answer(store, cases=cases, progress=advance)
        )
    data = raced_data(run)
    if json:
        write_json(data)
    else:
        show(raced_report(data))
    return status.ANSWERED


def _prune(
    swept: Sweep,
    output: Path,
    metric: str,
    answer: Callable[..., SweepTally],
    together: int,
    *,
    json: bool,
) -> int:
    from silicast.report.tasks.sweep import pruned_data, pruned_report
    from silicast.runner.pruning import pruned
    from silicast.runner.store import AnswerStore

    store = AnswerStore.begun(output)
    data = pruned_data(
        pruned(swept, store, metric, lambda cases: answer(store, cases=cases), together)
    )
    if json:
        write_json(data)
    else:
        show(pruned_report(data))
    return status.ANSWERED


def _run(
    swept: Sweep,
    output: Path,
    workers: int | None,
    limits: PointLimits,
    executor: Executor | None,
    watched: str,
    *,
    json: bool,
) -> int:
    from silicast.report.tasks.sweep import swept_data, swept_report, watched_words
    from silicast.runner.stop_signals import stop_signals
    from silicast.runner.store import AnswerStore
    from silicast.runner.sweep import SweepTally
    from silicast.runner.workers import usable_processors

    store = AnswerStore.begun(output)
    legal, reasons = swept.space.counts()
    part, _ = swept.space.counts(swept.shard, swept.shards)
    whole = True
    with stop_signals() as stopped:
        tally = SweepTally(stopped, watched)
        try:
            with progress("points", part, note=lambda: watched_words(tally)) as advance:
                swept.run(
                    store,
                    workers=workers or usable_processors(),
                    limits=limits,
                    executor=executor,
                    tally=tally,
                    progress=advance,
                )
        except KeyboardInterrupt:
            whole = False
    data = swept_data(tally, legal, reasons, output)
    if json:
        write_json(data)
    else:
        show(swept_report(data))
    if not whole or (tally.is_finishing and tally.done < part):
        warn(f"interrupted: `silicast sweep` with the same space and -o {output} goes on")
        return status.INTERRUPTED
    return _status(tally)


def _status(tally: SweepTally) -> int:
    return status.NOT_ANSWERED if tally.refused or tally.lost else status.ANSWERED
