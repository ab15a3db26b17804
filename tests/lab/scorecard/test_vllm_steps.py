"""The line that a model's steps are told by holds however few steps there are."""

from __future__ import annotations

import numpy as np
import pytest

from lab.scorecard.suites.vllm_steps import _nearest_line


@pytest.mark.parametrize("count", [2, 3, 19, 20, 500])
def test_points_of_a_line_give_it(count: int) -> None:
    x = np.arange(count, dtype=np.float64)
    assert _nearest_line(x, 3.0 + 2.0 * x) == pytest.approx((3.0, 2.0))


def test_a_single_step_is_a_constant() -> None:
    assert _nearest_line(np.array([4.0]), np.array([7.0])) == (7.0, 0.0)
    assert _nearest_line(np.full(30, 4.0), np.full(30, 7.0)) == (7.0, 0.0)
