"""The Matern law by hand, slopes by differences, the posterior by its data."""

from __future__ import annotations

import math

import numpy as np
import pytest

from silicast.core.numerics import exp_fixed
from silicast.learning.gaussian_process import (
    ONCE,
    TWICE,
    FieldPosterior,
    Matern,
    evidence,
    squared_distances,
)

SQUARES = np.array([0.0, 1.0, 4.0])


def test_the_law_of_order_three_halves_by_hand() -> None:
    # (1 + sqrt(3) d) exp(-sqrt(3) d) at d = 0, 1, 2:
    # 1, 2.7320508 x 0.1769212, 4.4641016 x 0.0313011
    wanted = [1.0, 0.48335772, 0.13973135]
    assert Matern(3).correlation(SQUARES) == pytest.approx(wanted, abs=1e-8)
    assert ONCE.correlation(SQUARES) == pytest.approx(wanted, abs=1e-8)


def test_the_law_of_order_five_halves_by_hand() -> None:
    # (1 + sqrt(5) d + 5 d^2 / 3) exp(-sqrt(5) d) at d = 0, 1, 2:
    # 1, 4.9027346 x 0.1068779, 12.1388026 x 0.0114229
    assert TWICE.correlation(SQUARES) == pytest.approx([1.0, 0.52399411, 0.13866022], abs=1e-7)


@pytest.mark.parametrize("law", [Matern(3), Matern(3, exp_fixed), Matern(5)])
def test_the_slope_is_the_difference_of_the_law(law: Matern) -> None:
    squares, step = np.linspace(0.1, 9.0, 20), 1e-5
    difference = (law.correlation(squares + step) - law.correlation(squares - step)) / (2 * step)
    assert law.with_slope(squares)[1] == pytest.approx(difference, abs=1e-7)


@pytest.mark.parametrize("law", [Matern(3), Matern(5)])
def test_slopes_of_the_evidence_are_its_differences(law: Matern) -> None:
    rng = np.random.default_rng(0)
    where, target = rng.uniform(0, 3, (2, 12)), rng.normal(size=12)
    apart = np.square(where[:, :, None] - where[:, None, :])
    trend = np.full((12, 12), 0.3)

    def value(logs: np.ndarray, noise: float) -> float:
        shares = apart * np.exp(-2.0 * logs[:2])[:, None, None]
        return evidence(law, shares, target, math.exp(logs[2]), noise, trend).value

    logs, noise, step = np.array([0.2, -0.4, -0.5]), 0.1, 1e-5
    shares = apart * np.exp(-2.0 * logs[:2])[:, None, None]
    exact = evidence(law, shares, target, math.exp(logs[2]), noise, trend)
    for n, slope in enumerate([*exact.lengths, exact.field]):
        move = step * np.eye(3)[n]
        difference = (value(logs + move, noise) - value(logs - move, noise)) / (2 * step)
        assert slope == pytest.approx(difference, rel=1e-5)
    difference = (value(logs, noise + step) - value(logs, noise - step)) / (2 * step)
    assert exact.noise == pytest.approx(difference, rel=1e-5)


def test_the_evidence_of_one_value_by_hand() -> None:
    one = evidence(Matern(3), np.zeros((1, 1, 1)), np.array([2.0]), 3.0, 1.0)
    assert one.value == pytest.approx(0.5 * 4.0 / 4.0 + 0.5 * math.log(4.0))


def test_the_posterior_goes_through_its_points_and_knows_nothing_far_away() -> None:
    points, values = np.array([[0.0, 1.0, 2.5]]), np.array([1.0, -1.0, 0.5])
    known = FieldPosterior.fit(TWICE, points, values, 1e-10)
    mean, sd = known.predict(points)
    assert mean == pytest.approx(values, abs=1e-6)
    assert sd.max() < 1e-3
    mean, sd = known.predict(np.array([[100.0]]))
    assert mean == pytest.approx([0.0], abs=1e-9)
    assert sd == pytest.approx([1.0])


def test_distances_are_those_of_columns() -> None:
    a, b = np.array([[0.0, 3.0], [0.0, 4.0]]), np.array([[0.0], [0.0]])
    assert squared_distances(a, b).tolist() == [[0.0], [25.0]]
