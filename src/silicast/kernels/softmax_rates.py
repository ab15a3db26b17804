"""What a SIMT core does of softmax in a clock: exponentials, and arithmetic beside them."""

from __future__ import annotations

from silicast.core.errors import SilicastError
from silicast.hardware.device import Device

EXPONENTIAL_FMAS = 8
"""Multiply-adds of an exponential without a unit for it: range reduction and a polynomial of
degree 5 (Muller, Elementary Functions, section 5; FlashAttention-4 does so beside the unit)."""


def softmax_rates(device: Device) -> tuple[float, float]:
    """Exponentials and floating-point operations per clock and core.

    Arithmetic is done in fp32, on cores without it in the format that they have. Where no unit
    for exponentials is stated they are made of multiply-adds, two operations each.

    Raises:
        SilicastError: the device states no arithmetic pipe at all.
    """
    fma = device.rate_per_core("fma", "fp32")
    if fma <= 0.0:
        pipe = device.core.pipes.get("fma")
        fma = max(pipe.rate.values(), default=0.0) if pipe else 0.0
    if fma <= 0.0:
        raise SilicastError(
            f"{device.name} states no rate of its arithmetic pipe",
            field="device.compute.pipes.fma",
            hint="state fp32 operations per clock and core: softmax needs them",
        )
    exponentials = device.rate_per_core("xu", "fp32")
    return exponentials or fma / (2.0 * EXPONENTIAL_FMAS), fma
