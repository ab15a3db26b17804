"""Board power and energy of kernels: static power, and energy for every action.

    power = static + activity x (sum of rate x energy of each action + busy cores x core power)

Actions are matrix operations by format, bytes of main memory and of L2, and transcendentals; a busy
core also draws power by itself (clocks, schedulers, registers). ``activity`` is of the kernel: how
much its data toggle and what its counts leave out. Actions of the cores grow with the clock as the
clock law has it (:mod:`silicast.kernels.physics.power`); nothing exceeds the board's power limit.
docs/explanation/power-and-energy.md explains it and says how well it does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np

from silicast.core import xp
from silicast.core.dtypes import BITS, RECIPES
from silicast.core.numerics import F64, exp_fixed
from silicast.core.prediction import Z90, Quantity
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.kernels.physics.constants import load_physics
from silicast.kernels.physics.formats import computes_in
from silicast.kernels.physics.power import board as limited_board
from silicast.kernels.physics.power import energy_growth, rated_hz, silicon, voltage_hz
from silicast.kernels.row_devices import RowDevices
from silicast.workload.graphs.op import OpBatch, Variant

if TYPE_CHECKING:
    from silicast.kernels.implementation import Analysis, KernelTimes

PHYSICS = "energy"
UNMEASURED = (
    "no measured power of architecture {}: energy per action scaled from other boards by its "
    "power limit"
)
NOMINAL = {"tensor": 0.7, "dram": 0.2}
"""Use of the matrix units and of main memory by large products, all cores busy."""


@final
@dataclass(frozen=True)
class Energies:
    """What power is made of on one device for one variant of a family; watts and joules.

    Attributes:
        limit_w: what the device reaches under its limit, infinite where nothing limits it.
        static_w: while it runs nothing but launches.
        core_w: of all cores busy with nothing else.
        operation_j, simple_j, special_j: of an operation of the matrix units, of the vector units
            (0 = part of ``core_w``), and of a transcendental.
        main_byte_j, chip_byte_j: of a byte of main and of on-chip memory.
        activity: factor on all but ``static_w``.
        log_sd: error of power before the limit.
        measured: the device's file states it, or power of kernels of this very architecture was
            measured.
    """

    limit_w: float
    static_w: float
    operation_j: float
    special_j: float
    main_byte_j: float
    chip_byte_j: float
    log_sd: float
    simple_j: float = 0.0
    core_w: float = 0.0
    activity: float = 1.0
    measured: bool = True

    @cached_property
    def spread(self) -> float:
        """Factor between power before the limit and either end of its 90 % interval."""
        return float(exp_fixed(np.array([Z90 * self.log_sd]))[0])


@final
@dataclass(frozen=True)
class Actions:
    """Actions of one call of each kernel of a batch; arrays of shape (n,).

    Attributes:
        operations: useful operations of the matrix units, or of the pipe that stands in for them.
        dram_bytes, l2_bytes: moved through each memory.
        special: transcendentals.
        busy: share of the cores that have a thread block.
    """

    operations: F64
    dram_bytes: F64
    l2_bytes: F64
    special: F64
    busy: F64


@final
@dataclass(frozen=True)
class KernelEnergy:
    """Energy of one call of each kernel of a batch, joules, and mean board power, watts; (n,).

    ``p05_j <= estimate_j <= p95_j`` and never above the board's limit x time.
    """

    estimate_j: F64
    p05_j: F64
    p95_j: F64
    power_w: F64
    measured: bool

    def quantities(self) -> list[Quantity]:
        """Energy of each row, joules."""
        columns = (xp.tolist(x) for x in (self.estimate_j, self.p05_j, self.p95_j))
        return [Quantity(*row) for row in zip(*columns, strict=True)]


def applies_to(device: Device) -> bool:
    """Whether there is a power model: of GPUs whose power limit is known."""
    return device.execution_model == "simt" and device.power_cap_w is not None


def kernel_energy(times: KernelTimes, batch: OpBatch, device: Device) -> KernelEnergy | None:
    """Energy of kernels whose times are known; None where there is no power model.

    Power and time err together: a kernel that takes longer than expected draws less power for the
    same work, unless the board is at its limit.
    """
    counted = times.analysis.energy_j
    if counted is not None:
        return _counted(counted, times, device)
    if not applies_to(device):
        return None
    energy = energies(device, batch.family, batch.variant)
    work = actions(times.analysis, batch.variant, device)
    seconds = (times.estimate_s, times.p05_s, times.p95_s)
    estimate, p05, p95, power = _interval(energy, work, seconds, device)
    return KernelEnergy(estimate, p05, p95, power, energy.measured)


def above_static_j(times: KernelTimes, batch: OpBatch, device: Device) -> F64 | None:
    """Joules of kernels beyond what the board draws while it waits, shape (n,), without the
    interval of :func:`kernel_energy`; None where there is no power model. As if the board had no
    limit: its limit is on the mean of what runs, see :func:`most_above_static_w`.
    """
    counted = times.analysis.energy_j
    if counted is not None:
        above: F64 = counted - waiting_w(device) * times.analysis.time_s
        return above
    if not applies_to(device):
        return None
    energy = energies(device, batch.family, batch.variant)
    return _above_static_j(times, batch, energy, device, _cache_per_s(device))


def above_static_at(times: KernelTimes, batch: OpBatch, devices: RowDevices) -> F64 | None:
    """:func:`above_static_j` of rows with a clock each."""
    device = devices.devices[0]
    if not applies_to(device):
        return None
    energy = energies_at(devices, batch.family, batch.variant)
    return _above_static_j(times, batch, energy, device, devices.beside(_cache_per_s))


def _above_static_j(
    times: KernelTimes, batch: OpBatch, energy: Energies, device: Device, cache_per_s: float
) -> F64:
    seconds, work = times.estimate_s, actions(times.analysis, batch.variant, device)
    more = of_operations(silicon(device), batch.family, batch.variant)
    energy = replace(energy, operation_j=energy.operation_j * more)
    free_w = _free_power(energy, work, seconds, device, cache_per_s)
    above_static_j: F64 = free_w * seconds - energy.static_w * seconds
    return above_static_j


def dynamic_w(analysis: Analysis, batch: OpBatch, device: Device, seconds: F64) -> F64:
    """Watts of kernels that take ``seconds``, beyond what the board draws while it waits, as if it
    had no limit; shape (n,).
    """
    energy = energies(device, batch.family, batch.variant)
    work = actions(analysis, batch.variant, device)
    watts: F64 = free_power(energy, work, seconds, device) - energy.static_w
    return watts


def _counted(joules: F64, times: KernelTimes, device: Device) -> KernelEnergy:
    """Energy that the model counted action by action, of a device whose file says what each takes,
    with what it draws for as long as the kernel is expected to take. Its power limit has made the
    time longer, not the energy less (:func:`~.power.held`).
    """
    estimate = joules + waiting_w(device) * (times.estimate_s - times.analysis.time_s)
    spread = math.exp(Z90 * times.analysis.energy_log_sd)
    return KernelEnergy(
        estimate, estimate / spread, estimate * spread, estimate / times.estimate_s, measured=True
    )


_PLAIN = Variant("fp32")
"""What a board draws whatever it runs is the same in every format."""


def states_energy(device: Device) -> bool:
    """Whether energy can be answered: by a power model, or because the device's file states it."""
    return applies_to(device) or (device.structure is not None and device.structure.states_energy)


