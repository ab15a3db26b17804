"""What all mapped kernels share: formats, counted products, and the analysis made of counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import ClassVar, final

import numpy as np

from silicast.accelerator.counting.problems import GROUPED, PRODUCT, PRODUCTS, WINDOWS, ProblemShape
from silicast.accelerator.design.architecture import Memory
from silicast.accelerator.design.chip import GROUP, Chip, chip_of
from silicast.accelerator.design.device import main_bytes_per_s
from silicast.accelerator.mapper.refit import Counted, counted, listening
from silicast.accelerator.mapper.stored import stored_templates, template_of
from silicast.accelerator.zeros.density import Densities
from silicast.core import xp
from silicast.core.dtypes import BITS, RECIPES
from silicast.core.errors import SilicastError
from silicast.core.numerics import F64
from silicast.hardware.device import Device
from silicast.kernels.execution_models.fallback_kernels import Fallback
from silicast.kernels.implementation import Analysis, Demand
from silicast.kernels.physics.constants import load_physics
from silicast.kernels.physics.energy import most_w, waiting_w
from silicast.kernels.physics.formats import with_format
from silicast.kernels.physics.power import held, power_s
from silicast.workload.graphs.op import Op, OpBatch, Variant

PICO = 1e-12
REFERENCE = (1024, 1024, 1024)
"""The product whose proven gap stands for what the mapper may leave, where nothing is compiled."""


@final
@dataclass(frozen=True)
class ChipFormat:
    """A number format on a chip.

    Attributes:
        compute: the chip's format in which products are formed; bits: of the words that are mapped.
        shares: of those bits, what weights, inputs and outputs take.
    """

    compute: str
    bits: float
    shares: tuple[float, float, float]

    @property
    def column(self) -> tuple[float, ...]:
        """The shares; () = all of the bits."""
        return () if self.shares == (1.0, 1.0, 1.0) else self.shares


@lru_cache(maxsize=256)
def format_of(device: Device, dtype: str, weights: str = "") -> ChipFormat:
    """How a format or recipe is laid out on a chip.

    Args:
        weights: the stored format of the stationary operand, "" = the recipe's.

    Raises:
        SilicastError: the chip does not multiply in it.
    """
    recipe = RECIPES.get(dtype)
    compute = recipe.compute if recipe else dtype
    device.matrix_pipe(compute)
    sizes = (
        (recipe.weight_bits, recipe.activation_bits, BITS[recipe.output])
        if recipe
        else (BITS[dtype], BITS[dtype], BITS[dtype])
    )
    if weights:
        stored = RECIPES[weights].activation_bits if weights in RECIPES else BITS[weights]
        sizes = (stored, *sizes[1:])
    bits = float(max(sizes[1], sizes[2]))
    return ChipFormat(
        _own_name(chip_of(device), device, compute),
        bits,
        (sizes[0] / bits, sizes[1] / bits, sizes[2] / bits),
    )


def _own_name(chip: Chip, device: Device, compute: str) -> str:
    """The format of the file that ``compute`` runs as: its own, or the one it is computed in."""
    formats = chip.formats
    if compute in formats:
        return compute
    rate = device.rate_per_core("tensor", compute)
    same = [name for name in formats if device.rate_per_core("tensor", name) == rate]
    return next(iter(same), compute)


def products(
    device: Device,
    fmt: ChipFormat,
    b: F64,
    m: F64,
    n: F64,
    k: F64,
    main_shares: F64 | None = None,
    densities: Densities = (),
    weights_each: bool = True,
) -> Counted:
    """Costs of ``b`` products C[m, n] = A[m, k] x B[k, n], each with operands of its own.

    Args:
        b, m, n, k: shape (rows,), or numbers.
        main_shares: (3, rows), of weights, inputs and outputs: see :func:`.refit.counted`.
        densities: of the operands and results; () = they have no zeros.
        weights_each: several products at once multiply weights, too; else they are dense.
    """
    chip = chip_of(device)

    def mapped(b: F64, mnk: tuple[F64, F64, F64], shares: F64 | None, *, several: bool) -> Counted:
        problem, sizes = _problem(chip, b, mnk, several=several)
        product_densities = densities if weights_each or not several else ()
        return counted(
            chip, problem, sizes, fmt.compute, fmt.bits, fmt.column, shares, product_densities
        )

    if m.__class__ is not np.ndarray:
        return mapped(b, (m, n, k), main_shares, several=bool(b > 1.0))
    parts = []
    for several in (False, True):
        rows = np.flatnonzero((b > 1.0) == several)
        if len(rows) == len(m):
            return mapped(b, (m, n, k), main_shares, several=several)
        if len(rows):
            shares = None if main_shares is None else main_shares[:, rows]
            mnk = (m[rows], n[rows], k[rows])
            parts.append((rows, mapped(b[rows], mnk, shares, several=several)))
    return Counted.joined(parts)


def _problem(
    chip: Chip, b: F64, mnk: tuple[F64, F64, F64], *, several: bool
) -> tuple[ProblemShape, list[F64]]:
    """Products all of which are one, or all several; where the rules of a chip are those of
    convolutions, as filters of one.
    """
    m, n, k = mnk
    ones = m / m
    if chip.multiplies:
        problem, sizes = ProblemShape(PRODUCTS if several else PRODUCT), [m, n, k]
    else:
        problem = ProblemShape(GROUPED if several else WINDOWS)
        sizes = [k, n, ones, ones, ones, m, ones]
    return problem, [b, *sizes] if several else sizes


@final
@dataclass(frozen=True)
class ChipDemand:
    """What a batch of kernels asks of a chip, counted; arrays of shape (rows,), or numbers.

    Attributes:
        core_s, main_s: seconds of the chip at its clock, and of main memory's ports.
        unit_s: of the multipliers alone, were none of their cycles lost.
        work_s, march_s, port_s, ramp_s: what ``core_s`` is made of: the multipliers with their
            stalls, loading and filling of systolic arrays besides, the busiest port of the
            memories on the chip, and fills that nothing overlaps.
        loading_s: of systolic arrays, multipliers at work or not.
        level_bytes: memory -> bytes through all its instances.
        main_bytes: to and from main memory.
        joules: of all that was counted, without what the chip draws all the time.
    """

    core_s: F64
    main_s: F64
    unit_s: F64
    work_s: F64
    march_s: F64
    loading_s: F64
    port_s: F64
    ramp_s: F64
    level_bytes: Mapping[str, F64]
    main_bytes: F64
    joules: F64

    def times(self, factor: F64 | float) -> ChipDemand:
        """So much of it."""
        return self.changed(lambda value: value * factor)

    def changed(self, change: Callable[[F64], F64]) -> ChipDemand:
        """With the same change of every number, as a sum over entries."""
        return ChipDemand(
            **{name: change(getattr(self, name)) for name in _NUMBERS},
            level_bytes={name: change(value) for name, value in self.level_bytes.items()},
        )

    def plus(self, other: ChipDemand) -> ChipDemand:
        """Both, one after the other."""
        return ChipDemand(
            **{name: getattr(self, name) + getattr(other, name) for name in _NUMBERS},
            level_bytes={
                name: value + other.level_bytes[name] for name, value in self.level_bytes.items()
            },
        )

    def reading(self, device: Device, bytes_: F64) -> ChipDemand:
        """And so many bytes of main memory besides, each once."""
        arch = chip_of(device).design.architecture
        return replace(
            self,
            main_s=self.main_s + bytes_ / main_bytes_per_s(arch),
            main_bytes=self.main_bytes + bytes_,
            joules=self.joules + bytes_ * byte_j(arch.memories[0]),
        )


_NUMBERS = tuple(each.name for each in fields(ChipDemand) if each.name != "level_bytes")


def load_of(device: Device, fmt: ChipFormat, result: Counted) -> ChipDemand:
    """Counts in cycles and words as seconds, bytes and joules at the device's clock."""
    chip = chip_of(device)
    arch = chip.in_format(fmt.compute, fmt.bits)
    first = arch.memories[0].name
    main = ports = none = xp.full_like(result.cycles, 0.0)
    for (level, _), cycles in result.port_cycles.items():
        if level == first:
            main = xp.maximum(main, cycles)
        else:
            ports = xp.maximum(ports, cycles)
    others = xp.maximum(result.unit_cycles, ports)
    # The busiest of all sets the cycles: where that is main memory, the chip needs fewer.
    core = xp.where(result.cycles > xp.ceil(main), result.cycles, others)
    bytes_, clock = fmt.bits / 8.0, device.clocks.boost_hz
    return ChipDemand(
        core_s=core / clock,
        main_s=main / arch.clock_hz,
        unit_s=result.unit_cycles / clock,
        work_s=result.unit_cycles * arch.overhead / clock,
        march_s=result.march_cycles * arch.overhead / clock,
        loading_s=result.loading_cycles * arch.overhead / clock,
        port_s=ports / clock,
        ramp_s=result.exposed_cycles / clock,
        level_bytes={
            memory.name: words * bytes_
            for memory, words in zip(arch.memories, result.level_words, strict=True)
        },
        main_bytes=sum(result.main_words, none) * bytes_,
        joules=(result.energy_pj - result.cycles * arch.idle_pj_per_cycle) * PICO,
    )


