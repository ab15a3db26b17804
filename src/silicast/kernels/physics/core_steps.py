"""Times of a board with more or fewer cores than the one that it was made from.

A library chooses its kernel by the number of cores, and may choose one that takes longer on more of
them. A board can leave cores idle: with more of them it takes no longer than with some, and with
fewer not less. So a time lies between those of the counts of :func:`steps` around it, each of
which is held so by the counts between it and the board of the catalog.
"""

from __future__ import annotations

from collections.abc import Callable

from silicast.core import xp
from silicast.core.numerics import F64
from silicast.hardware.device import Device
from silicast.kernels.physics.power import silicon

STEP = 1.25
"""Factor between counts of cores at which work is evaluated."""


def steps(built: int, cores: int) -> list[int]:
    """Counts of cores from those that a board was built with to the first not short of others.

    >>> steps(100, 150), steps(100, 90), steps(100, 100)
    ([100, 125, 156], [100, 80], [100])
    """
    factor = STEP if cores > built else 1.0 / STEP
    counts, exact = [built], float(built)
    while abs(counts[-1] - built) < abs(cores - built):
        exact *= factor
        counts.append(max(round(exact), 1) if counts[-1] > 1 else cores)
    return counts


def held_between(time_s: F64, device: Device, at: Callable[[Device], F64]) -> F64:
    """Times of kernels on a device, shape (n,), no more than with fewer cores and no less than with
    more, as far as :func:`steps` tell; as they are where nobody changed the cores.

    Args:
        at: times of the same kernels on the device with another number of cores.
    """
    built = silicon(device).cores
    if device.execution_model != "simt" or device.cores == built:
        return time_s
    more = device.cores > built
    limit = xp.minimum if more else xp.maximum
    counts = steps(built, device.cores)
    near = far = at(device.with_cores(built))
    for count in counts[1:]:
        near, far = far, limit(far, at(device.with_cores(count)))
    low, high = (far, near) if more else (near, far)
    held_s: F64 = xp.minimum(xp.maximum(time_s, low), high)
    return held_s