def waiting_w(device: Device) -> float:
    """What a device draws while it waits, watts."""
    if device.structure is not None:
        return device.idle_power_w or 0.0
    return energies(device, "gemm", _PLAIN).static_w


def cores_w(device: Device) -> float:
    """What all cores draw by being busy, beyond what the board draws while it waits, watts: as
    thread blocks do that wait for other devices. 0 where there is no power model.
    """
    return energies(device, "gemm", _PLAIN).core_w if applies_to(device) else 0.0


def most_w(device: Device) -> float:
    """What a device draws at most, watts; infinite where nothing limits it."""
    if device.structure is not None:
        return math.inf if device.power_cap_w is None else device.power_cap_w
    return energies(device, "gemm", _PLAIN).limit_w


def most_above_static_w(device: Device) -> float:
    """What kernels that follow each other draw at most on average, beyond what the board draws
    while it waits, watts; infinite where nothing limits it.
    """
    return most_w(device) - waiting_w(device) if applies_to(device) else math.inf


def model_log_sd(device: Device, waiting_share: float) -> float:
    """Error of energies of whole runs: what kernels of a board, library and family err by together,
    as that of each by itself averages out over a run; more where no kernel's power was measured,
    and where the power of this very board while it waits was not.

    Args:
        waiting_share: of the power, what the device draws while it waits.
    """
    if device.structure is not None:
        return device.structure.energy_log_sd
    physics = load_physics(PHYSICS)
    c = physics.constants(device.architecture)
    log_sd = c["run_log_sd"]
    if not physics.is_measured(device.architecture):
        log_sd = max(log_sd, c["unmeasured_run_log_sd"])
    if f"static_w.{silicon(device).name}" in c:
        return log_sd
    return math.hypot(log_sd, min(waiting_share, 1.0) * _waiting_log_sd())


