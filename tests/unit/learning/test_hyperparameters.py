"""Lengths and spreads of a Gaussian process, found from what it made."""

from __future__ import annotations

import numpy as np
import pytest

from silicast.core.numerics import F64
from silicast.learning.gaussian_process import LEAST_NOISE, ONCE, Prior, fitted_scales

ROWS = 120
PRIOR = Prior.from_constants(
    {"scale": 0.5, "field_log_sd": 0.2, "noise_log_sd": 0.05, "scale_spread": 1.0,
     "sd_spread": 1.0}, 2,
)  # fmt: skip


def made(noise: float, seed: int = 0) -> tuple[F64, F64]:
    """Coordinates, of which the second says nothing, and a field of sd 0.3 and length 1."""
    rng = np.random.default_rng(seed)
    where = rng.uniform(0.0, 6.0, (2, ROWS))
    covariance = 0.09 * ONCE.correlation(np.square(where[0][:, None] - where[0]))
    field = np.linalg.cholesky(covariance + 1e-9 * np.eye(ROWS)) @ rng.normal(size=ROWS)
    return where, field + rng.normal(0.0, noise, ROWS)


def fitted(noise: float) -> tuple[F64, float, float]:
    where, target = made(noise)
    return fitted_scales(where, np.zeros((ROWS, ROWS)), target, PRIOR)


@pytest.mark.parametrize("noise", [0.03, 0.1])
def test_noise_and_field_are_told_apart(noise: float) -> None:
    _, field, result = fitted(noise)
    assert result == pytest.approx(noise, rel=0.35)
    assert 0.15 < field < 0.6


def test_a_coordinate_that_says_nothing_gets_the_longer_length() -> None:
    scales, _, _ = fitted(0.03)
    assert scales[0] > 3.0 * scales[1]


def test_noise_is_never_taken_for_none() -> None:
    _, _, noise = fitted(0.0)
    assert noise >= LEAST_NOISE
