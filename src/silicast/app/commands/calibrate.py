"""`silicast calibrate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from silicast.app import status
from silicast.app.console import show, warn


def calibrate(
    rows: Path,
    /,
    *,
    device: str,
    output: Annotated[Path, Parameter(alias="-o")],
    skip_bad: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Refine a device's predictions by kernels that were measured on it.

    Give the file to a scenario as `calibration`.

    Args:
        rows: CSV, JSON Lines or Parquet: the columns of a kernel (op, its sizes, dtype, library),
            and latency_us.
        device: what they were measured on: catalog name, or path to a device file.
        output: the calibration file to write.
        skip_bad: go on without rows that cannot be right, instead of refusing all.
    """
    from silicast.core.calibration import save_calibration
    from silicast.measurement.calibrate import calibrate as made
    from silicast.report.calibration import calibration_lines

    found = made(rows, device, skip_bad=skip_bad)
    for line in found.refused.lines():
        warn(f"left out: {line}")
    save_calibration(found.calibration, output)
    for line in calibration_lines(found.calibration, found.before):
        show(line)
    return status.ANSWERED