@lru_cache(maxsize=1)
def _waiting_log_sd() -> float:
    """How much measured boards differ in the share of their limit that they wait with."""
    shares = []
    for constants in load_physics(PHYSICS).architectures.values():
        for name, watts in sorted(constants.items()):
            board = name.removeprefix("static_w.")
            if board != name:
                shares.append(math.log(watts / (find_device(board).power_cap_w or watts)))
    middle = math.fsum(shares) / len(shares)
    return math.sqrt(math.fsum((x - middle) ** 2 for x in shares) / (len(shares) - 1))


def _interval(energy: Energies, work: Actions, times: Sequence[F64], device: Device) -> list[F64]:
    """Energy, its quantiles and power; ``times`` are the estimate and its quantiles."""
    seconds, p05_s, p95_s = times
    free = free_power(energy, work, seconds, device)
    power = xp.minimum(free, energy.limit_w)
    # a board that nobody measured may stay below a limit that the estimate is far above
    watts = free if energy.measured else power
    low = power / xp.minimum(xp.maximum(watts / energy.spread, energy.static_w), energy.limit_w)
    high = xp.minimum(free * energy.spread, energy.limit_w) / power
    # at fixed work the static part alone grows with time; at the limit all of it does
    slope = xp.maximum(energy.static_w / free, 1.0 * (free >= energy.limit_w))
    shorter = _joint(low - 1.0, slope * (seconds / p05_s - 1.0))
    longer = _joint(high - 1.0, slope * (p95_s / seconds - 1.0))
    estimate = power * seconds
    lowest, highest = energy.static_w * p05_s, energy.limit_w * p95_s
    return [
        estimate,
        xp.minimum(xp.maximum(estimate / (1.0 + shorter), lowest), estimate),
        xp.maximum(xp.minimum(estimate * (1.0 + longer), highest), estimate),
        power,
    ]


def _joint(one: F64, other: F64) -> F64:
    """Two relative distances from the middle that are independent of each other."""
    joint: F64 = xp.sqrt(one * one + other * other)
    return joint


def free_power(energy: Energies, work: Actions, seconds: F64, device: Device) -> F64:
    """Watts of kernels that take ``seconds``, as if the board had no limit; shape (n,)."""
    return _free_power(energy, work, seconds, device, _cache_per_s(device))


def _cache_per_s(device: Device) -> float:
    """What the memory on the chip moves, bytes per second; 0 = not known, or there is none."""
    cache = device.l2 if device.execution_model == "simt" else device.memory.get("l2")
    return 0.0 if cache is None else cache.bandwidth_bytes_per_s


