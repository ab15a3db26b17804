"""The shared model of kernels on devices that are not SIMT: matrix engines and CPUs.

A family states its :class:`RooflineWork`; an execution model states how fast its units do it
(:class:`Rates`). The time is

    t = launch + serial + fresh pages + smooth_max(matrix, vector, special, memory, on-chip)

docs/explanation/execution-models.md derives the terms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

from silicast.core import xp
from silicast.core.numerics import F64, smooth_max
from silicast.hardware.device import Device
from silicast.kernels.implementation import Analysis, Demand, Implementation
from silicast.kernels.physics.constants import load_physics
from silicast.kernels.physics.energy import Energies
from silicast.kernels.physics.power import held, power_s
from silicast.workload.graphs.op import Variant
from silicast.workload.libraries.catalog import library

OPERATIONS_A_BYTE = 2.0
"""Products share out their operations: so many count as a byte of a stream."""

HALF = 0.5
"""Half of a cache is room for one operand's stream, half for what passes it."""

UNCERTAIN_BANDWIDTH = 4.0
"""A bound takes an on-chip bandwidth that is not published as so many times its stand-in."""


@final
@dataclass(frozen=True)
class RooflineWork:
    """What a batch of kernels asks of a device; arrays of shape (n,).

    Attributes:
        matrix_ops: useful operations of matrix products.
        matrix_issued: the same with padding, at the peak rate.
        vector_ops: operations of the vector units, fp32 ones of full rate.
        vector_useful: those of them that no implementation can leave out.
        special_ops: exponentials, reciprocals and the like.
        read_bytes, write_bytes: each operand and result once.
        moved_bytes: what passes between memory and chip if nothing is resident.
        serial_s: what nothing overlaps: fills, synchronisations.
        tasks: pieces that can run at once.
        fresh_bytes: of ``read_bytes`` what every call fetches anew: weights and caches of devices
            whose on-chip memory is filled by software.
        packed_bytes: copied on chip before the units start, which nothing overlaps.
        dram_passes: time at memory over that of a stream of the same bytes.
        blocks: shares of the products that one unit each makes; None = any split is even.
        pieces: no more units than these compute; None = all that are awake.
    """

    matrix_ops: F64
    matrix_issued: F64
    vector_ops: F64
    vector_useful: F64
    special_ops: F64
    read_bytes: F64
    write_bytes: F64
    moved_bytes: F64
    serial_s: F64
    tasks: F64
    fresh_bytes: F64 | float = 0.0
    packed_bytes: F64 | float = 0.0
    dram_passes: F64 | float = 1.0
    blocks: F64 | None = None
    pieces: F64 | None = None


@final
@dataclass(frozen=True)
class Rates:
    """A device's units as kernels of one group reach them; SI units.

    Attributes:
        pipe: the unit that multiplies matrices, "tensor" or "fma".
        matrix_per_s, vector_per_s, special_per_s: sustained operations per second.
        dram_per_s, chip_per_s: sustained bytes per second of memory and on-chip memory.
        *_bound_per_s: the largest rates, for bounds.
        chip_bytes: capacity of all on-chip memory.
        resident_bytes: working sets up to this size stay on chip from call to call.
        units: what runs pieces of work independently: arrays, cores.
        memory_units: so many take all that memory and caches give.
        launch_s: a kernel that does nothing; stream_launch_s: and one that is launched alone.
        levels: (bytes, sustained bytes per second) of each cache, the smallest first; () = one
            on-chip memory, at ``chip_per_s``.
        fresh_from_bytes: results of libraries that allocate them are from this size on given new
            memory in every call, at fresh_s_per_byte for the operating system to map and clear it.
        energies: of their actions; None = not stated.
        thread_bytes: operands and results that a further unit is woken for, 0 = all always run;
            fork_s: for waking them and waiting for the last.
        operations: (kind, vector operations of an element) of elementwise kinds as a library of
            the device was compiled; others are as the kind says.
    """

    pipe: str
    matrix_per_s: float
    matrix_bound_per_s: float
    vector_per_s: float
    vector_bound_per_s: float
    special_per_s: float
    dram_per_s: float
    dram_bound_per_s: float
    chip_per_s: float
    chip_bound_per_s: float
    chip_bytes: float
    resident_bytes: float
    units: float
    launch_s: float
    stream_launch_s: float
    independent_log_sd: float
    levels: tuple[tuple[float, float], ...] = ()
    fresh_from_bytes: float = math.inf
    fresh_s_per_byte: float = 0.0
    thread_bytes: float = 0.0
    fork_s: float = 0.0
    energies: Energies | None = None
    operations: tuple[tuple[str, float], ...] = ()
    memory_units: float = 1.0

    @staticmethod
    def from_device(device: Device, dtype: str, c: Mapping[str, float], units: float) -> Rates:
        """The rates of ``device`` for products in ``dtype`` under constants ``c``.

        Raises:
            SilicastError: the device does not multiply in ``dtype``.
        """
        pipe = device.matrix_pipe(dtype)
        vector = _vector_dtype(device)
        chip_bytes, chip_per_s, published = on_chip(device)
        return Rates(
            pipe=pipe,
            matrix_per_s=device.peak_per_s(pipe, dtype) * c["matrix_efficiency"],
            matrix_bound_per_s=device.bound_per_s(pipe, dtype),
            vector_per_s=device.peak_per_s("fma", vector) * c["vector_efficiency"],
            vector_bound_per_s=_widest(device),
            special_per_s=device.peak_per_s("xu", "fp32") * c["special_efficiency"],
            dram_per_s=device.dram.bandwidth_bytes_per_s * c["dram_efficiency"],
            dram_bound_per_s=device.dram.bandwidth_bytes_per_s,
            chip_per_s=chip_per_s * c["chip_efficiency"],
            chip_bound_per_s=chip_per_s * (1.0 if published else UNCERTAIN_BANDWIDTH),
            chip_bytes=chip_bytes,
            resident_bytes=chip_bytes * c["resident_share"],
            units=units,
            launch_s=c["launch_s"],
            stream_launch_s=c["stream_launch_s"],
            independent_log_sd=c["independent_log_sd"],
        )


