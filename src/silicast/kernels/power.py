"""The clock that a board's power cap can hold: energy per operation, V-f law, heating.

Power = idle + energy per operation x rate x (clock / reference) ** 5/3 + energy per byte x rate.
The exponent is the square of the voltage, which falls with roughly the 0.83rd power of the clock
in the upper range; with the rate itself, core power goes as clock ** 8/3
(docs/explanation/power-and-energy.md). Below a floor the voltage stays, and core power goes as the
clock alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np

from silicast.core import xp
from silicast.core.dtypes import recipe_for
from silicast.core.errors import SilicastError
from silicast.core.numerics import F64
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.kernels.physics import load_physics

PHYSICS = "power"

MIN_CLOCK_SHARE = 0.1
"""No cap slows a board further down: below that, it would not run at all."""


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


@final
@dataclass(frozen=True)
class Budget:
    """Where a board's watts go, at its boost clock and full activity.

    Attributes:
        cap_w: the power limit; infinite where none is published.
        idle_w: without activity.
        dram_w: of main memory at its datasheet bandwidth.
        core_w: of the cores at the peak rate of the format.
        heat_s: duration of a kernel at which a measurement campaign is half as hot as for ever.
        floor: share of the boost clock below which voltage falls no further, 0..1.
    """

    cap_w: float
    idle_w: float
    dram_w: float
    core_w: float
    heat_s: float
    floor: float = 0.0


@lru_cache(maxsize=512)
def budget(device: Device, dtype: str) -> Budget:
    """The budget of one board for operations in one format.

    Where idle power is not published, a share of the cap stands in.
    """
    return budget_from(device, dtype, load_physics(PHYSICS).constants(device.architecture))


def budget_from(device: Device, dtype: str, c: Mapping[str, float]) -> Budget:
    """:func:`budget` under constants that are being fitted."""
    compute = recipe_for(dtype).compute
    relative = c.get(f"relative_energy.{compute}", 1.0)
    floor_hz = c.get("floor_hz", 0.0)
    energy = _operation_j(device, c, floor_hz) * relative
    cap = math.inf if device.power_cap_w is None else device.power_cap_w
    idle = device.idle_power_w
    if idle is None:
        idle = c["idle_share"] * (device.power_cap_w or 0.0)
    return Budget(
        cap_w=cap, idle_w=idle, dram_w=device.dram.bandwidth_bytes_per_s * c["dram_byte_j"],
        core_w=device.peak_per_s(device.matrix_pipe(compute), compute) * energy,
        heat_s=c["campaign_heat_s"], floor=min(floor_hz / device.clocks.boost_hz, 1.0),
    )  # fmt: skip


def _operation_j(device: Device, c: Mapping[str, float], floor_hz: float) -> float:
    """Energy of a 16-bit operation: of the architecture, or what the size of its cores suggests.

    Where nothing was measured: operands are fetched once for all that a core computes of them, so
    that wide cores spend less an operation.
    """
    clock = max(device.clocks.boost_hz, floor_hz) / c["reference_hz"]
    energy = c["operation_j"] * energy_growth(clock)
    exponent, rate = c.get("rate_exponent", 0.0), device.rate_per_core("tensor", "bf16")
    if exponent <= 0.0 or rate <= 0.0:
        return energy
    return float(energy * (c["reference_rate"] / rate) ** exponent)


def as_built(device: Device) -> Device:
    """The catalog's device of that name, which nobody has limited; else the device itself."""
    try:
        return find_device(device.name)
    except SilicastError:
        return device


@lru_cache(maxsize=512)
def voltage_hz(device: Device) -> float:
    """The clock whose voltage the device runs at: its boost clock, but not below the floor."""
    constants = load_physics(PHYSICS).constants(device.architecture)
    return max(device.clocks.boost_hz, constants.get("floor_hz", 0.0))


def energy_growth(clock: float) -> float:
    """Clock ** 1.625, close to 5/3, by square roots: the same bits on every machine."""
    half = math.sqrt(clock)
    return clock * half * math.sqrt(math.sqrt(half))


def board_power(device: Device, activity: Activity) -> F64:
    """Watts that ``activity`` would draw at the boost clock, cap or no cap."""
    watts = budget(device, activity.dtype)
    tensor = np.asarray(activity.tensor, dtype=np.float64)
    return watts.idle_w + activity.dram * watts.dram_w + tensor * watts.core_w


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
    return share_within(budget(device, activity.dtype), activity, power_w=power_w)


def share_within(watts: Budget, activity: Activity, *, power_w: float | None = None) -> F64:
    """:func:`clock_share` of a board with the budget ``watts``."""
    cap = watts.cap_w if power_w is None else min(watts.cap_w, power_w)
    busy = xp.maximum(activity.tensor * watts.core_w, 1e-9)
    every: F64 = xp.full_like(busy, 1.0)
    if cap == math.inf:
        return every
    left = (cap - watts.idle_w) - activity.dram * watts.dram_w
    if xp.all_of(left >= busy):
        return every
    ratio = xp.maximum(left, 1e-9) / busy
    quarter = xp.sqrt(xp.sqrt(ratio))  # ratio ** 0.375 undoes clock ** (8/3)
    free = quarter * xp.sqrt(quarter)
    if watts.floor > 0.0:  # from the floor down, power is in proportion to the clock
        free = xp.minimum(free, ratio * watts.floor ** (-5.0 / 3.0))
    share: F64 = xp.minimum(xp.maximum(free, MIN_CLOCK_SHARE), 1.0)
    return share


def campaign_clock_share(device: Device, activity: Activity, seconds: F64) -> F64:
    """Clock over boost while one kernel is measured: short ones finish before the board is hot.

    Args:
        device: the board.
        activity: of the kernel at the boost clock.
        seconds: duration of one kernel.
    """
    share = clock_share(device, activity)
    if xp.all_of(share >= 1.0):
        return share
    heat = seconds / (seconds + budget(device, activity.dtype).heat_s)
    return 1.0 - heat * (1.0 - share)
