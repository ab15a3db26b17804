"""What work draws of a board's power limit, by one law for all kinds of work.

    power = idle + (core energy x clock ** (13/8) + memory energy) / time

with the clock relative to the one that the energy is of, at which the work runs while no limit
binds: above a board's rated boost, where it has room there. Energy of an operation goes with the
square of the voltage, which falls with about the 0.81st power of the clock. From a floor down the
voltage stays (docs/explanation/power-and-energy.md). :mod:`.held_clock` finds the clock at which
that is the limit.

A device is in one of three states (:attr:`.Device.power_state`): a "cool" board has just begun, as
where campaigns measure one kernel; a "hot" one has done the same for seconds, as in passes of whole
models; at "boost" no limit binds: whoever mixes kernels asks for their times so, and slows the mix.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar, final

from silicast.core import xp
from silicast.core.errors import SilicastError
from silicast.core.numerics import F64
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.kernels.physics.constants import constants_of, load_physics
from silicast.kernels.physics.formats import computes_in

if TYPE_CHECKING:
    from silicast.kernels.implementation import Analysis

PHYSICS = "power"
HEADROOM = "headroom_share"
"""Constant of products: by what share of the room up to its largest clock a board whose rated boost
is lower (GeForce) runs above it while heat and power allow."""

MIN_CLOCK_SHARE = 0.1
"""No cap slows a board further down: below that, it would not run at all."""
N = TypeVar("N", float, F64)


@final
@dataclass(frozen=True)
class LimitedBoard:
    """What a board's power limit leaves, and what its pipes and memory take of it, watts.

    Attributes:
        limit_w: infinite where none is known.
        idle_w: without activity.
        matrix_w: of the matrix pipe, busy in a format at the largest clock and the voltage of the
            reference; ``fma_w``: of FMA.
        byte_j: energy of a byte of main memory.
        heat_s: duration of a kernel at which a campaign that repeats it is half as hot as for ever.
        floor: share of the reference clock below which voltage falls no further, 0..1.
    """

    limit_w: float
    idle_w: float
    matrix_w: float
    fma_w: float
    byte_j: float
    heat_s: float
    floor: float


@final
@dataclass(frozen=True)
class Draw:
    """Watts of kernels at the reference clock, limit or no limit; arrays of shape (n,).

    Attributes:
        core_w: what goes with the clock and the voltage of the cores.
        memory_w: of main memory.
    """

    core_w: F64
    memory_w: F64


def held(seconds: F64, actions_j: F64, idle_w: float, limit_w: float) -> tuple[F64, F64]:
    """Seconds and joules of kernels under a power limit where each action's energy is known and
    stays: the clock falls and the voltage does not, until the actions' joules come at the rate that
    the limit leaves.

    Args:
        seconds: without the limit, shape (n,).
        actions_j: of the actions alone; ``idle_w``: drawn beside them.
        limit_w: above ``idle_w``; infinite where nothing limits it.

    >>> import numpy as np
    >>> took_s, took_j = held(np.array([1.0, 1.0]), np.array([5.0, 30.0]), 10.0, 20.0)
    >>> took_s.tolist(), took_j.tolist()
    ([1.0, 3.0], [15.0, 60.0])
    """
    took_s: F64 = xp.maximum(seconds, actions_j / (limit_w - idle_w))
    return took_s, actions_j + took_s * idle_w


def power_s(actions_j: F64, idle_w: float, limit_w: float) -> dict[str, F64]:
    """What the limit of :func:`held` alone would need, as a resource; nothing where none is known.

    >>> import numpy as np
    >>> power_s(np.array([30.0]), 10.0, 20.0)["power"].tolist()
    [3.0]
    """
    return {} if math.isinf(limit_w) else {"power": actions_j / (limit_w - idle_w)}


def limits(device: Device) -> bool:
    """Whether a power limit may slow the device in its state."""
    return (
        device.power_cap_w is not None
        and device.execution_model == "simt"
        and device.power_state != "boost"
    )


@lru_cache(maxsize=1024)
def top_hz(device: Device) -> float:
    """The clock that a device has while nothing limits it: what runs quickest on it runs at that
    clock, above the rated boost where the board has room there (:data:`HEADROOM`).

    >>> card = find_device("RTX 4090")
    >>> top_hz(card) > card.clocks.boost_hz, top_hz(card.at_clock(2e9))
    (True, 2000000000.0)
    """
    share = constants_of("gemm", device.architecture).get(HEADROOM, 0.0)
    return device.clocks.with_headroom_hz(share)


@lru_cache(maxsize=1024)
def board(device: Device, dtype: str, clock_hz: float | None = None) -> LimitedBoard:
    """A device's budget for work in a format or recipe.

    Where idle power is not published, a share of the cap stands in.

    Args:
        clock_hz: the reference, of which clocks are shares and which work draws its power at;
            None = :func:`top_hz`.
    """
    constants = load_physics(PHYSICS).constants(device.architecture)
    return board_from(device, dtype, constants, clock_hz)


def board_from(
    device: Device, dtype: str, c: Mapping[str, float], clock_hz: float | None = None
) -> LimitedBoard:
    """:func:`board` under constants that are being fitted."""
    compute = computes_in(device, dtype)
    clock_hz = top_hz(device) if clock_hz is None else clock_hz
    floor_hz = _floor_hz(silicon(device).clocks.boost_hz, c)
    clock = max(clock_hz, floor_hz) / c["reference_hz"]
    fma_w = _full_rate(device) * c["fma_operation_j"] * energy_growth(clock)
    return LimitedBoard(
        limit_w=math.inf if device.power_cap_w is None else device.power_cap_w,
        idle_w=idle_w(device, c["idle_share"]),
        matrix_w=_matrix_w(device, compute, c, clock) or fma_w,
        fma_w=fma_w,
        byte_j=c["dram_byte_j"],
        heat_s=c["campaign_heat_s"],
        floor=min(floor_hz / clock_hz, 1.0),
    )


def idle_w(device: Device, share: float) -> float:
    """What a board draws without work: published, or a share of the limit that it was built for."""
    if device.idle_power_w is not None:
        return device.idle_power_w
    return share * (silicon(device).power_cap_w or device.power_cap_w or 0.0)


def _full_rate(device: Device) -> float:
    """Operations per second of all FMA units at the largest clock, in 32 bits."""
    return device.bound_per_s("fma", "fp32")


def _matrix_w(device: Device, compute: str, c: Mapping[str, float], clock: float) -> float:
    """Of busy matrix units; 0 where there are none for the format."""
    try:
        pipe = device.matrix_pipe(compute)
    except SilicastError:
        return 0.0
    if pipe != "tensor":
        return 0.0
    energy = _operation_j(device, c) * energy_growth(clock)
    relative = c.get(f"relative_energy.{compute}", 1.0)
    return device.bound_per_s(pipe, compute) * energy * relative


def _operation_j(device: Device, c: Mapping[str, float]) -> float:
    """Energy of a 16-bit operation at the reference clock: of the architecture, or what the size of
    its cores suggests.

    Where nothing was measured: operands are fetched once for all that a core computes of them, so
    that wide cores spend less an operation.
    """
    exponent, rate = c.get("rate_exponent", 0.0), device.rate_per_core("tensor", "bf16")
    if exponent <= 0.0 or rate <= 0.0:
        return c["operation_j"]
    return float(c["operation_j"] * (c["reference_rate"] / rate) ** exponent)


def as_built(device: Device) -> Device:
    """The catalog's device of that name, which nobody has limited; else the device itself."""
    try:
        return find_device(device.name)
    except SilicastError:
        return device


