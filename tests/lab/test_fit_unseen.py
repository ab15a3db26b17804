"""Widths of intervals on architectures that nobody measured."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.fit_unseen import Cell, pooled, unmeasured_spreads
from silicast.core.prediction import Z90

log_sds = st.lists(st.floats(-3.0, 0.5), min_size=1, max_size=6)


def _cells(
    by_format: dict[str, list[float]], family: str = "gemm"
) -> dict[tuple[tuple[str, str], str], float]:
    return {
        ((family, dtype), str(i)): value
        for dtype, values in by_format.items()
        for i, value in enumerate(values)
    }


def test_a_wide_architecture_counts_for_more_than_a_narrow_one() -> None:
    """Means of logarithms would give the middle, 0.1, which covers half of the wide one's rows."""
    widths = pooled(_cells({"bf16": [math.log(0.02), math.log(0.5)]}))
    assert widths["unmeasured.gemm.bf16.log_sd"] == pytest.approx(math.sqrt(0.1252), rel=1e-6)


def test_a_format_of_one_architecture_is_drawn_to_its_family() -> None:
    widths = pooled(_cells({"bf16": [math.log(0.2)] * 3, "fp8": [math.log(0.8)]}))
    family = widths["unmeasured.gemm.log_sd"]
    assert 0.2 < widths["unmeasured.gemm.bf16.log_sd"] < family
    assert family < widths["unmeasured.gemm.fp8.log_sd"] < 0.8


@given(log_sds, st.floats(0.1, 10.0))
def test_widths_have_no_unit(values: list[float], factor: float) -> None:
    cells = _cells({"bf16": values, "fp8": values[:1]})
    wider = {key: value + math.log(factor) for key, value in cells.items()}
    for name, value in pooled(cells).items():
        assert pooled(wider)[name] == pytest.approx(value * factor, rel=1e-9)


def test_normal_errors_far_from_the_bound_get_their_own_spread() -> None:
    random = np.random.default_rng(0)
    cells = [
        Cell("gemm", dtype, board, random.normal(0.0, 0.3, 4000), np.zeros(4000))
        for dtype in ("bf16", "fp8")
        for board in ("H100", "A100-SXM-80GB", "L40S")
    ]
    constants = unmeasured_spreads(cells, 0.25)
    assert constants["unmeasured.gemm.bf16.log_sd"] == pytest.approx(0.3, rel=0.03)
    inside = np.abs(cells[0].left) <= Z90 * constants["unmeasured.gemm.bf16.log_sd"]
    assert np.mean(inside) == pytest.approx(0.9, abs=0.02)
