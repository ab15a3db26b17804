"""Measured collectives: between sizes and numbers of devices, beyond them, through NCCL."""

from __future__ import annotations

import numpy as np
import pytest

from silicast.communication.collective import CollectiveTimes, collective_times
from silicast.core.calibrated import CollectiveCurve
from silicast.hardware.catalog import find_device

H100 = find_device("H100")
SIZES = np.array([1 << 20, 1 << 24, 1 << 28])


def curve(gpus: int, ratio: float, implementation: str = "nccl") -> CollectiveCurve:
    return CollectiveCurve(
        "all_reduce", implementation, "graph", gpus, 1, [1 << 20, 1 << 28], [ratio, ratio], 0.03, 8
    )


def times(gpus: int, *curves: CollectiveCurve, library: str = "nccl") -> CollectiveTimes:
    return collective_times("all_reduce", SIZES, gpus, H100, library, measured=curves)


def ratio(gpus: int, *curves: CollectiveCurve, library: str = "nccl") -> list[float]:
    estimate_s = times(gpus, *curves, library=library).estimate_s
    plain = times(gpus, library=library).estimate_s
    return [float(each) for each in np.log(estimate_s / plain)]


def test_it_comes_to_what_was_measured_with_a_narrower_interval() -> None:
    assert ratio(8, curve(8, 0.3)) == pytest.approx([0.3] * 3)
    result, plain = times(8, curve(8, 0.3)), times(8)
    assert result.tiers() == ["calibrated"] * 3
    assert np.all(result.p95_s / result.p05_s < plain.p95_s / plain.p05_s)
    assert result.shared_log_sd == {}


def test_between_two_numbers_of_devices_both_are_asked() -> None:
    curves = (curve(2, 0.1), curve(8, 0.3))
    assert ratio(4, *curves) == pytest.approx([0.2] * 3)
    assert times(4, *curves).independent_log_sd[0] > 0.03  # they differ
    assert ratio(2, curve(4, 0.1), curve(8, 0.3)) == [0.0] * 3


def test_beyond_the_measured_sizes_it_fades() -> None:
    size = np.array([1 << 28, 1 << 30, 1 << 31, 1 << 32])
    result = collective_times("all_reduce", size, 8, H100, "nccl", measured=[curve(8, 0.3)])
    plain = collective_times("all_reduce", size, 8, H100, "nccl")
    left = np.log(result.estimate_s / plain.estimate_s)
    assert left[0] == pytest.approx(0.3)
    assert 0.0 < left[1] < 0.3
    assert left[2:] == pytest.approx([0.0, 0.0])
    assert result.tiers()[3] == plain.tiers()[3]
    assert result.p05_s[3] <= plain.p05_s[3] * (1 + 1e-9)


def test_large_messages_of_an_engine_are_ncclss_and_small_ones_are_not() -> None:
    small, _, large = ratio(8, curve(8, 0.3), library="vllm")
    assert small == 0.0
    assert large == pytest.approx(0.3)
    assert ratio(8, curve(8, 0.3), curve(8, 0.1, "vllm"), library="vllm") == pytest.approx(
        [0.1] * 3
    )


def test_another_launch_or_op_is_not_changed() -> None:
    plain = collective_times("all_reduce", SIZES, 8, H100, "nccl", "eager")
    result = collective_times(
        "all_reduce", SIZES, 8, H100, "nccl", "eager", measured=[curve(8, 0.3)]
    )
    assert np.array_equal(plain.estimate_s, result.estimate_s)
    other = collective_times("all_gather", SIZES, 8, H100, "nccl", measured=[curve(8, 0.3)])
    assert other.calibrated is None


def test_a_size_has_the_same_bits_alone() -> None:
    whole = times(8, curve(8, 0.3)).estimate_s
    for row, size in enumerate(SIZES):
        alone = collective_times(
            "all_reduce", np.array([size]), 8, H100, "nccl", measured=[curve(8, 0.3)]
        )
        assert alone.estimate_s[0] == whole[row]


def test_no_time_is_below_its_bound() -> None:
    result = times(8, curve(8, -3.0))
    assert np.all(result.bound_s <= result.p05_s)
    assert np.all(result.p05_s <= result.estimate_s)
