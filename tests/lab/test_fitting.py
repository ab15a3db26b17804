"""Fits of constants whose times have kinks: where they end, and from how far."""

from __future__ import annotations

import numpy as np
import pytest

from lab import fitting
from lab.fitting import F


def least(
    errors: F, pull: float = 0.0, begin: float = 0.0, reaches: tuple[float, ...] = ()
) -> tuple[float, float]:
    """Where a fit of one constant ends whose errors stand in a table over -2 to 2, and its cost."""
    logs = np.linspace(-2.0, 2.0, len(errors))

    def errors_at(x: F, _: int) -> F:
        nearest = int(np.abs(logs - x[0]).argmin())
        return np.array([errors[nearest]])

    fit = fitting.fit_by_groups(
        errors_at,
        [1],
        lambda j, i: True,
        np.zeros(1),
        np.full(1, pull),
        begin=np.full(1, begin),
        reaches=reaches,
        f_scale=0.05,
    )
    return float(fit.x[0]), float(fit.cost)


def test_steps_along_axes_leave_a_plateau() -> None:
    # flat up to 0.9: differences see no slope there, and the solver alone stays where it begins
    stairs = np.where(np.linspace(-2.0, 2.0, 401) < 0.9, 0.3, 0.0)
    assert least(stairs)[0] == 0.0
    x, cost = least(stairs, reaches=(3.0, 1.0, 0.3))
    assert x > 0.9
    assert cost == 0.0


def test_what_rows_do_not_determine_ends_as_near_to_its_start_as_they_allow() -> None:
    # any constant from 0.9 on fits alike: a kernel that is never chosen
    stairs = np.where(np.linspace(-2.0, 2.0, 401) < 0.9, 0.3, 0.0)
    far, _ = least(stairs, pull=0.01, begin=1.9, reaches=(1.0, 0.3, 0.1, 0.03, 0.01))
    near, _ = least(stairs, pull=0.01, begin=0.0, reaches=(1.0, 0.3, 0.1, 0.03, 0.01))
    assert 0.89 < near < 1.0
    assert far == pytest.approx(near, abs=0.05)


def test_cost_counts_rows_and_pulls_as_the_solver_does() -> None:
    # soft L1: C^2 (sqrt(1 + (e/C)^2) - 1), C = 0.05, e = 0.12 -> 0.0025 * (2.6 - 1)
    assert fitting._soft_l1(np.array([0.12, -0.12]), 0.05) == pytest.approx(2 * 0.0025 * 1.6)
    _, cost = least(np.full(401, 0.12))
    assert cost == pytest.approx(0.0025 * 1.6)


def test_only_groups_that_a_constant_touches_are_predicted_again() -> None:
    calls = []

    def errors_at(x: F, i: int) -> F:
        calls.append(i)
        return np.array([x[i] - 0.5])

    logs = fitting._along_axes(
        errors_at, lambda j, i: i == j, 2, np.zeros(2), np.zeros(2), np.zeros(2), (0.5, 0.25), 0.05
    )
    assert logs.tolist() == [0.5, 0.5]
    assert calls == [0, 1] + 4 * [0] + 4 * [1]


def test_what_moves_no_row_goes_back_to_where_it_is_drawn() -> None:
    logs = fitting._along_axes(
        lambda x, i: np.array([0.1]),
        lambda j, i: True,
        1,
        np.ones(1),
        np.zeros(1),
        np.ones(1),
        (1.0, 0.3),
        0.05,
    )
    assert logs.tolist() == [0.0]
