"""`silicast drift`."""

from __future__ import annotations

from pathlib import Path

from silicast.app import status
from silicast.app.arguments import described
from silicast.app.console import show, write_json
from silicast.app.flags import Calibrations, Json
from silicast.scenario.reading.numbers import share_of


@described()
def drift(
    *measured: Path,
    calibration: Calibrations = None,
    device: str = "",
    tolerance: str = "3%",
    false_alarms: str = "1%",
    json: Json = False,
) -> int:
    """Test whether measurements have left the predictions, as after a new release of an engine.

    By op, device, engine and version: what moved, how far, after how many rows that was certain,
    and what to measure again. Nothing is widened or fitted. Exit status: 0 if nothing moved, 3 if
    something did.

    Args:
        measured: files that `silicast measure` or `silicast import` wrote, or tables of kernels.
        calibration: a file that `silicast calibrate` wrote from the version before; give it once
            for each of several.
        device: what rows were measured on that do not say it.
        tolerance: how far a calibrated prediction may be off on average; others may be off by half
            their interval.
        false_alarms: the chance of an alarm of a cell in which nothing moved.
    """
    from silicast.report.measurements.drift import drift_table
    from silicast.validation.drift import drift_of, drift_tables

    report = drift_of(
        measured,
        calibration or [],
        device,
        tolerance=share_of(tolerance, "--tolerance"),
        alpha=share_of(false_alarms, "--false-alarms"),
    )
    if json:
        write_json(drift_tables(report))
    else:
        show(drift_table(report))
    return status.NOT_ANSWERED if report.has_moved else status.ANSWERED
