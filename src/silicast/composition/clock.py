"""The clock that a board's power cap, or a user's limit, holds over a mix of work."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

from silicast.composition.machine import Machine
from silicast.core.dtypes import RECIPES
from silicast.hardware.device import Device
from silicast.kernels.formats import with_format
from silicast.kernels.physics import load_physics
from silicast.kernels.power import Activity, sustained_clock

PHYSICS = "frameworks"
TOLERANCE = 0.005
"""A clock this close to boost is boost."""

USUAL_FORMATS = ("bf16", "fp16", "fp32")
_PIPES = ("tensor", "fma")


def busiest_format(machine: Machine, flops: Iterable[tuple[str, float]]) -> str:
    """The format in which most matrix work is computed.

    Args:
        flops: formats or recipes of operations, and the matrix work of each; without any, the first
            usual format that the device computes is taken.
    """
    work: dict[str, float] = {}
    for name, count in flops:
        compute = RECIPES[name].compute if name in RECIPES else name
        work[compute] = work.get(compute, 0.0) + count
    most = max(work, key=lambda name: work[name], default="")
    if most and work[most] > 0.0:
        return most
    device = machine.device
    return next(
        (n for n in USUAL_FORMATS if any(device.rate_per_core(p, n) > 0.0 for p in _PIPES)), "fp32"
    )


def held_clock(
    machine: Machine, dtype: str, seconds: float, flops: float, dram_bytes: float
) -> float:
    """The clock in hertz that is held over work that repeats; boost where nothing limits it.

    Args:
        machine: what it runs on.
        dtype: format of its matrix products.
        seconds: what the work takes at the boost clock.
        flops: of the matrix pipe; ``dram_bytes``: to and from memory.
    """
    device, _ = with_format(machine.limited_device, dtype)
    peak = device.peak_per_s(device.matrix_pipe(dtype), dtype)
    activity = Activity(
        tensor=flops / seconds / peak,
        dtype=dtype,
        dram=dram_bytes / seconds / device.dram.bandwidth_bytes_per_s,
    )
    boost = device.clocks.boost_hz
    hz = min(
        float(sustained_clock(device, activity)),
        math.inf if machine.clock_hz is None else machine.clock_hz,
        power_state(machine.device).clock_share * boost,
    )
    return hz if hz < boost * (1.0 - TOLERANCE) else boost


@final
@dataclass(frozen=True, slots=True)
class PowerState:
    """What is known of a board beyond its cap.

    Attributes:
        clock_share: of the boost clock, between full speed and what a throttled campaign found; 1 =
            none did.
        log_sd: half the distance of the two.
    """

    clock_share: float = 1.0
    log_sd: float = 0.0


def power_state(device: Device) -> PowerState:
    """The state of a device by its name (``catalog/physics/frameworks.json``).

    >>> from silicast.hardware.catalog import find_device
    >>> power_state(find_device("H100-SXM-80GB")).clock_share
    1.0
    """
    own = load_physics(PHYSICS).architectures.get(device.name, {})
    share = own.get("clock_share", 1.0)
    return PowerState(share, -math.log(share) if share < 1.0 else 0.0)
