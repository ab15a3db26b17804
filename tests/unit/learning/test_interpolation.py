"""Trend and field: they find what was put in, whatever the batch, and fade with distance."""

from __future__ import annotations

import numpy as np
import pytest

from silicast.learning.gaussian_process import Prior, fitted_scales
from silicast.learning.interpolation import as_data, fit, from_data

NAMES, TERMS = ("time", "size:m", "size:n"), ("constant", "share:dram", "wave")


def made(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Coordinates, terms of the trend and logs of a device with slow memory and a bump."""
    rng = np.random.default_rng(seed)
    where = rng.uniform(0.0, 5.0, (3, count))
    terms = np.stack([np.ones(count), rng.uniform(0.0, 1.0, count), rng.uniform(0.0, 1.0, count)])
    target = 0.25 * terms[1] + 0.2 * np.sin(where[1]) + 0.01 * rng.standard_normal(count)
    return where, terms, target


@pytest.mark.parametrize(("count", "most"), [(30, 0.12), (200, 0.04), (600, 0.03)])
def test_more_rows_say_more(count: int, most: float) -> None:
    where, terms, target = made(count)
    fitted = fit(where, terms, target)
    there, other, truth = made(400, seed=1)
    result, _ = fitted.evaluate(there, other)
    assert float(np.abs(result - truth).mean()) < most
    assert float(np.abs(result - truth).mean()) < 0.8 * float(np.abs(truth).mean())


def test_one_outlier_moves_no_one_else() -> None:
    where, terms, target = made(120)
    wild = target.copy()
    wild[7] += 3.0
    there, other, _ = made(300, seed=1)
    plain, _ = fit(where, terms, target).evaluate(there, other)
    result, _ = fit(where, terms, wild).evaluate(there, other)
    assert float(np.abs(result - plain).mean()) < 0.05


def test_alone_as_in_any_batch_to_the_bit() -> None:
    where, terms, target = made(300)
    fitted = fit(where, terms, target)
    there, other, _ = made(5000, seed=2)
    result, near = fitted.evaluate(there, other)
    for row in (0, 1, 2047, 2048, 4999):
        one, close = fitted.evaluate(there[:, row : row + 1], other[:, row : row + 1])
        assert one.tobytes() == result[row : row + 1].tobytes()
        assert close.tobytes() == near[row : row + 1].tobytes()


def test_far_away_the_trend_speaks_alone() -> None:
    where, terms, target = made(200)
    fitted = fit(where, terms, target)
    far, near = fitted.evaluate(np.full((3, 1), 500.0), np.array([[1.0], [0.5], [0.5]]))
    assert near[0] < 0.02
    trend = fitted.trend @ np.array([1.0, 0.5, 0.5])
    assert far[0] == pytest.approx(trend, abs=0.02)


def test_a_file_holds_it() -> None:
    where, terms, target = made(100)
    fitted = fit(where, terms, target)
    again = from_data(as_data(fitted, NAMES, TERMS))
    there, other, _ = made(50, seed=3)
    result, _ = fitted.evaluate(there, other)
    assert again.evaluate(there, other)[0] == pytest.approx(result, abs=1e-3)


def test_the_same_rows_give_the_same_bits() -> None:
    where, terms, target = made(150)
    one, other = fit(where, terms, target), fit(where, terms, target)
    assert one.weights.tobytes() == other.weights.tobytes()
    assert one.scales.tobytes() == other.scales.tobytes()


def test_scales_tell_what_counts() -> None:
    rng = np.random.default_rng(0)
    where = rng.uniform(0.0, 6.0, (2, 120))
    target = np.sin(2.0 * where[0]) * 0.3
    prior = Prior(np.log([0.3, 0.3, 0.2, 0.05]), np.ones(4))
    scales, field, noise = fitted_scales(where, np.zeros((120, 120)), target, prior)
    assert scales[0] > 5.0 * scales[1]
    assert field > noise
