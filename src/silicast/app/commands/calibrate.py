"""`silicast calibrate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from silicast.app import status
from silicast.app.console import show, warn, write_lines
from silicast.app.flags import Count
from silicast.core.errors import SilicastError, unknown_name

if TYPE_CHECKING:
    from silicast.measurement.calibrating.calibrate import CalibrationResult


def calibrate(
    *rows: Path,
    device: str = "",
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    skip_bad: Annotated[bool, Parameter(negative=())] = False,
    keep_flagged: Annotated[bool, Parameter(negative=())] = False,
    holdout: float = 0.0,
    seed: int = 0,
    show_file: Annotated[Path | None, Parameter(name="--show")] = None,
    advise: Path | None = None,
    top: Count = 10,
    budget: str | None = None,
) -> int:
    """Calibrate a device's predictions to measurements of it.

    Kernels, host times, collectives and runs of whole models are read from files that `silicast
    measure` or `silicast import` wrote, kernels also from plain tables, and so are latencies of
    networks of a search space (columns model and latency_ms), of which ten are enough. Name the
    calibration in a scenario as `calibration`. Prints the errors of predictions before and after,
    on rows that were not fitted.

    Args:
        rows: files of measurements, or tables (CSV, JSON Lines, Parquet) with the columns of a
            kernel (op, its sizes, dtype, library) and latency_us, or of whole networks: model and
            latency_ms, on a board's NPU also precision and runtime.
        device: that was measured: catalog name, or path to a device file; by default as the files
            state.
        output: the calibration file to write.
        skip_bad: leave out rows that cannot be right, instead of stopping.
        keep_flagged: also use rows that were timed while the machine was busy or throttled.
        holdout: a share of the rows to score and not to fit, such as 0.5; by default all are
            fitted, and the errors are cross-validated.
        seed: selects the rows that are held out.
        show_file: a calibration file to print, and nothing else.
        advise: a scenario: print which measurements would narrow its interval most, given the
            files of earlier measurements, and nothing else. Of a search space (nasbench201,
            fbnet) or of a board ("Galaxy S24"): which networks to measure.
        top: most measurements that --advise lists.
        budget: time for all of them (90s, 2m); with it they are ranked by their benefit per second,
            otherwise by their benefit.
    """
    if advise is not None:
        return _advise(advise, rows, device, top, budget)
    if show_file is not None:
        return _show(show_file, rows)
    if not rows or output is None:
        missing = "rows to calibrate by" if not rows else "a file to write: -o"
        raise SilicastError(
            f"expected {missing}",
            field="calibrate",
            hint="silicast calibrate rows.jsonl -o mine.json",
        )
    from silicast.measurement.calibrating.calibrate_samples import is_samples

    if is_samples(rows, device):
        return _of_samples(rows, device, output, holdout)
    from silicast.measurement.calibrating.calibrate import calibrate as made

    result = made(
        rows, device, skip_bad=skip_bad, keep_flagged=keep_flagged, holdout=holdout, seed=seed
    )
    return _written(result, output)


def _advise_space(name: str, count: int) -> int:
    """Prints the networks of a space to measure, as a table to fill in."""
    from silicast.learning.known_latencies import known_latencies, worth_measuring
    from silicast.workload.spaces import space_named

    space = space_named(name)
    choices = worth_measuring(space, known_latencies(space.name), count)
    rows = [f"{space.name}:{space.text(each)}," for each in choices.tolist()]
    write_lines(["model,latency_ms", *rows])
    return status.ANSWERED


def _advise_board(count: int) -> int:
    """Prints the networks to measure on a board's NPU, as a table to fill in."""
    from silicast.learning.board_networks import worth_measuring

    rows = [f"{name},float,tflite," for name in worth_measuring(count)]
    write_lines(["model,precision,runtime,latency_ms", *rows])
    return status.ANSWERED


def _of_samples(rows: tuple[Path, ...], device: str, output: Path, holdout: float) -> int:
    """Writes a calibration by whole networks of a search space."""
    from silicast.core.calibration import save_calibration
    from silicast.measurement.calibrating.calibrate_samples import calibrate_samples
    from silicast.report.measurements.calibration import calibration_lines

    if holdout:
        raise SilicastError("samples are few: all are fitted", field="holdout")
    calibration, notes = calibrate_samples(rows, device)
    for line in notes:
        warn(line)
    save_calibration(calibration, output)
    for line in calibration_lines(calibration, {}):
        show(line)
    return status.ANSWERED


def _advise(
    scenario: Path, rows: tuple[Path, ...], device: str, top: int, budget: str | None
) -> int:
    """Prints what to measure for a scenario."""
    from silicast.scenario.reading.boards import is_board
    from silicast.workload.spaces import spaces

    if not scenario.exists() and str(scenario) in spaces():
        return _advise_space(str(scenario), top)
    if not scenario.exists() and is_board(str(scenario)):
        return _advise_board(top)
    _check_advised(scenario)
    from silicast.measurement.sweeps.advice import advise
    from silicast.report.measurements.advice import advice_parts, pasted

    result = advise(scenario, device=device, measured=rows, top=top, budget=budget)
    show(*advice_parts(result))
    write_lines(pasted(result))
    return status.ANSWERED


def _check_advised(scenario: Path) -> None:
    """Refuses a word that is neither a file nor a name of what is measured."""
    from silicast.core.naming import near
    from silicast.learning.board_networks import board_names
    from silicast.workload.spaces import spaces

    if not scenario.exists() and not scenario.suffix:
        name = str(scenario)
        raise unknown_name(
            f"neither a scenario file, a search space nor a board: {name:.80}",
            "advise",
            near(name, (*spaces(), *board_names())),
        )


def _show(path: Path, rows: tuple[Path, ...]) -> int:
    """Prints a calibration file."""
    from silicast.core.calibration import load_calibration
    from silicast.report.measurements.calibration import calibration_page

    if rows:
        raise SilicastError("a file to show and rows to fit are both given", field="show")
    show(calibration_page(load_calibration(path)))
    return status.ANSWERED


def _written(calibration_result: CalibrationResult, output: Path) -> int:
    """Writes a calibration and prints its accuracy."""
    from silicast.core.calibration import save_calibration
    from silicast.report.measurements.calibration import (
        accuracy_table,
        calibration_lines,
        not_scored,
    )

    for line in calibration_result.rejected.lines():
        warn(f"left out: {line}")
    for line in calibration_result.notes:
        warn(line)
    save_calibration(calibration_result.calibration, output)
    for line in calibration_lines(calibration_result.calibration, calibration_result.before):
        show(line)
    if calibration_result.calibration.left_out:
        show(
            "",
            accuracy_table(calibration_result.calibration),
            *not_scored(calibration_result.unscored),
        )
    return status.ANSWERED
