"""The clock that a board's power limit allows, by one law for all kinds of work.

    power = idle + core energy / time x clock ** (8/3) + memory energy / time

with the clock relative to the one that the time is of: rate goes with the clock, energy of an
operation with the square of the voltage, which falls with about the 0.83rd power of the clock. From
a floor down the voltage stays, and power of the cores goes with the clock alone
(docs/explanation/power-and-energy.md).

A device is in one of three states (:attr:`.Device.power_state`): a "cool" board has just begun, as
where campaigns measure one kernel; a "hot" one has done the same for seconds, as in passes of whole
models; at "boost" no limit binds: whoever mixes kernels asks for their times so, and slows the mix.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar, final

import numpy as np

from silicast.core import xp
from silicast.core.errors import SilicastError
from silicast.core.numerics import F64
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.kernels.physics.constants import load_physics
from silicast.kernels.physics.formats import computes_in
from silicast.workload.graphs.op import OpBatch

if TYPE_CHECKING:
    from silicast.kernels.implementation import Analysis

PHYSICS = "power"

MIN_CLOCK_SHARE = 0.1
"""No cap slows a board further down: below that, it would not run at all."""
CLOCKS = (*(1.0 - step / 40.0 for step in range(21)), *(0.47 * 0.93**step for step in range(40)))
"""Shares of the boost clock at which work is evaluated: a kernel turns from memory to compute bound
within a few percent.
"""
N = TypeVar("N", float, F64)
_FALLING = tuple(-share for share in CLOCKS)


@final
@dataclass(frozen=True)
class Board:
    """What a board's power limit leaves, and what its pipes and memory take of it, watts.

    Attributes:
        limit_w: infinite where none is known.
        idle_w: without activity.
        matrix_w: of the matrix pipe, busy in a format at the largest clock; ``fma_w``: of FMA.
        byte_j: energy of a byte of main memory.
        heat_s: duration of a kernel at which a campaign that repeats it is half as hot as for ever.
        floor: share of the clock below which voltage falls no further, 0..1.
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
    """Watts of kernels at the clock of the device, limit or no limit; arrays of shape (n,).

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

    >>> took_s, took_j = held(np.array([1.0, 1.0]), np.array([5.0, 30.0]), 10.0, 20.0)
    >>> took_s.tolist(), took_j.tolist()
    ([1.0, 3.0], [15.0, 60.0])
    """
    took_s: F64 = xp.maximum(seconds, actions_j / (limit_w - idle_w))
    return took_s, actions_j + took_s * idle_w


