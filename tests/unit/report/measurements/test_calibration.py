"""What a calibration came to, in lines."""

from __future__ import annotations

import pytest

from silicast.core.calibration import Calibration, Offset, Scope
from silicast.report.measurements.calibration import calibration_lines


@pytest.mark.parametrize(("rows", "counted"), [(1, "1 row,"), (2, "2 rows,")])
def test_rows_are_counted_and_the_interval_has_two_sides(rows: int, counted: str) -> None:
    calibration = Calibration(1, Scope("H100"), [Offset("gemm", 0.1, 0.02, rows, dtype="bf16")])
    (line,) = calibration_lines(calibration, {("gemm", "bf16"): 0.1})
    assert counted in line
    assert "interval now ±3.3 %" in line
