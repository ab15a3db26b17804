"""The clock that a board's power cap can hold: energy per operation, V-f law, heating.

Power = idle + energy per operation x rate x (clock / reference) ** 5/3 + energy per byte x rate.
The exponent is the square of the voltage, which falls with roughly the 0.83rd power of the clock
in the upper range; with the rate itself, core power goes as clock ** 8/3
(docs/explanation/gemm.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np

from silicast.core.dtypes import recipe_for
from silicast.core.numerics import F64
from silicast.hardware.device import Device
from silicast.kernels.physics import load_physics

PHYSICS = "power"


@final
@dataclass(frozen=True)
class Activity:
    """How busy a device is, averaged over milliseconds; arrays or numbers that broadcast.

    Attributes:
        tensor: operations per second over the peak at the boost clock, 0..1.
        dtype: format of those operations; narrower ones cost less energy each.
        dram: bytes per second over the datasheet bandwidth, 0..1.
    """

    tensor: F64 | float
    dtype: str = "bf16"
    dram: F64 | float = 0.0


def power_constants(device: Device) -> Mapping[str, float]:
    """Energy constants of the device's architecture."""
    return load_physics(PHYSICS).constants(device.architecture)


def _operation_energy(device: Device, dtype: str, c: Mapping[str, float]) -> float:
    """Joules per operation in ``dtype`` at the device's boost clock."""
    compute = recipe_for(dtype).compute
    relative = c.get(f"relative_energy.{compute}", 1.0)
    clock = device.clocks.boost_hz / c["reference_hz"]
    return c["operation_j"] * relative * float(_five_thirds(np.float64(clock)))


def _five_thirds(x: F64 | np.float64) -> F64 | np.float64:
    """X ** 1.625, with square roots only: close to 5/3 and the same bits on every machine."""
    half = np.sqrt(x)
    eighth = np.sqrt(np.sqrt(half))
    return x * half * eighth


def _three_eighths(x: F64) -> F64:
    """X ** 0.375: undoes clock ** 2.667."""
    quarter = np.sqrt(np.sqrt(x))
    return quarter * np.sqrt(quarter)


def board_power(device: Device, activity: Activity) -> F64:
    """Watts that ``activity`` would draw at the boost clock, cap or no cap.

    Boards whose idle power is not published count a share of their cap.
    """
    c = power_constants(device)
    return _idle_w(device, c) + _dram_w(device, activity, c) + _core_w(device, activity, c)


def sustained_clock(device: Device, activity: Activity, *, power_w: float | None = None) -> F64:
    """The clock in hertz that the power cap allows under ``activity``, at most the boost clock.

    A board without a known cap runs at its boost clock. The clock never falls below a tenth of it.

    Args:
        device: the board; its boost clock is the one that ``activity`` refers to.
        activity: what it does on average over some milliseconds.
        power_w: a cap the user set, if below the board's own.

    >>> from silicast.hardware.catalog import find_device
    >>> h100 = find_device("H100-SXM-80GB")
    >>> idle, busy = sustained_clock(h100, Activity(np.array([0.0, 0.9])))
    >>> bool(idle == h100.clocks.boost_hz and busy < idle)
    True
    """
    return device.clocks.boost_hz * clock_share(device, activity, power_w=power_w)


def clock_share(device: Device, activity: Activity, *, power_w: float | None = None) -> F64:
    """:func:`sustained_clock` over the boost clock."""
    tensor = np.asarray(activity.tensor, dtype=np.float64)
    caps = [cap for cap in (device.power_cap_w, power_w) if cap is not None]
    if not caps:
        return np.ones_like(tensor)
    c = power_constants(device)
    left = min(caps) - _idle_w(device, c) - _dram_w(device, activity, c)
    core = np.maximum(_core_w(device, activity, c), 1e-9)
    share = _three_eighths(np.maximum(left, 1e-9) / core)
    return np.minimum(np.maximum(share, 0.1), 1.0)


def _idle_w(device: Device, c: Mapping[str, float]) -> float:
    if device.idle_power_w is not None:
        return device.idle_power_w
    return c["idle_share"] * (device.power_cap_w or 0.0)


def _dram_w(device: Device, activity: Activity, c: Mapping[str, float]) -> F64:
    share = np.asarray(activity.dram, dtype=np.float64)
    return share * (device.dram.bandwidth_bytes_per_s * c["dram_byte_j"])


def _core_w(device: Device, activity: Activity, c: Mapping[str, float]) -> F64:
    compute = recipe_for(activity.dtype).compute
    peak = device.peak_per_s(device.matrix_pipe(compute), compute)
    energy = _operation_energy(device, activity.dtype, c)
    return np.asarray(activity.tensor, dtype=np.float64) * (peak * energy)


def campaign_clock_share(device: Device, activity: Activity, seconds: F64) -> F64:
    """Clock over boost while one kernel is measured: short ones finish before the board is hot.

    Args:
        device: the board.
        activity: of the kernel at the boost clock.
        seconds: duration of one kernel.
    """
    c = power_constants(device)
    heat = seconds / (seconds + c["campaign_heat_s"])
    return 1.0 - heat * (1.0 - clock_share(device, activity))