def _vector_dtype(device: Device) -> str:
    return "fp32" if device.rate_per_core("fma", "fp32") > 0.0 else "bf16"


def _widest(device: Device) -> float:
    """Vector operations per second in the fastest format: no vector code is faster."""
    fma = device.core.pipes.get("fma")
    best = max(fma.rate.values()) if fma else 0.0
    return best * device.cores * device.clocks.max_hz


def caches(device: Device) -> dict[str, tuple[float, float]]:
    """On-chip memories: name -> bytes and peak bytes per second of all copies together."""
    caches: dict[str, tuple[float, float]] = {}
    for name, level in device.memory.items():
        if name != "dram":
            copies = device.cores if level.scope == "core" else 1
            caches[name] = (level.capacity_bytes * copies, level.peak_bytes_per_s * copies)
    return caches


def on_chip(device: Device) -> tuple[float, float, bool]:
    """Bytes of all on-chip levels, the bandwidth of the fastest, and whether it is published."""
    capacity, fastest, published = 0.0, 0.0, True
    for name, (size, rate) in caches(device).items():
        capacity += size
        if rate > fastest:
            stand_ins = (f"memory.{name}", f"memory.{name}.bandwidth")
            fastest, published = rate, not any(path in device.unknowns for path in stand_ins)
    fastest = fastest or 8.0 * device.dram.bandwidth_bytes_per_s
    return capacity, max(fastest, device.dram.bandwidth_bytes_per_s), published


def analyse_work(work: RooflineWork, rates: Rates, variant: Variant) -> Analysis:
    """The model itself: what ``work`` costs at ``rates``; arrays of shape (n,), seconds."""
    total = work.read_bytes + work.write_bytes
    lasting = total - work.fresh_bytes
    stays = _stays(lasting, rates, variant.cache)
    dram_bytes = xp.maximum(work.moved_bytes - stays * lasting, 0.0)
    chip_s_per_byte = _chip_s_per_byte(total, rates)
    awake = _awake(work, total, rates)
    alone = xp.maximum(rates.memory_units / awake, 1.0)
    working = awake if work.pieces is None else xp.minimum(awake, work.pieces)
    matrix_s = _over(work.matrix_issued, rates.matrix_per_s)
    if work.blocks is not None:  # units that are awake wait for the last block
        matrix_s = matrix_s * (xp.ceil(work.blocks / awake) * awake / work.blocks)
    parts = {
        rates.pipe: matrix_s * (rates.units / working),
        "vector": _over(work.vector_ops, rates.vector_per_s) * (rates.units / working),
        "special": _over(work.special_ops, rates.special_per_s) * (rates.units / working),
        "dram": dram_bytes * work.dram_passes / rates.dram_per_s * alone,
        "chip": work.moved_bytes * chip_s_per_byte * alone,
    }
    fresh_s = xp.full_like(total, 0.0)
    if library(variant.library).allocates_results:
        fresh = work.write_bytes * (work.write_bytes >= rates.fresh_from_bytes)
        fresh_s = fresh * rates.fresh_s_per_byte
    packed_s = work.packed_bytes * chip_s_per_byte
    busy_s = smooth_max(list(parts.values()))
    fork_s = rates.fork_s * (awake > 1.0)
    launch_s = rates.launch_s + (rates.stream_launch_s if variant.launch == "stream" else 0.0)
    serial_s = work.serial_s + packed_s + fork_s
    time_s = launch_s + serial_s + fresh_s + busy_s
    energies, energy_j = rates.energies, None
    spent_s: dict[str, F64] = {}
    if energies is not None:
        actions_j = _actions_j(work, dram_bytes, energies)
        time_s, energy_j = held(time_s, actions_j, energies.static_w, energies.limit_w)
        spent_s = power_s(actions_j, energies.static_w, energies.limit_w)
    resource_s = _bounds(work, total, rates, variant.cache)
    bound_s = xp.full_like(total, 0.0)
    for seconds in resource_s.values():
        bound_s = xp.maximum(bound_s, seconds)
    return Analysis(
        time_s=time_s,
        bound_s=bound_s,
        resource_s={**resource_s, **spent_s, "launch": xp.full_like(total, launch_s)},
        demand=Demand(
            tasks=work.tasks,
            waves=work.tasks / rates.units,
            occupancy=xp.minimum(work.tasks / rates.units, 1.0),
            pipe_work={
                rates.pipe: work.matrix_issued,
                "vector": work.vector_ops,
                "special": work.special_ops,
            },
            level_bytes={"dram": dram_bytes, "chip": work.moved_bytes},
        ),
        features={
            **{f"{name}_share": seconds / time_s for name, seconds in parts.items()},
            "serial_share": serial_s / time_s,
            **({"fresh_share": fresh_s / time_s} if rates.fresh_s_per_byte else {}),
            "resident": stays,
        },
        independent_log_sd=xp.full_like(total, rates.independent_log_sd),
        energy_j=energy_j,
        energy_log_sd=0.0 if energies is None else energies.log_sd,
    )


