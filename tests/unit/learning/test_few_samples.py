"""A device from a few samples: what it recovers, what does not move it, what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from silicast.core.errors import SilicastError
from silicast.core.numerics import F64
from silicast.learning.few_samples import (
    check_samples,
    even_weights,
    fit_blend,
    nonnegative,
    tracks,
)

GROUPS = ["gpu", "gpu", "cpu", "npu"]
EVEN = even_weights(GROUPS)


def known(count: int, seed: int = 0) -> tuple[F64, F64]:
    """Latencies of four devices and two kinds of work, around 1."""
    draw = np.random.default_rng(seed)
    kernels = draw.uniform(0.2, 2.0, (count, 2))
    mix = np.array([[0.5, 0.45, 0.9, 0.1], [0.3, 0.35, 0.1, 0.9]])
    return kernels @ mix + draw.uniform(0.0, 0.1, (count, 4)) + 0.1, kernels


@pytest.mark.parametrize("seed", range(6))
def test_the_solution_is_the_best_without_negative_weights(seed: int) -> None:
    """Karush, Kuhn and Tucker: no slope where a weight is above zero, none downhill elsewhere."""
    draw = np.random.default_rng(seed)
    rows, values = draw.normal(size=(9, 6)), draw.normal(size=9)
    x = nonnegative(rows, values)
    slope = rows.T @ (values - rows @ x)
    assert x.min() >= 0.0
    np.testing.assert_allclose(slope[x > 0], 0.0, atol=1e-9)
    assert slope.max() <= 1e-8


def test_relatives_share_their_weight() -> None:
    assert even_weights(GROUPS).tolist() == pytest.approx([1 / 6, 1 / 6, 1 / 3, 1 / 3])


def test_a_device_like_a_known_one_is_predicted() -> None:
    devices, kernels = known(400)
    truth = 7.0 * devices[:, 3]
    blend = fit_blend(devices[:10], kernels[:10], EVEN, truth[:10])
    predicted = blend.predict(devices, kernels)
    usual = float(np.median(truth)) * devices @ even_weights(GROUPS)
    assert np.median(np.abs(predicted / truth - 1)) < 0.03
    assert np.median(np.abs(usual / truth - 1)) > 0.2


def test_the_unit_does_not_matter() -> None:
    devices, kernels = known(30)
    truth = devices[:, 2] + 0.3 * kernels[:, 0]
    one, other = (
        fit_blend(devices[:10], kernels[:10], EVEN, scale * truth[:10]) for scale in (1.0, 1e3)
    )
    np.testing.assert_allclose(
        1e3 * one.predict(devices, kernels), other.predict(devices, kernels), rtol=1e-9
    )


def test_one_wrong_sample_moves_little_and_is_named() -> None:
    devices, kernels = known(200)
    truth = 2.0 * devices[:, 2]
    wrong = truth[:10].copy()
    wrong[4] *= 5.0
    blend = fit_blend(devices[:10], kernels[:10], EVEN, wrong)
    assert blend.strays == (4,)
    assert np.median(np.abs(blend.predict(devices, kernels) / truth - 1)) < 0.1


def test_noise_widens_the_interval() -> None:
    devices, kernels = known(20)
    truth = devices[:, 2]
    noisy = truth * np.exp(np.random.default_rng(1).normal(0, 0.3, 20))
    sds = [fit_blend(devices, kernels, EVEN, each).log_sd for each in (truth, noisy)]
    assert sds[1] > 1.5 * sds[0]


def test_two_samples_give_a_level_alone() -> None:
    devices, kernels = known(50)
    blend = fit_blend(devices[:2], kernels[:2], EVEN, 3.0 * devices[:2] @ EVEN)
    np.testing.assert_allclose(
        blend.predict(devices, kernels), 3.0 * devices @ even_weights(GROUPS)
    )
    assert blend.log_sd >= 0.3


@pytest.mark.parametrize(
    ("latencies", "part"),
    [
        ([5.0, -1.0, 4.0], "above zero"),
        ([5.0, 5.0, 5.0], "all take 5 ms"),
        ([5e3, 8e3, 9e3], "microseconds"),
        ([5e-3, 8e-3, 9e-3], "seconds"),
        ([], "no sample"),
    ],
)
def test_samples_that_cannot_be_right_are_refused(latencies: list[float], part: str) -> None:
    names = [f"n{index}" for index in range(len(latencies))]
    with pytest.raises(SilicastError, match=part):
        check_samples(names, np.array(latencies), (2.0, 30.0))


def test_two_times_of_one_network_contradict_each_other() -> None:
    check_samples(["a", "a", "b"], np.array([5.0, 5.5, 9.0]), (2.0, 30.0))
    with pytest.raises(SilicastError, match="a takes 5 ms in one row and 9 ms in another"):
        check_samples(["a", "a", "b"], np.array([5.0, 9.0, 9.0]), (2.0, 30.0))


def test_samples_in_the_wrong_rows_do_not_track() -> None:
    devices, _ = known(10)
    usual = devices @ even_weights(GROUPS)
    assert tracks(devices, GROUPS, usual)
    assert not tracks(devices, GROUPS, 1.0 / usual)