def byte_j(memory: Memory) -> float:
    """Joules of reading a byte of a memory, in whole blocks; 0 where its file does not say."""
    return (memory.read_pj or 0.0) * PICO * 8.0 / (memory.word_bits * memory.block_words)


@lru_cache(maxsize=256)
def mapper_log_sd(device: Device, fmt: ChipFormat) -> float:
    """What mappings may be off, from how much better others are not proven not to be.

    The gap is that of compiled mappings, or of one product of 1,024 in each dimension; a mapping
    somewhere between ours and the bound is as likely as another.
    """
    chip, c = chip_of(device), load_physics(GROUP).default
    gaps = [
        each.gap
        for op in (PRODUCT, PRODUCTS, WINDOWS)
        for each in stored_templates(chip, ProblemShape(op), fmt.compute, fmt.bits)
    ]
    if not gaps:
        problem = ProblemShape(PRODUCT) if chip.multiplies else ProblemShape(WINDOWS)
        sizes = REFERENCE if chip.multiplies else (1024, 1024, 1, 1, 1, 1024, 1)
        gaps = [template_of(chip, problem, sizes, fmt.compute, fmt.bits).gap]
    most = min(sum(gaps) / len(gaps), 0.9)
    return max(-math.log(1.0 - most) / math.sqrt(12.0), c["least_mapper_log_sd"])


