"""The clock that one kernel holds under a power limit that the user set."""

from __future__ import annotations

import msgspec
import numpy as np

from silicast.hardware.device import Device
from silicast.kernels.energy import actions, energies, free_power, applies_to
from silicast.kernels.power import MIN_CLOCK_SHARE
from silicast.learning.dispatch import implementation_of
from silicast.learning.tiers import Evidence, kernel_times
from silicast.scenario.schema import LimitsTable
from silicast.workload.op import Op, OpBatch

HALVINGS = 9
"""Steps of the search: the clock is found to a fifth of a percent of its range."""
NOT_MODELLED = "limits.power_w is not modelled on this device: its own clock is assumed"
NOT_HELD = "limits.power_w cannot be held: the slowest clock, {:.0f} MHz, is assumed"


def clock_only(limits: LimitsTable) -> LimitsTable:
    """The limits without the one on power."""
    found: LimitsTable = msgspec.structs.replace(limits, power_w=None)
    return found


def held_device(
    op: Op, board: Device, limited: Device, evidence: Evidence
) -> tuple[Device, float, list[str]]:
    """The device at the largest clock at which a kernel stays within a limit on power.

    Args:
        op: the kernel.
        board: the device without that limit.
        limited: the same with it.
        evidence: what times may rest on.

    Returns:
        The device, the clock that it holds (0 = its own) and warnings.
    """
    cap = limited.power_cap_w
    if cap is None or cap == board.power_cap_w:
        return board, 0.0, []
    if board.power_cap_w is None:  # nothing but the user's limit is known of it
        board = limited
    if not applies_to(board):
        return limited, 0.0, [NOT_MODELLED]
    if _power_w(op, board, evidence, board.clocks.boost_hz) <= cap:
        return board, 0.0, []
    low, high = MIN_CLOCK_SHARE * board.clocks.boost_hz, board.clocks.boost_hz
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        if _power_w(op, board, evidence, middle) <= cap:
            low = middle
        else:
            high = middle
    slowest = board.at_clock(low)
    if low == MIN_CLOCK_SHARE * board.clocks.boost_hz and _power_w(op, board, evidence, low) > cap:
        return slowest, low, [NOT_HELD.format(low / 1e6)]
    return slowest, low, []


def _power_w(op: Op, board: Device, evidence: Evidence, hz: float) -> float:
    """Watts that one kernel draws at a clock, within the board's own limit."""
    device = board if hz == board.clocks.boost_hz else board.at_clock(hz)
    batch = OpBatch.of([op])
    times = kernel_times(implementation_of(op, device), batch, device, evidence)
    own = energies(device, op.family, op.variant)
    work = actions(times.analysis, op.variant, device)
    free = free_power(own, work, times.estimate_s, device)
    return float(np.minimum(free, own.limit_w)[0])
