"""The predicted time of one kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from msgspec import Struct

from silicast.core import xp
from silicast.core.numerics import F64
from silicast.core.prediction import Domain, Quantity, Tier
from silicast.hardware.device import Device
from silicast.kernels.implementation import KernelTimes
from silicast.kernels.limits import Also
from silicast.workload.graphs.op import Op


@final
class KernelTime(Struct, frozen=True):
    """The predicted time of one op; seconds. See :class:`~.implementation.KernelTimes`.

    Attributes:
        energy_j: energy of one call, None where the device has no power model.
        ceiling_s: what the quick kernels of such problems reached, None = not known or not asked.
        waves: rounds of work that the device's cores go through; a fraction is a last, idle round.
        clock_share: of the device's clock, what its power limit leaves.
        memory_s: what memory needs for the bytes that the model expects it to move; the bound
            counts only those that no cache could keep.
        also_bound_by: see :func:`~silicast.kernels.limits.also_bound_by`.
        power_measured: power of kernels was measured on the device's architecture.
    """

    op: Op
    estimate_s: float
    p05_s: float
    p95_s: float
    bound_s: float
    bound_by: str
    shared_log_sd: Mapping[str, float]
    independent_log_sd: float
    tier: Tier
    choice: str = ""
    warnings: tuple[str, ...] = ()
    domain: Domain = "in"
    measured: bool = True
    energy_j: Quantity | None = None
    power_measured: bool = True
    ceiling_s: float | None = None
    waves: float = 0.0
    clock_share: float = 1.0
    memory_s: float = 0.0
    also_bound_by: Also = ()


def memory_s(times: KernelTimes, device: Device) -> F64:
    """:attr:`KernelTime.memory_s` of each row, seconds, (n,); 0 where no bytes are counted."""
    moved = times.analysis.demand.level_bytes.get("dram")
    if moved is None:
        return xp.full_like(times.estimate_s, 0.0)
    return xp.minimum(moved / device.dram.bandwidth_bytes_per_s, times.estimate_s)