class MappedKernel(Fallback):
    """A family that is mapped onto designs; what it computes and moves once is as on GPUs."""

    execution_model: ClassVar[str] = "loop_nest"
    group: ClassVar[str] = GROUP

    def shared_log_sd(self, variant: Variant, device: Device) -> Mapping[str, float]:
        """See :meth:`Implementation.shared_log_sd`: with what the mapper may be off."""
        log_sd = mapper_log_sd(device, format_of(device, variant.dtype))
        return {**super().shared_log_sd(variant, device), f"mapper:{device.name}": log_sd}

    def configurations(self, op: Op, device: Device) -> Mapping[str, float]:
        """Where its mappings come from; see :meth:`Implementation.configurations`."""
        device, _ = with_format(device, op.variant.dtype)
        with listening() as requested:
            self.analyse(OpBatch.from_ops([op]), device)
        fromkeys = dict.fromkeys(each.origin(chip_of(device)) for each in requested)
        return dict.fromkeys(["; ".join(fromkeys)], 1.0) if fromkeys else {}


def analysed(
    device: Device,
    variant: Variant,
    load: ChipDemand,
    *,
    flops: F64,
    read: F64,
    written: F64,
    vector_s: F64 | float = 0.0,
    vector_joules: F64 | float = 0.0,
    products: float = 1.0,
    between: F64 | float = 0.0,
) -> Analysis:
    """Time, bound and energy of counted work.

    Args:
        flops: useful operations; read, written: bytes of operands and results, once each.
        vector_s: of what the vector units do beside the products.
        products: share of the operations that no zero does away with.
        between: bytes that the operation before and the one after could hand over on the chip.
    """
    c = load_physics(GROUP).constants(device.architecture)
    stays = xp.minimum(handed_over(device, variant, between), load.main_bytes)
    load = load.reading(device, -stays)
    chip = chip_of(device)
    compute = RECIPES[variant.dtype].compute if variant.dtype in RECIPES else variant.dtype
    own_us = chip.content.system.launch_us
    launch_s = c["launch_s"] if own_us is None else own_us * 1e-6
    if variant.launch == "stream":
        launch_s += c["stream_launch_s"]
    none = xp.full_like(flops, 0.0)
    vector = none + vector_s
    busy = xp.maximum(xp.maximum(load.core_s, load.main_s), vector)
    # Mapped work begins and ends in main memory, whatever ran before it, but for what the chip's
    # programs leave on the chip; zeros may be left out.
    forced = xp.minimum(xp.maximum(read + written - stays, 0.0), load.main_bytes)
    main_rate = device.dram.bandwidth_bytes_per_s
    tensor = products * flops / device.bound_per_s(device.matrix_pipe(compute), compute)
    resource_s = {"tensor": tensor, "dram": forced / main_rate}
    bound = xp.maximum(tensor, resource_s["dram"])
    resource_s |= {"traffic": load.main_s, "vector": vector, **chip_s(load)}
    time = launch_s + busy
    energy_j = None
    if not chip.missing_energy:
        actions_j = load.joules + vector_joules
        idle_w, limit_w = waiting_w(device), most_w(device)
        time, energy_j = held(time, actions_j, idle_w, limit_w)
        resource_s |= power_s(actions_j, idle_w, limit_w)
    used = xp.minimum(load.unit_s / time, 1.0)
    return Analysis(
        time_s=time,
        bound_s=bound,
        resource_s={**resource_s, "launch": none + launch_s},
        demand=Demand(
            tasks=none + 1.0,
            waves=none + 1.0,
            occupancy=used,
            pipe_work={"tensor": flops},
            level_bytes={**load.level_bytes, "dram": load.main_bytes},
        ),
        features={
            "units_share": used,
            "chip_share": load.core_s / time,
            "main_share": load.main_s / time,
            "vector_share": vector / time,
        },
        independent_log_sd=none + c["independent_log_sd"],
        energy_j=energy_j,
        energy_log_sd=chip.energy_log_sd,
    )