def _free_power(
    energy: Energies, work: Actions, seconds: F64, device: Device, cache_per_s: float
) -> F64:
    rate = 1.0 / seconds
    dram = xp.minimum(work.dram_bytes * rate, device.dram.bandwidth_bytes_per_s)
    dynamic = work.operations * rate * energy.operation_j + dram * energy.main_byte_j
    if xp.all_of(cache_per_s > 0.0):
        l2 = xp.minimum(work.l2_bytes * rate, cache_per_s)
        dynamic = dynamic + l2 * energy.chip_byte_j
    dynamic = dynamic + work.special * rate * energy.special_j + work.busy * energy.core_w
    return energy.static_w + energy.activity * dynamic


def actions(analysis: Analysis, variant: Variant, device: Device) -> Actions:
    """What a family's analysis says that its kernels do."""
    demand, resource_s = analysis.demand, analysis.resource_s
    zero = xp.full_like(analysis.time_s, 0.0)
    pipe, compute = _matrix(device, variant)
    spent = resource_s.get("tensor", resource_s.get("fma", zero))
    return Actions(
        operations=spent * device.bound_per_s(pipe, compute),
        dram_bytes=demand.level_bytes.get("dram", zero),
        l2_bytes=demand.level_bytes.get("l2", zero),
        special=demand.pipe_work.get("xu", zero),
        busy=xp.minimum(demand.tasks * (1.0 / device.cores), 1.0),
    )


@lru_cache(maxsize=512)
def _matrix(device: Device, variant: Variant) -> tuple[str, str]:
    """The pipe and format that stand for a variant's products; the device's widest if it has not
    the variant's own.
    """
    for name in (computes_in(device, variant.dtype), "bf16", "fp16", "fp32"):
        for pipe in ("tensor", "fma"):
            if device.rate_per_core(pipe, name) > 0.0:
                return pipe, name
    return "fma", "fp32"


@lru_cache(maxsize=1024)
def energies(device: Device, family: str, variant: Variant) -> Energies:
    """The energies of one board for one variant, under the shipped constants.

    Raises:
        ValueError: the device's power limit is not known.
    """
    physics = load_physics(PHYSICS)
    constants = physics.constants(device.architecture)
    measured = physics.is_measured(device.architecture)
    active = _shipped_activity(_of_any_clock(device), family, variant)
    return energies_from(device, family, variant, constants, measured=measured, active=active)


def _of_any_clock(device: Device) -> Device:
    """A device with the same units, the same one whatever the clock."""
    built = silicon(device)
    same = built.compute is device.compute and built.architecture == device.architecture
    return built if same and built.structure is device.structure else device


@lru_cache(maxsize=1024)
def _shipped_activity(device: Device, family: str, variant: Variant) -> float:
    """:func:`activity` under the shipped constants; no clock changes it."""
    physics = load_physics(PHYSICS)
    measured = physics.is_measured(device.architecture)
    constants = physics.constants(device.architecture)
    return activity(family, variant, constants, measured_on=device if measured else None)


def energies_at(devices: RowDevices, family: str, variant: Variant) -> Energies:
    """:func:`energies` of rows with a clock each: columns of those that differ."""
    first, physics = devices.devices[0], load_physics(PHYSICS)
    if not physics.is_measured(first.architecture):
        return devices.beside(lambda clocked: energies(clocked, family, variant))
    at = ClockedEnergy(*(column[devices.row] for column in _clocked(devices.devices)))
    constants = physics.constants(first.architecture)
    active = _shipped_activity(_of_any_clock(first), family, variant)
    return energies_from(first, family, variant, constants, measured=True, at=at, active=active)


@final
class ClockedEnergy(NamedTuple):
    """What the clock changes of a board's energies; numbers, or columns of rows with a clock each.

    Attributes:
        growth: factor on the energy of an action; rated_hz: see :func:`~.power.rated_hz`.
    """

    growth: Any
    rated_hz: Any

    @staticmethod
    def from_device(device: Device, c: Mapping[str, float]) -> ClockedEnergy:
        growth = energy_growth(voltage_hz(device) / c["reference_hz"])
        return ClockedEnergy(growth, rated_hz(device))


