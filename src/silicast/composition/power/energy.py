"""Energy of whole work: what its kernels take, and what boards draw while they wait.

    energy = devices x (static power x time + joules of the kernels beyond it)

with the static power of :mod:`silicast.kernels.physics.energy`, which a board draws as long as it
has work,
waits for launches, for the host and for other devices included. Power is that energy over the time,
at most the board's limit. Out of it are hosts, switches and cooling, and devices without work.
"""

from __future__ import annotations

import math
from typing import final

from msgspec import Struct

from silicast.composition.power.clock import drawn, power_w
from silicast.composition.step.machine import Machine
from silicast.core.prediction import Z90, Quantity
from silicast.kernels.physics.energy import model_log_sd, states_energy
from silicast.kernels.physics.power import limits


@final
class WorkEnergy(Struct, frozen=True):
    """What some work takes.

    Attributes:
        energy_j: of all devices.
        power_w: of one device, on average.
    """

    energy_j: Quantity
    power_w: Quantity


def is_modelled(machine: Machine) -> bool:
    """Whether the power of a device is: of GPUs whose limit is known, and of designs whose file
    states what each action takes.
    """
    device = machine.limited_device
    return limits(device) or states_energy(device)


def limit_w(machine: Machine) -> float:
    """What a device draws at most; infinite where nothing limits it."""
    device = machine.limited_device
    return math.inf if device.power_cap_w is None else device.power_cap_w


def work_energy(
    machine: Machine, time_s: Quantity, kernels_j: float, devices: int
) -> WorkEnergy | None:
    """Energy of work and the mean power of a device; None where power is not modelled.

    The model of power and the time err apart: of a longer time the energy has the static share
    more, and the power what is not static less.

    Args:
        time_s: what the work takes on all devices, waiting included.
        kernels_j: what the kernels of one device take beyond what it draws while it waits.
        devices: that do alike.
    """
    if not is_modelled(machine):
        return None
    device, seconds = machine.limited_device, time_s.estimate
    work, idle = drawn(machine, seconds, kernels_j), power_w(machine, seconds, 0.0)
    watts, joules = work.power_w, work.energy_j
    if watts <= 0.0:
        return None
    most = max(limit_w(machine), watts)
    static = min(idle / watts, 1.0)
    spread = math.exp(Z90 * model_log_sd(device, static))
    # factors of either end: of power at the time that was predicted, and of the time
    below, above = min(spread, 1.0 / static if static else math.inf), min(spread, most / watts)
    shorter, longer = time_s.p05 / seconds, time_s.p95 / seconds
    low, high = idle * time_s.p05, most * time_s.p95
    # actions that take more than was counted, under a limit, take longer, and not less
    more = above if device.structure is None else spread
    dynamic = 1.0 - static
    energy_j = Quantity(
        joules,
        min(max(joules / _joint(below, 1.0 / (static * shorter + dynamic)), low), joules),
        max(min(joules * _joint(more, static * longer + dynamic), high), joules),
    )
    mean_w = Quantity(
        watts,
        max(watts / _joint(below, 1.0 / (static + dynamic / longer)), min(idle, watts)),
        min(watts * _joint(above, static + dynamic / shorter), most),
    )
    return WorkEnergy(energy_j.times(devices), mean_w)


def _joint(one: float, other: float) -> float:
    """Two factors of at least 1 that are independent of each other, as one.

    >>> _joint(1.0, 2.0), _joint(1.0, 1.0)
    (2.0, 1.0)
    """
    return math.exp(math.hypot(math.log(one), math.log(other)))


def with_model_error(value: float, log_sd: float, least: float, most: float) -> Quantity:
    """A power or an energy with the error of the model of power: where steps take longer, their
    power falls, and the energy stays about the same.

    Args:
        least: that idle devices draw; ``most``: that power limits allow.
    """
    spread = math.exp(Z90 * log_sd)
    return Quantity(
        value, min(max(value / spread, least), value), max(min(value * spread, most), value)
    )
