"""The clock that a board's power cap, or a user's limit, holds over a mix of work."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from silicast.composition.machine import Machine
from silicast.composition.power_state import power_state
from silicast.core.dtypes import RECIPES
from silicast.core.numerics import F64
from silicast.kernels.formats import with_format
from silicast.kernels.power import Activity, sustained_clock

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


def held_clocks(machine: Machine, dtype: str, seconds: F64, flops: F64, dram_bytes: F64) -> F64:
    """The clock held over work that repeats, for n kinds of work at once.

    Args:
        machine: what it runs on.
        dtype: format of its matrix products.
        seconds: what the work takes at the boost clock, shape (n,).
        flops: of the matrix pipe, shape (n,).
        dram_bytes: to and from memory, shape (n,).

    Returns:
        Hertz, shape (n,); the boost clock where nothing limits it.
    """
    device, _ = with_format(machine.limited_device, dtype)
    peak = device.peak_per_s(device.matrix_pipe(dtype), dtype)
    activity = Activity(
        tensor=flops / seconds / peak,
        dtype=dtype,
        dram=dram_bytes / seconds / device.dram.bandwidth_bytes_per_s,
    )
    hz = sustained_clock(device, activity)
    if machine.clock_hz is not None:
        hz = np.minimum(hz, machine.clock_hz)
    boost = device.clocks.boost_hz
    hz = np.minimum(hz, power_state(machine.device).clock_share * boost)
    return np.where(hz < boost * (1.0 - TOLERANCE), hz, boost)


def held_clock(
    machine: Machine, dtype: str, seconds: float, flops: float, dram_bytes: float
) -> float:
    """:func:`held_clocks` of one kind of work."""
    one = (np.array([value]) for value in (seconds, flops, dram_bytes))
    return float(held_clocks(machine, dtype, *one)[0])
