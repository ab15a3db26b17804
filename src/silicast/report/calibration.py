"""What a calibration came to, in lines for people."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from silicast.core.calibration import Calibration
from silicast.core.prediction import Z90

SHOWN = 4
"""Physical quantities that a line names."""


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
        how = " and what differs from op to op" if offset.interpolation is not None else ""
        rows = f"{offset.rows} row{'' if offset.rows == 1 else 's'}"
        yield (
            f"{offset.family} {offset.dtype}: {rows}, {error:.1f} % off before; "
            f"offset {shift:+.1f} %{how}, 90 % interval now ±{width:.1f} %"
        )
        if offset.interpolation is not None:
            trend = sorted(offset.interpolation.trend.items(), key=lambda each: -abs(each[1]))
            words = [f"{_named(name)} {_percent(value):+.1f} %" for name, value in trend[:SHOWN]]
            yield f"  physical quantities, slower than predicted by: {', '.join(words)}"


def _named(term: str) -> str:
    """A term of the trend as people call it."""
    return {"constant": "everything", "wave": "kernels of one wave"}.get(
        term, term.partition(":")[2]
    )


def _percent(log: float) -> float:
    return 100.0 * math.expm1(log)