def _actions_j(work: RooflineWork, dram_bytes: F64, energies: Energies) -> F64:
    """Energy of the actions that were counted."""
    value: F64 = work.matrix_ops * energies.operation_j + work.vector_ops * energies.simple_j
    value = value + work.special_ops * energies.special_j + dram_bytes * energies.main_byte_j
    return value + work.moved_bytes * energies.chip_byte_j


def _awake(work: RooflineWork, total: F64, rates: Rates) -> F64:
    """Units that work: one for each :attr:`Rates.thread_bytes`, at least one. No whole number:
    which size wakes a further one differs by operator and library.
    """
    if rates.thread_bytes <= 0.0:
        return xp.full_like(total, rates.units)
    size = xp.maximum(total, work.matrix_ops / OPERATIONS_A_BYTE)
    awake: F64 = xp.minimum(xp.maximum(size / rates.thread_bytes, 1.0), rates.units)
    return awake


def _stays(total: F64, rates: Rates, cache: str) -> F64:
    """Share of a repeated working set that is still on chip: all of it, fading over an octave."""
    if cache == "cold":
        return xp.full_like(total, 0.0)
    return _within(total, rates.resident_bytes)


def _within(total: F64, size: float) -> F64:
    """Share of a working set that finds room in ``size``: all of it, fading over an octave."""
    share: F64 = xp.minimum(xp.maximum(2.0 - total / max(size, 1.0), 0.0), 1.0)
    return share


def _chip_s_per_byte(total: F64, rates: Rates) -> F64:
    """Seconds a byte at the caches' bandwidth: that of the smallest one that holds all of it."""
    if not rates.levels:
        return xp.full_like(total, 1.0 / rates.chip_per_s)
    chip_s = xp.full_like(total, 1.0 / rates.levels[0][1])
    for (size, rate), (_, beyond) in zip(rates.levels, rates.levels[1:], strict=False):
        slower = max(1.0 / beyond - 1.0 / rate, 0.0)
        chip_s = chip_s + slower * (1.0 - _within(total, HALF * size))
    return chip_s


def _bounds(work: RooflineWork, total: F64, rates: Rates, cache: str) -> dict[str, F64]:
    beyond = xp.maximum(total - rates.chip_bytes, 0.0)
    forced = xp.maximum(work.read_bytes, beyond) if cache == "cold" else beyond
    arithmetic = _over(work.matrix_ops, rates.matrix_bound_per_s)
    vector = _over(work.vector_useful, rates.vector_bound_per_s)
    bounds = {rates.pipe: arithmetic, "vector": vector}
    bounds["dram"] = forced / rates.dram_bound_per_s
    bounds["chip"] = total / rates.chip_bound_per_s
    return bounds


def _over(amount: F64, rate: float) -> F64:
    return amount / rate if rate > 0.0 else xp.full_like(amount, 0.0)


MEASURED_FORMATS = ("bf16",)
"""Formats in which kernels of these devices were measured."""


class RooflineKernel(Implementation):
    """A family on an execution model that is not SIMT.

    Class attributes:
        group: constants file of the execution model.
    """

    group: ClassVar[str]

    def shared_log_sd(self, variant: Variant, device: Device) -> Mapping[str, float]:
        c = load_physics(self.group).constants(device.architecture)
        if device.structure is not None:  # a design: no constants are of it
            known_sd = device.structure.time_log_sd
            source, wide = (
                ("unbuilt", c["unbuilt_log_sd"]) if known_sd is None else ("nest", known_sd)
            )
            return {f"{source}:{device.name}": wide, f"family:{self.family}": c["family_log_sd"]}
        measured = self.is_measured(variant, device)
        return {
            f"device:{device.name}": c["device_log_sd"]
            if measured
            else c["unmeasured_device_log_sd"],
            f"family:{self.family}": c["family_log_sd"],
        }

    @final
    def is_measured(self, variant: Variant, device: Device) -> bool:
        """See :meth:`Implementation.is_measured`: one format was measured, for all families."""
        measured = load_physics(self.group).is_measured(device.architecture)
        return measured and variant.dtype in MEASURED_FORMATS