def handed_over(device: Device, variant: Variant, between: F64 | float) -> F64 | float:
    """Of what neighbouring operations hand over, the bytes that stay in the memory which
    ``results_stay_in`` names; what does not fit there is spilled: it goes through main memory.
    """
    chip = chip_of(device)
    name = chip.content.system.results_stay_in
    if not name or variant.cache == "cold":
        return 0.0
    memory = next(level for level in chip.design.architecture.memories if level.name == name)
    return xp.minimum(between + 0.0, memory.usable_words * memory.word_bits / 8.0)


def chip_s(load: ChipDemand) -> dict[str, F64]:
    """What the resources of a chip need as the work is mapped, seconds of shape (rows,).

    Arrays that are loaded behind the work need that beside the units; others take turns with them.
    """
    return {
        "units": load.work_s,
        "array_fill": load.march_s,
        "array_load": xp.where(load.loading_s > load.march_s, load.loading_s, 0.0),
        "ramp": load.ramp_s,
        "chip_memory": load.port_s,
    }


def vector_cost(device: Device, simple: F64, special: F64) -> tuple[F64, F64]:
    """Seconds and joules of operations on the vector units.

    Args:
        simple, special: operations, exponentials and the like; (rows,).
    """
    vector = chip_of(device).content.vector
    seconds = simple / device.peak_per_s("fma", "fp32") + special / device.peak_per_s("xu", "fp32")
    if vector is None:
        return seconds, xp.full_like(seconds, 0.0)
    plain = vector.energy_pj or 0.0
    other = plain if vector.special_energy_pj is None else vector.special_energy_pj
    return seconds, (simple * plain + special * other) * PICO


def refused(error: SilicastError, device: Device, family: str) -> SilicastError:
    """The error of a mapping that does not fit, with what was to be mapped."""
    return SilicastError(
        f"{family} on {device.name}: {error.message}",
        kind=error.kind,
        field=error.field,
        hint=error.hint,
    )