@lru_cache(maxsize=1024)
def silicon(device: Device) -> Device:
    """The board of the catalog whose chip a device has, at that board's clocks: the one that its
    description changes, while that keeps the architecture; else :func:`as_built`.
    """
    if device.base:
        board = find_device(device.base)
        same = board.architecture, board.execution_model
        if (device.architecture, device.execution_model) == same:
            return board
    return as_built(device)


@lru_cache(maxsize=512)
def rated_hz(device: Device) -> float:
    """The clock that the law of energy counts for a device: it was fitted on boards at their rated
    boost, so that the clock of a board without a limit counts as that, and others in proportion.
    """
    built = silicon(device)
    return top_hz(device) * (built.clocks.boost_hz / top_hz(built))


@lru_cache(maxsize=512)
def voltage_hz(device: Device) -> float:
    """The clock whose voltage the law of energy counts: not below the floor."""
    constants = load_physics(PHYSICS).constants(device.architecture)
    return max(rated_hz(device), _floor_hz(silicon(device).clocks.boost_hz, constants))


def _floor_hz(boost_hz: float, c: Mapping[str, float]) -> float:
    """The clock below which voltage stays: a share of the board's, or the architecture's own."""
    return max(c["floor_share"] * boost_hz, c.get("floor_hz", 0.0))


def energy_growth(clock: N) -> N:
    """Clock ** 1.625, close to 5/3, by square roots: the same bits on every machine."""
    half: N = xp.sqrt(clock)  # type: ignore[assignment]
    growth: N = clock * half * xp.sqrt(xp.sqrt(half))  # type: ignore[assignment]
    return growth


def drawn(
    analysis: Analysis, dtype: str, device: Device, seconds: F64, clock_hz: float | None = None
) -> Draw:
    """What kernels draw at the reference clock.

    Args:
        analysis: of the kernels on the device.
        dtype: format or recipe of their products.
        seconds: that they take, shape (n,).
        clock_hz: see :func:`board`.
    """
    budget, spent = board(device, dtype, clock_hz), analysis.resource_s
    rate = 1.0 / seconds
    core: F64 = xp.full_like(rate, 0.0)
    for name, watts in (("tensor", budget.matrix_w), ("fma", budget.fma_w)):
        if name in spent:
            core = core + xp.minimum(spent[name] * rate, 1.0) * watts
    moved = analysis.demand.level_bytes.get("dram")
    if moved is None:
        return Draw(core, xp.full_like(rate, 0.0))
    rate = xp.minimum(moved * rate, device.dram.bandwidth_bytes_per_s)
    return Draw(core, rate * budget.byte_j)


def state_log_sd(share: N, device: Device) -> N:
    """Log sd of times upwards: campaigns of different days slow a board further the more its limit
    slows it.
    """
    return load_physics(PHYSICS).constants(device.architecture)["state_spread"] * (1.0 - share)
