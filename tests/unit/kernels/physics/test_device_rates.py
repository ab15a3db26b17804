"""Rates of softmax: what a device states, and what stands in for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.kernels.physics.device_rates import EXPONENTIAL_FMAS, softmax_rates

H100 = find_device("H100-SXM-80GB")


def with_pipes(*names: str) -> Device:
    """An H100 whose cores have these pipes only."""
    pipes = {name: H100.core.pipes[name] for name in names}
    return replace(H100, compute=replace(H100.core, pipes=pipes, count=H100.cores))


def test_as_the_device_states() -> None:
    assert softmax_rates(H100) == (16.0, 256.0)


def test_without_a_unit_for_exponentials() -> None:
    exponentials, fma = softmax_rates(with_pipes("fma", "tensor"))
    assert fma == 256.0
    assert exponentials == fma / (2.0 * EXPONENTIAL_FMAS)


def test_cores_without_arithmetic_are_refused() -> None:
    with pytest.raises(SilicastError, match="arithmetic pipe"):
        softmax_rates(with_pipes("tensor"))
