"""`silicast batch`."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, cast

from cyclopts import Parameter

from silicast.app import status
from silicast.app.console import TextBytes, abandon_stdout, progress, warn
from silicast.app.flags import Calibrations
from silicast.core.errors import SilicastError

if TYPE_CHECKING:
    from silicast.app.console import Advance
    from silicast.runner.batch import BatchResult, Tally

STREAM = Path("-")


def batch(
    cases: Annotated[Path, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    output: Annotated[Path | None, Parameter(alias="-o", allow_leading_hyphen=True)] = None,
    resume: Annotated[bool, Parameter(negative="")] = False,
    workers: int | None = None,
    calibration: Calibrations = None,
) -> int:
    """Predict many scenarios: JSON Lines in, JSON Lines out, in the same order.

    Answers are written as they come. Exit status: 0 if every case was answered, 3 if some failed,
    2 if the file cannot be read or the answers cannot be written, 130 if it was interrupted, 141 if
    nobody reads the answers any longer; what was finished until then is there.

    Args:
        cases: a JSON Lines file, one scenario a line; `-` is standard input.
        output: where the answers go; left out or `-`, they go to stdout.
        resume: go on where a batch that was interrupted stopped: answers that the output holds are
            kept.
        workers: processes that answer; left out, one for each processor.
        calibration: a file that `silicast calibrate` wrote, for every case; give it once for each
            of several.
    """
    from silicast.runner.batch import Tally

    if workers is not None and workers < 1:
        raise SilicastError(f"{workers} processes", field="--workers", hint="at least 1")
    for name, path in (("CASES", cases), ("--output", output)):
        if path not in (None, STREAM) and str(path).startswith("-"):
            hint = f"no such option; a file of that name is ./{path}"
            raise SilicastError(f"{path} starts with a hyphen", field=name, hint=hint)
    if output == STREAM:
        output = None
    if resume and output is None:
        raise SilicastError("there is no file to go on with", field="--resume", hint="name it: -o")
    tally = Tally()
    try:
        with progress("cases", _count(cases)) as advance:
            _answer(cases, output, workers, resume, calibration or [], advance, tally)
    except BrokenPipeError:
        abandon_stdout()
        warn(_said(tally.result, "nobody reads the answers any longer", output))
        return status.BROKEN_PIPE
    except KeyboardInterrupt:
        warn(_said(tally.result, "interrupted", output))
        return status.INTERRUPTED
    except (SilicastError, OSError):
        if tally.cases:
            warn(_said(tally.result, "stopped", output))
        raise
    warn(_said(tally.result, "", output))
    result = tally.result
    if result.shared_ids:
        shared = ", ".join(map(repr, result.shared_ids))
        warn(f"id of several cases: {shared}; a case without an id has the number of its line")
    return result.exit_status


def _answer(
    cases: Path,
    output: Path | None,
    workers: int | None,
    resume: bool,
    calibrations: list[Path],
    advance: Advance,
    tally: Tally,
) -> None:
    from silicast.runner.batch import run_batch_file, run_batch_stream
    from silicast.runner.workers import usable_processors

    count = workers or usable_processors()
    if output is not None:
        run_batch_file(
            cases,
            output,
            advance,
            calibrations=calibrations,
            workers=count,
            resume=resume,
            tally=tally,
        )
        return
    run_batch_stream(
        cases, _stdout(), advance, calibrations=calibrations, workers=count, tally=tally
    )


def _stdout() -> BinaryIO:
    """Bytes to stdout, also where something else stands for it."""
    sys.stdout.flush()
    below: BinaryIO | None = getattr(sys.stdout, "buffer", None)
    return below or cast("BinaryIO", TextBytes(sys.stdout))


def _count(cases: Path) -> int | None:
    """How many cases there may be, where somebody watches."""
    if not sys.stderr.isatty() or cases == STREAM:
        return None
    from silicast.runner.lines import count_lines

    with contextlib.suppress(SilicastError):  # told where the file is opened
        return count_lines(cases)
    return None


def _said(result: BatchResult, why: str, output: Path | None) -> str:
    """What was done, in one line."""
    message = f"{result.answered} answered, {result.failed} failed"
    if result.kept:
        message += f" ({result.kept} of them before)"
    if not why:
        return message
    going_on = "" if output is None else f"; `--resume -o {output}` goes on"
    return f"{why}: {message}{going_on}"
