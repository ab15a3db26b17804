"""The clock that a board's power cap, or a user's limit, holds over a mix of work."""

from __future__ import annotations

import numpy as np

from silicast.composition.machine import Machine
from silicast.kernels.formats import with_format
from silicast.kernels.power import Activity, sustained_clock

TOLERANCE = 0.005
"""A clock this close to boost is boost."""


def held_clock(
    machine: Machine, dtype: str, seconds: float, flops: float, dram_bytes: float
) -> float:
    """The clock held over work that repeats.

    Args:
        dtype: format of its matrix products.
        seconds: what the work takes at the boost clock.
        flops: of the matrix pipe.
        dram_bytes: to and from memory.

    Returns:
        Hertz; the boost clock where nothing limits it.
    """
    device, _ = with_format(machine.limited_device, dtype)
    peak = device.peak_per_s(device.matrix_pipe(dtype), dtype)
    activity = Activity(
        tensor=np.float64(flops / seconds / peak),
        dtype=dtype,
        dram=dram_bytes / seconds / device.dram.bandwidth_bytes_per_s,
    )
    hz = float(sustained_clock(device, activity))
    limit = machine.clock_hz
    hz = hz if limit is None else min(hz, limit)
    boost = device.clocks.boost_hz
    return hz if hz < boost * (1.0 - TOLERANCE) else boost