@lru_cache(maxsize=64)
def _clocked(devices: tuple[Device, ...]) -> tuple[F64, F64]:
    """:class:`ClockedEnergy` of each device, two arrays; families share it."""
    c = load_physics(PHYSICS).constants(devices[0].architecture)
    growth, rated = zip(*(ClockedEnergy.from_device(device, c) for device in devices), strict=True)
    return np.array(growth), np.array(rated)


def energies_from(
    device: Device,
    family: str,
    variant: Variant,
    c: Mapping[str, float],
    *,
    measured: bool,
    at: ClockedEnergy | None = None,
    active: float | None = None,
) -> Energies:
    """:func:`energies` under constants that are being fitted.

    Args:
        at: of rows with a clock each; None = at the device's clock.
        active: as of :func:`activity`, where it is known.
    """
    if device.power_cap_w is None:
        raise ValueError(f"no power limit of {device.name} is known")
    pipe, compute = _matrix(device, variant)
    at = at or ClockedEnergy.from_device(device, c)
    board = board_w(device, c, at)
    scale = 1.0 if measured else _scale(device, c)
    relative = c.get(f"relative_energy.{compute}", 1.0)
    if pipe == "fma":
        relative = c.get(f"relative_energy.fma.{compute}", relative)
    growth = scale * at.growth
    if active is None:
        active = activity(family, variant, c, measured_on=device if measured else None)
    log_sd = c.get(f"log_sd.{family}", c["log_sd"])
    if not measured:
        log_sd = max(log_sd, c["unmeasured_log_sd"])
    return Energies(
        limit_w=c["limit_share"] * board.cap_w,
        static_w=min(board.static_w, c["limit_share"] * board.cap_w),
        core_w=board.core_w * scale,
        operation_j=c["operation_j"] * relative * growth,
        main_byte_j=dram_byte_j(device, c),
        chip_byte_j=c["l2_byte_j"] * growth,
        special_j=c["special_j"] * growth,
        activity=active,
        log_sd=log_sd,
        measured=measured,
    )


@final
@dataclass(frozen=True)
class BoardPower:
    """Watts of a board: its limit, static, all cores busy, and large 16-bit products beside."""

    cap_w: float
    static_w: float
    core_w: float
    products_w: float


def board_w(device: Device, c: Mapping[str, float], at: ClockedEnergy | None = None) -> BoardPower:
    """Where a board's watts go by energies per action alone, its limit left aside; ``at`` as of
    :func:`energies_from`.
    """
    assert device.power_cap_w is not None
    growth, clock_hz = at or ClockedEnergy.from_device(device, c)
    pipe, compute = _matrix(device, Variant("bf16"))
    relative = c.get(f"relative_energy.fma.{compute}", 1.0) if pipe == "fma" else 1.0
    rate = NOMINAL["tensor"] * device.peak_per_s(pipe, compute)
    built_w = silicon(device).power_cap_w or device.power_cap_w
    static = c.get(f"static_w.{silicon(device).name}", c["static_share"] * built_w)
    return BoardPower(
        cap_w=device.power_cap_w,
        static_w=static,
        core_w=device.cores * clock_hz * c["core_cycle_j"] * growth,
        products_w=rate * c["operation_j"] * relative * growth,
    )


def dram_byte_j(device: Device, c: Mapping[str, float]) -> float:
    """Energy of a byte of main memory: stacked on the package, or over a board's wires."""
    technology = device.dram.technology.upper()
    stacked = technology.startswith("HBM") or not technology
    return c["dram_byte_j"] * (1.0 if stacked else c["board_memory_relative"])


