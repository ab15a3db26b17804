"""`silicast batch`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from silicast.app.console import progress, warn
from silicast.app.flags import Calibrations


def batch(
    cases: Path,
    /,
    *,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    calibration: Calibrations = None,
) -> int:
    """Predict many scenarios: JSON Lines in, JSON Lines out, in the same order.

    Exit status: 0 if every case was answered, 3 if some failed, 2 if the file cannot be read.

    Args:
        cases: a JSON Lines file, one scenario a line.
        output: where the answers go; left out, they go to stdout.
        calibration: a file that `silicast calibrate` wrote, for every case; give it once for each
            of several.
    """
    from silicast.scenario.batch import run_batch_file

    with progress("cases") as advance, tempfile.TemporaryDirectory() as folder:
        target = output or Path(folder).joinpath("answers.jsonl")
        result = run_batch_file(cases, target, advance, calibrations=calibration or ())
        if output is None:
            with target.open(encoding="utf-8") as lines:
                sys.stdout.writelines(lines)
    warn(f"{result.answered} answered, {result.failed} failed")
    if result.shared_ids:
        shared = ", ".join(map(repr, result.shared_ids))
        warn(f"id of several cases: {shared}; a case without an id has the number of its line")
    return result.exit_status
