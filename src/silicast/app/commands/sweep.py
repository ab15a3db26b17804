"""`silicast sweep`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from silicast.app import status
from silicast.app.arguments import described
from silicast.app.console import progress, show, warn, write_json
from silicast.app.flags import Calibrations, Json
from silicast.core.errors import SilicastError

if TYPE_CHECKING:
    from silicast.runner.sweep import Sweep, SweepTally


@described()
def sweep(
    space: Path,
    /,
    *,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    workers: int | None = None,
    shard: str | None = None,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    calibration: Calibrations = None,
    json: Json = False,
) -> int:
    """Answer every point of a space of scenarios into a store; run it again to go on.

    Exit status: 0 if every point was answered, 3 if some were refused, 130 if it was interrupted;
    what was answered until then is in the store.

    Args:
        space: a TOML file with a scenario, axes and constraints.
        output: the folder of the store; made if it is not there.
        workers: processes that answer; left out, one for each processor.
        shard: the part of the space that this process answers: 0/8 to 7/8; auto/8 takes the number
            from a Slurm array, an indexed Job of Kubernetes or SkyPilot.
        dry_run: count the points, estimate the time, and stop.
    """
    from silicast.exploration.scenario_space import read_scenario_space
    from silicast.runner.sweep import Sweep, shard_of

    if workers is not None and workers < 1:
        raise SilicastError(f"{workers} processes", field="--workers", hint="at least 1")
    if output is None and not dry_run:
        raise SilicastError("is missing", field="--output", hint="name a folder: -o STORE")
    number, count = shard_of(shard)
    swept = Sweep(read_scenario_space(space), space.parent, tuple(calibration or ()), number, count)
    swept.check()
    if output is None or dry_run:
        return _foretell(swept, workers, json=json)
    return _run(swept, output, workers, json=json)


def _foretell(swept: Sweep, workers: int | None, *, json: bool) -> int:
    from silicast.report.tasks.sweep import foretold_data, foretold_report
    from silicast.runner.workers import usable_processors

    data = foretold_data(swept, workers or usable_processors())
    if json:
        write_json(data)
    else:
        show(foretold_report(data))
    return status.ANSWERED


def _run(swept: Sweep, output: Path, workers: int | None, *, json: bool) -> int:
    from silicast.report.tasks.sweep import swept_data, swept_report
    from silicast.runner.store import AnswerStore
    from silicast.runner.sweep import SweepTally
    from silicast.runner.workers import usable_processors

    store, tally = AnswerStore.begun(output), SweepTally()
    legal, reasons = swept.space.counts()
    part, _ = swept.space.counts(swept.shard, swept.shards)
    whole = True
    try:
        with progress("points", part) as advance:
            swept.run(store, workers=workers or usable_processors(), tally=tally, progress=advance)
    except KeyboardInterrupt:
        whole = False
    data = swept_data(tally, legal, reasons, output)
    if json:
        write_json(data)
    else:
        show(swept_report(data))
    if not whole:
        warn(f"interrupted: `silicast sweep` with the same space and -o {output} goes on")
        return status.INTERRUPTED
    return _status(tally)


def _status(tally: SweepTally) -> int:
    return status.NOT_ANSWERED if tally.refused else status.ANSWERED
