"""What a calibration came to, in lines for people."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from silicast.core.calibration import Calibration
from silicast.core.prediction import Z90


def calibration_lines(
    calibration: Calibration, before: Mapping[tuple[str, str], float]
) -> Iterator[str]:
    """A line a family and format: rows, error before, offset, interval after.

    Args:
        before: (family, dtype) -> mean |log| error of the predictions before.
    """
    for offset in calibration.offsets:
        error = _percent(before[offset.family, offset.dtype])
        shift = _percent(offset.log_offset)
        width = _percent(Z90 * offset.log_sd)
        how = "" if offset.correction is None else " and a correction from op to op"
        yield (
            f"{offset.family} {offset.dtype}: {offset.rows} rows, {error:.1f} % off before; "
            f"offset {shift:+.1f} %{how}, 90 % interval now +{width:.1f} %"
        )


def _percent(log: float) -> float:
    return 100.0 * math.expm1(log)