def _scale(device: Device, c: Mapping[str, float]) -> float:
    """Energy of the cores' actions relative to the measured boards'.

    Boards are built so that large matrix products take a certain share of their power limit: what
    the measured boards' products take of theirs, this one's would take of its own. The scale lies
    half-way, in logarithms, between that and the measured boards' energies as they are.
    """
    built = silicon(device)
    built = built if applies_to(built) else device
    board = board_w(built, c)
    memory = NOMINAL["dram"] * built.dram.bandwidth_bytes_per_s * dram_byte_j(built, c)
    room = c["products_share"] * board.cap_w - board.static_w - memory
    return math.sqrt(max(room, 0.1 * board.cap_w) / (board.core_w + board.products_w))


@lru_cache(maxsize=1024)
def of_operations(device: Device, family: str, variant: Variant) -> float:
    """What an operation takes among the kernels of a whole model, over what rows of kernels show.

    Rows of large products are at the board's limit, and what these would draw above it is in none;
    the law of the clock has it, from how far boards slow under them. So an operation takes what
    makes large products draw by this law, cores and static power included, what they draw by that,
    and a board that its limit slows draws the limit.

    Args:
        device: at the clock that it was built for.
    """
    if not applies_to(device):
        return 1.0
    pipe, compute = _matrix(device, variant)
    energy = energies(device, family, variant)
    clocked = limited_board(device, variant.dtype)
    busy_w = NOMINAL["tensor"] * (clocked.matrix_w if pipe == "tensor" else clocked.fma_w)
    cores_only_w = energy.static_w + energy.activity * energy.core_w
    rate = NOMINAL["tensor"] * device.peak_per_s(pipe, compute)
    operation_w = energy.activity * energy.operation_j * rate
    return max((clocked.idle_w + busy_w - cores_only_w) / operation_w, 1.0)


def activity_names(family: str, variant: Variant) -> tuple[str, str, str]:
    """Constants whose product is the activity: of the family, its library, the very kernel."""
    name = (
        f"activity.{family}" if variant.flag("causal", default=True) else f"activity.{family}.full"
    )
    library = f"{name}:{variant.library}"
    return name, library, f"{library}:{variant.kernel}:{_formats(variant)}"


def activity(
    family: str, variant: Variant, c: Mapping[str, float], *, measured_on: Device | None = None
) -> float:
    """Factor of the kernel; what was not measured of it counts as the average does.

    Args:
        measured_on: the board, where power of its architecture's own kernels was measured: a kernel
            of a library without rows counts as the mean of the same kernel of libraries that have
            some; in a format without rows as in those that have weights of as many bits and are
            multiplied alike; one that no library has rows of as the usual one of its family.
    """
    name, library, kernel = activity_names(family, variant)
    of_family = c.get(name, 1.0)
    if library in c or measured_on is None:
        return of_family * c.get(library, 1.0) * c.get(kernel, 1.0)
    dtype, _, cache = _formats(variant).partition("/")
    alike = [x for x in RECIPES if _multiplied(measured_on, x) == _multiplied(measured_on, dtype)]
    of_name = sorted((key, factor) for key, factor in c.items() if key.startswith(f"{name}:"))
    for kernel_name in (variant.kernel, ""):
        for dtypes in ([dtype], alike):
            suffixes = [f":{kernel_name}:{x}{cache and '/'}{cache}" for x in dtypes]
            logs = [
                math.log(c[constant.removesuffix(suffix)] * factor)
                for suffix in suffixes
                for constant, factor in of_name
                if constant.endswith(suffix)
            ]
            if logs:
                return of_family * math.exp(math.fsum(logs) / len(logs))
    return of_family


def _multiplied(device: Device, dtype: str) -> tuple[str, float]:
    """The format that a device multiplies a recipe in, and bits of a weight."""
    recipe = RECIPES.get(dtype)
    return computes_in(device, dtype), BITS[recipe.weights if recipe else dtype]


def _formats(variant: Variant) -> str:
    """Of operands and cache, as rows have them: fp16 and bf16 kernels are the same."""
    dtypes = [x.replace("fp16", "bf16") for x in (variant.dtype, variant.kv_dtype) if x]
    return "/".join(dtypes)
