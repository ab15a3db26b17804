"""What an architecture that nobody measured gets of those that somebody did."""

from __future__ import annotations

import pytest

from lab import gemm_problem


def test_of_a_librarys_constants_the_median_counts() -> None:
    # the only architecture that fetches alike has a constant that its rows do not determine
    values = [(True, 7.7e-4), (False, 3e-5), (False, 9e-5)]
    assert gemm_problem._pooled("fp8.split_s:sglang", values) == pytest.approx(9e-5)
    assert gemm_problem._pooled("fp8.split_s:sglang", values[:2]) == pytest.approx(
        (7.7e-4 * 3e-5) ** 0.5
    )


def test_scheduling_weighs_more_where_operands_are_fetched_alike() -> None:
    values = [(True, 0.1), (False, 0.8)]
    assert gemm_problem._pooled("fp8.quantisation", values) == pytest.approx((0.1**3 * 0.8) ** 0.25)
    assert gemm_problem._pooled("launch_s", values) == pytest.approx((0.1 * 0.8) ** 0.5)
