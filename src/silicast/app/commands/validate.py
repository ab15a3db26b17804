"""`silicast validate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from silicast.app import status
from silicast.app.arguments import described
from silicast.app.console import progress, show, told_as_it_goes, warn, write_json
from silicast.app.flags import Calibrations, Json
from silicast.core.errors import SilicastError

if TYPE_CHECKING:
    from silicast.validation.measured import MeasuredScore

CLAIMS = "claims"


@described()
def validate(
    *names: str,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    limit: int | None = None,
    measured: Annotated[list[Path] | None, Parameter(negative="")] = None,
    calibration: Calibrations = None,
    device: str = "",
    keep_flagged: Annotated[bool, Parameter(negative=())] = False,
    json: Json = False,
) -> int:
    """Score predictions against measured rows, or check files of devices and designs.

    Suites read the measured tables in SILICAST_DATA. Exit status: 0 if all is well, 2 if a file
    has problems, 3 if a suite misses one of its thresholds.

    Args:
        names: suites, all of them if none is named; files of devices and designs (.toml); or
            `claims`: what tools say of their accuracy, recounted.
        output: a folder; each suite writes its results there, as JSON and as a page (.md).
        limit: score about so many rows a suite, a deterministic sample.
        measured: score your own measurements instead: files that `silicast measure` or `silicast
            import` wrote, or tables of kernels; rows that the calibration was fitted on are not
            scored.
        calibration: a file that `silicast calibrate` wrote, for --measured; give it once for each
            of several.
        device: for --measured: what rows were measured on that do not say it.
        keep_flagged: for --measured: score rows too that were timed while the machine was busy or
            throttled.
    """
    if measured:
        if names or output is not None or limit is not None:
            raise SilicastError(
                "suites and your own measurements are both named",
                field="measured",
                hint="give --measured alone, with --calibration, --device or --json",
            )
        from silicast.validation.measured import score_measured

        result = score_measured(measured, calibration or [], device, keep_flagged=keep_flagged)
        return _show_measured(result, json=json)
    options = {"calibration": calibration, "device": device, "keep_flagged": keep_flagged}
    if any(options.values()):
        raise SilicastError(
            "goes with --measured", field=next(name for name, value in options.items() if value)
        )
    files = [name for name in names if name.endswith(".toml")]
    if files and len(files) < len(names):
        raise SilicastError("suites and device files are both named", field="validate")
    if files:
        return _check_devices([Path(name) for name in files], json=json)
    if names == (CLAIMS,):
        return _claims(json=json)
    return _score(names, output, limit, json=json)


def _claims(*, json: bool) -> int:
    """Prints claims, a paragraph each: a table of so many columns fits no screen."""
    from silicast.report.measurements.measured import claims_report
    from silicast.validation.checkout import scorecard

    with scorecard() as suites:
        rows = suites.claims()
    if json:
        write_json(rows)
    else:
        show(claims_report(rows))
    return status.ANSWERED


def _show_measured(measured_score: MeasuredScore, *, json: bool) -> int:
    from silicast.report.measurements.measured import measured_json, measured_table

    for line in measured_score.said:
        warn(line)
    if json:
        write_json(measured_json(measured_score))
    else:
        show(measured_table(measured_score))
    return status.ANSWERED


def _check_devices(files: list[Path], *, json: bool) -> int:
    from silicast.accelerator.cores.core_file import has_cores, wrong_cores
    from silicast.hardware.check import check_device

    table = {
        str(path): [
            str(problem)
            for problem in (wrong_cores(path) if has_cores(str(path)) else check_device(path))
        ]
        for path in files
    }
    if json:
        write_json(table)
    else:
        for path, problems in table.items():
            show(f"{path}: {'no problems' if not problems else 'problems'}")
            for problem in problems:
                show(f"  {problem}")
    return status.BAD_INPUT if any(table.values()) else status.ANSWERED


def _score(names: tuple[str, ...], output: Path | None, limit: int | None, *, json: bool) -> int:
    from silicast.validation.checkout import scorecard

    with scorecard() as suites:
        from silicast.report.remaining import foretelling

        for line in suites.expense(names, limit):
            warn(line)
        foretold = suites.foretold_s(names, limit) if told_as_it_goes() else {}
        if remark := foretelling(foretold):
            warn(remark)
        with progress("suites", len(foretold) or None, list(foretold.values())) as advance:

            def told(suite: str, done: int, count: int) -> None:
                advance(done)
                if done < count and count > 1:
                    warn(f"{done + 1} of {count}: {suite}")

            results = suites.run(names, limit=limit, progress=told)
    missed = [line for result in results for line in suites.threshold_failures(result)]
    if output is not None:
        _make_folder(output)
        for result in results:
            suites.save(result, output)
    if json:
        write_json(results)
    else:
        for result in results:
            show(suites.table(result))
    for line in missed:
        warn(f"threshold missed: {line}")
    return status.NOT_ANSWERED if missed else status.ANSWERED


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise SilicastError(
            f"cannot make this folder: {reason}", kind="io", file=str(path)
        ) from None
