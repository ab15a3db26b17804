"""Smoothing over features: what it meets, what it does not bend to, and where it is unsure."""

from __future__ import annotations

import numpy as np

from silicast.learning.smoothed import Smoothed


def test_points_alike_share_what_was_measured() -> None:
    """Far more rows than features: values that follow the features are met where they lie, one
    stray value is not, and beyond all features the spread grows.
    """
    draw = np.random.default_rng(0)
    features = draw.normal(size=(120, 3))
    values = np.stack([1.0 + features @ [0.5, -0.2, 0.1], 2.0 + features @ [0.5, 0.3, 0.0]], axis=1)
    stray = values.copy()
    stray[7] += 3.0
    noise = np.full(120, 0.15)
    fit, bent = (Smoothed.fitted(features, each, noise) for each in (values, stray))
    for at in (features[0], features[7], draw.normal(size=3) / 3.0):
        expected = [1.0 + at @ [0.5, -0.2, 0.1], 2.0 + at @ [0.5, 0.3, 0.0]]
        np.testing.assert_allclose(fit.at(at)[0], expected, atol=0.05)
        np.testing.assert_allclose(bent.at(at)[0], expected, atol=0.6)
    assert fit.at(np.full(3, 6.0))[1] > 2.0 * fit.at(features[0])[1]