def power_s(actions_j: F64, idle_w: float, limit_w: float) -> dict[str, F64]:
    """What the limit of :func:`held` alone would need, as a resource; nothing where none is known.

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
def board(device: Device, dtype: str) -> Board:
    """A device's budget for work in a format or recipe.

    Where idle power is not published, a share of the cap stands in.
    """
    return board_from(device, dtype, load_physics(PHYSICS).constants(device.architecture))


def board_from(device: Device, dtype: str, c: Mapping[str, float]) -> Board:
    """:func:`board` under constants that are being fitted."""
    compute = computes_in(device, dtype)
    built_hz, own_hz = as_built(device).clocks.boost_hz, device.clocks.boost_hz
    floor_hz = _floor_hz(built_hz, c)
    clock = max(own_hz, floor_hz) / c["reference_hz"]
    fma_w = _full_rate(device) * c["fma_operation_j"] * energy_growth(clock)
    return Board(
        limit_w=math.inf if device.power_cap_w is None else device.power_cap_w,
        idle_w=idle_w(device, c["idle_share"]),
        matrix_w=_matrix_w(device, compute, c, clock) or fma_w,
        fma_w=fma_w,
        byte_j=c["dram_byte_j"],
        heat_s=c["campaign_heat_s"],
        floor=min(floor_hz / own_hz, 1.0),
    )


def idle_w(device: Device, share: float) -> float:
    """What a board draws without work: published, or a share of the limit that it was built for."""
    if device.idle_power_w is not None:
        return device.idle_power_w
    return share * (as_built(device).power_cap_w or device.power_cap_w or 0.0)


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


@lru_cache(maxsize=512)
def voltage_hz(device: Device) -> float:
    """The clock whose voltage the device runs at: its boost clock, but not below the floor."""
    constants = load_physics(PHYSICS).constants(device.architecture)
    floor_hz = _floor_hz(as_built(device).clocks.boost_hz, constants)
    return max(device.clocks.boost_hz, floor_hz)


def _floor_hz(boost_hz: float, c: Mapping[str, float]) -> float:
    """The clock below which voltage stays: a share of the board's, or the architecture's own."""
    return max(c["floor_share"] * boost_hz, c.get("floor_hz", 0.0))


def energy_growth(clock: float) -> float:
    """Clock ** 1.625, close to 5/3, by square roots: the same bits on every machine."""
    half = math.sqrt(clock)
    return clock * half * math.sqrt(math.sqrt(half))


def drawn(analysis: Analysis, dtype: str, device: Device, seconds: F64) -> Draw:
    """What kernels draw at the clock of the device.

    Args:
        analysis: of the kernels at that clock.
        dtype: format or recipe of their products.
        seconds: that they take, shape (n,).
    """
    current, spent = board(device, dtype), analysis.resource_s
    rate = 1.0 / seconds
    core: F64 = xp.full_like(rate, 0.0)
    for name, watts in (("tensor", current.matrix_w), ("fma", current.fma_w)):
        if name in spent:
            core = core + xp.minimum(spent[name] * rate, 1.0) * watts
    moved = analysis.demand.level_bytes.get("dram")
    if moved is None:
        return Draw(core, xp.full_like(rate, 0.0))
    rate = xp.minimum(moved * rate, device.dram.bandwidth_bytes_per_s)
    return Draw(core, rate * current.byte_j)


def clock_share(current: Board, core_w: F64, memory_w: F64) -> F64:
    """The clock that is held over work of this draw for ever, over that which the draw is of.

    Below a tenth no board is slowed.
    """
    busy = xp.maximum(core_w, 1e-9)
    every: F64 = xp.full_like(busy, 1.0)
    if current.limit_w == math.inf:
        return every
    left = (current.limit_w - current.idle_w) - memory_w
    if xp.all_of(left >= busy):
        return every
    ratio = xp.maximum(left, 1e-9) / busy
    quarter = xp.sqrt(xp.sqrt(ratio))  # ratio ** 0.375 undoes clock ** (8/3)
    free = quarter * xp.sqrt(quarter)
    if current.floor > 0.0:  # from the floor down, power is in proportion to the clock
        free = xp.minimum(free, ratio * current.floor ** (-5.0 / 3.0))
    # a slower clock moves fewer bytes too, so that power falls in proportion at the least; half of
    # that clock, so that it decides under a user's limits only: constants were fitted without it
    alike = 0.5 * (current.limit_w - current.idle_w) / (busy + memory_w)
    share: F64 = xp.minimum(xp.maximum(xp.maximum(free, alike), MIN_CLOCK_SHARE), 1.0)
    return share


def held_share(analysis: Analysis, dtype: str, device: Device, seconds: F64) -> F64:
    """:func:`clock_share` of each kernel by itself, in the state of the device.

    A cool board is heated by what it repeats: short kernels are done before it slows down.
    """
    current, draw = board(device, dtype), drawn(analysis, dtype, device, seconds)
    share = clock_share(current, draw.core_w, draw.memory_w)
    if device.power_state == "hot" or xp.all_of(share >= 1.0):
        return share
    heat = seconds / (seconds + current.heat_s)
    held_share: F64 = 1.0 - heat * (1.0 - share)
    return held_share


def state_log_sd(share: N, device: Device) -> N:
    """Log sd of times upwards: campaigns of different days slow a board further the more its limit
    slows it.
    """
    return load_physics(PHYSICS).constants(device.architecture)["state_spread"] * (1.0 - share)


def slowdown(
    batch: OpBatch, device: Device, share: F64, time_s: F64, at: Callable[[OpBatch, Device], F64]
) -> F64:
    """How much longer kernels take at their shares of the clock, at least 1.

    Args:
        share: shape (n,).
        time_s: at the device's clock.
        at: times of some of them on a slower device; asked at the two clocks of :data:`CLOCKS`
            around each share, between which time is a line in one over the clock.
    """
    if not isinstance(share, np.ndarray):
        return _between_clocks(batch, device, share, time_s, at)
    slowdown = np.ones(len(share))
    slow = np.flatnonzero(share < 1.0)
    positions = np.searchsorted(_FALLING, -share[slow], side="right") - 1
    positions = np.minimum(positions, len(CLOCKS) - 2)
    for position in np.unique(positions).tolist():
        rows = slow[positions == position]
        slowdown[rows] = _between_clocks(batch.rows(rows), device, share[rows], time_s[rows], at)
    return slowdown


def _between_clocks(
    batch: OpBatch, device: Device, share: F64, time_s: F64, at: Callable[[OpBatch, Device], F64]
) -> F64:
    """:func:`slowdown` of kernels between the same two clocks."""
    position = place_of(share if not isinstance(share, np.ndarray) else float(share[0]))
    if xp.all_of(share >= 1.0):
        return xp.full_like(time_s, 1.0)
    weight = weight_of(position, share)
    fast = time_s if position == 0 else at(batch, slower(device, position))
    slow = at(batch, slower(device, position + 1))
    between_clocks: F64 = xp.maximum((fast + weight * (slow - fast)) / time_s, 1.0)
    return between_clocks


@lru_cache(maxsize=4096)
def slower(device: Device, index: int) -> Device:
    """The device at a clock of :data:`CLOCKS`, over its own."""
    return device.at_clock(device.clocks.boost_hz * CLOCKS[index]) if index else device


def place_of(share: float) -> int:
    """The faster of the two clocks of :data:`CLOCKS` around a share.

    >>> [CLOCKS[place_of(0.96) + step] for step in (0, 1)]
    [0.975, 0.95]
    """
    return min(bisect_right(_FALLING, -share) - 1, len(CLOCKS) - 2)


def weight_of(index: int, share: F64) -> F64:
    """How far a share is on the way to the slower of two clocks, in one over the clock."""
    high, low = 1.0 / CLOCKS[index], 1.0 / CLOCKS[index + 1]
    return (1.0 / share - high) / (low - high)
