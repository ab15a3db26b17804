"""Modules: sequences of other families' kernels that a table or an engine times as one call.

A family states its parts (op batches of other families, each in its own format) and what the
module as a whole must read and write. Its time is

    t = max(efficiency x sum(count x part) + module, host)

where each part is its own family's time, never below its own bound; ``efficiency`` and ``module``
are constants of the module. The bound knows no parts: products of all that must run, at their peak
rates, and the bytes of the whole module, because a library may fuse parts and keep what is between
them on the chip. docs/explanation/attention.md explains it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import ClassVar, final

from msgspec import Struct, structs

from silicast.core import xp
from silicast.core.dtypes import RECIPES, Recipe, recipe_for
from silicast.core.numerics import F64, I64
from silicast.hardware.device import Device
from silicast.kernels.attention.attention_memory import L2_BYTES_PER_CLOCK_AND_CORE
from silicast.kernels.check import op_at
from silicast.kernels.implementation import Analysis, Demand, Implementation
from silicast.kernels.physics.constants import load_physics, shared_errors
from silicast.kernels.physics.formats import with_format
from silicast.kernels.physics.measured_range import substitute_error
from silicast.kernels.physics.roofline import UNCERTAIN_BANDWIDTH, on_chip
from silicast.kernels.registry import implementation_for
from silicast.kernels.timed_parts import PartBatch, TimedPart, model_of, queued, timed
from silicast.workload.graphs.op import Op, OpBatch, Variant
from silicast.workload.libraries.catalog import kernel_rule
from silicast.workload.libraries.library_file import RuleFacts


@final
class ModuleWork(Struct, frozen=True):
    """What every op of a batch runs and moves.

    Attributes:
        parts: its kernels, in the order in which they run.
        read_bytes, written_bytes: of the whole module at least, each of shape (n,): weights,
            inputs, results and its state, nothing that one part hands to another.
        chosen_products_s: products at their bound rate of work that can be done in several ways:
            the least of all ways, whichever is taken. Parts of these ways state 0 as ``least``.
    """

    parts: Sequence[PartBatch]
    read_bytes: I64
    written_bytes: I64
    chosen_products_s: F64 | float = 0.0


class Composite(Implementation):
    """A family whose kernels are other families'.

    Class attributes:
        group: constants file; its names are "efficiency", "module_s" and the errors
            "independent_log_sd", "device_log_sd", "family_log_sd".
            "<part>.efficiency" is a factor on one part. A prefix "<style>." puts a constant over
            the plain one for rows of that style (:meth:`constants_styles`).
    """

    group: ClassVar[str]
    in_parts: ClassVar[bool] = True
    runs_above_boost: ClassVar[bool] = True
    takes_numbers: ClassVar[bool] = True

    @abstractmethod
    def work(self, batch: OpBatch, device: Device | None) -> ModuleWork:
        """What every op in ``batch`` runs and moves.

        Args:
            batch: the module's ops.
            device: where they run; None asks for the useful work alone, which no device changes.
        """

    def style(self, variant: Variant, device: Device) -> str:  # noqa: ARG002
        return variant.library

    def constants_styles(self, variant: Variant, device: Device) -> tuple[str, ...]:
        """Whose constants to use, each put over those before it; by default :meth:`style`'s."""
        return (self.style(variant, device),)

    def host_floor_s(self, batch: OpBatch, c: Mapping[str, float]) -> F64 | float:  # noqa: ARG002
        """What the host takes to launch the parts one by one, where no graph does; 0 by default."""
        return 0.0

    @final
    def analyse(self, batch: OpBatch, device: Device) -> Analysis:
        return self.analyse_with(batch, device, self.constants(batch.variant, device))

    @final
    def analyse_with(self, batch: OpBatch, device: Device, c: Mapping[str, float]) -> Analysis:
        """As :meth:`analyse`, with given constants: for fitting them."""
        work = self.work(batch, device)
        # of a single op, parts that do not run need no time; those of a batch run in some rows
        run = [part for part in work.parts if not batch.numbers or xp.any_of(part.count != 0)]
        parts = timed(run, device)
        shares: dict[str, F64] = dict.fromkeys((x.name for x in work.parts), batch.filled(0.0))
        for part in parts:
            part_s = part.total_s * c.get(f"{part.name}.efficiency", 1.0) * c["efficiency"]
            shares[part.name] = shares[part.name] + part_s
        time = _sum(shares.values()) + c["module_s"]
        time = xp.maximum(time, self.host_floor_s(batch, c))
        if batch.variant.launch == "stream":
            time = time + _host_s(work.parts[0], device)
        resource_s = _bounds(work, parts, device, batch.variant.cache)
        bound = _largest(resource_s.values())
        return Analysis(
            time_s=time,
            bound_s=bound,
            resource_s={**resource_s, "launch": batch.filled(c["module_s"])},
            demand=_demand(parts),
            features={
                **{f"{name}_share": share / time for name, share in shares.items()},
                "bound_share": bound / time,
            },
            independent_log_sd=batch.filled(c["independent_log_sd"]),
            warnings=tuple(dict.fromkeys(warning for part in parts for warning in part.warnings)),
        )

    @final
    def timed_parts(self, batch: OpBatch, device: Device) -> list[TimedPart]:
        """Every part with its own family's times.

        Raises:
            SilicastError: a part has no model on this device, or not in its format.
        """
        return timed(self.work(batch, device).parts, device)

    @final
    def constants(self, variant: Variant, device: Device) -> Mapping[str, float]:
        """Constants of the device's architecture, with those of the style put over them."""
        return _constants(self.group, device.architecture, self.constants_styles(variant, device))

    @final
    def shared_log_sd(self, variant: Variant, device: Device) -> Mapping[str, float]:
        c = self.constants(variant, device)
        shared_log_sd = shared_errors(self.family, c)
        if any(with_format(device, name)[1] for name in _formats(self, variant, device)):
            shared_log_sd["format"] = substitute_error(device)
        return shared_log_sd

    @final
    def flops(self, op: Op) -> int:
        """Exact useful floating-point operations: the parts'."""
        total = 0
        for part in self.work(OpBatch.from_ops([op]), None).parts:
            model = implementation_for(part.batch.family, "simt")
            assert model is not None
            count = part.count if isinstance(part.count, int) else int(part.count[0])
            total += count * model.flops(op_at(part.batch, 0)) if count else 0
        return total

    @final
    def compulsory_bytes(self, op: Op) -> int:
        """Exact bytes of the module's own operands and results."""
        work = self.work(OpBatch.single(op), None)
        return int(work.read_bytes + work.written_bytes)


def _host_s(first: PartBatch, device: Device) -> F64:
    """What launching from the host adds: parts queue behind the first one."""
    model = model_of(first, device)
    behind = model.estimates(queued(first.batch), device).estimate_s
    variant = replace(first.batch.variant, launch="stream")
    alone = model.estimates(structs.replace(first.batch, variant=variant), device).estimate_s
    host_s: F64 = xp.maximum(alone - behind, 0.0)
    return host_s


def _bounds(
    work: ModuleWork, parts: Sequence[TimedPart], device: Device, cache: str
) -> dict[str, F64]:
    """Products of all parts one after another; the module's bytes through each memory."""
    read, written = xp.float64(work.read_bytes), xp.float64(work.written_bytes)
    capacity, chip_per_s = _chip_bound(device)
    beyond = xp.maximum(read + written - capacity, 0.0)
    forced = xp.maximum(read, beyond) if cache == "cold" else beyond
    products = _sum(part.products_s * part.least for part in parts)
    return {
        "tensor": products + work.chosen_products_s,
        "dram": forced / device.dram.bandwidth_bytes_per_s,
        "chip": (read + written) / chip_per_s,
    }


@lru_cache(maxsize=1024)
def _formats(model: Composite, variant: Variant, device: Device) -> frozenset[str]:
    """Formats of the parts, which no size changes: those of the smallest op."""
    sizes = {name: low for name, (low, _) in model.dims.items()}
    work = model.work(OpBatch.single(Op.make(model.family, variant, **sizes)), device)
    return frozenset(part.batch.variant.dtype for part in work.parts)


@lru_cache(maxsize=1024)
def _constants(group: str, architecture: str, styles: tuple[str, ...]) -> Mapping[str, float]:
    table = load_physics(group).constants(architecture)
    constants = {name: value for name, value in table.items() if "." not in name}
    factors = {name: value for name, value in table.items() if name.endswith(".efficiency")}
    constants |= {name: value for name, value in factors.items() if name.count(".") == 1}
    for style in styles:
        prefix = style + "."
        constants |= {k.removeprefix(prefix): v for k, v in table.items() if k.startswith(prefix)}
    return constants


def _chip_bound(device: Device) -> tuple[float, float]:
    """What the chip may hold from the call before, bytes, and bytes per second on it at most."""
    if device.execution_model == "simt":
        per_s = device.cores * device.clocks.max_hz * L2_BYTES_PER_CLOCK_AND_CORE
        return device.l2.capacity_bytes, per_s
    capacity, per_s, published = on_chip(device)
    return capacity, per_s * (1.0 if published else UNCERTAIN_BANDWIDTH)


def _sum(terms: Iterable[F64]) -> F64:
    """Sum in the order given: the same bits for any number of rows."""
    total: F64 | None = None
    for term in terms:
        total = term if total is None else total + term
    if total is None:
        raise ValueError("a module has at least one part")
    return total


def _largest(terms: Iterable[F64]) -> F64:
    largest: F64 | None = None
    for term in terms:
        largest = term if largest is None else xp.maximum(largest, term)
    if largest is None:
        raise ValueError("a bound has at least one resource")
    return largest


def _demand(parts: Sequence[TimedPart]) -> Demand:
    """Work of all parts; the occupancy is the largest of those that run."""
    pipes: dict[str, F64] = {}
    levels: dict[str, F64] = {}
    for part in parts:
        for into, amounts in ((pipes, part.demand.pipe_work), (levels, part.demand.level_bytes)):
            for name, amount in amounts.items():
                work = amount * part.count
                into[name] = into[name] + work if name in into else work
    return Demand(
        tasks=_sum(part.demand.tasks * part.count for part in parts),
        waves=_sum(part.demand.waves * part.count for part in parts),
        occupancy=_largest(
            xp.where(part.count > 0.0, part.demand.occupancy, 0.0) for part in parts
        ),
        pipe_work=pipes,
        level_bytes=levels,
    )


GEMM = "gemm_"
"""Prefix of the flag that names the format of a module's linear layers: "gemm_fp8_block"."""
PRODUCTS = "products"
MOVES = "moves"
COPY = Variant(dtype="bf16", flags=(("copy", True),))


SHORT_TOKENS = 2048
"""Tokens up to which all of these models select everything."""
HOST_LINK = "nvlink_c2c"
"""Link of a device to a host of the same package."""


def linear_recipe(variant: Variant) -> Recipe:
    """The format of a module's linear layers.

    >>> linear_recipe(Variant(flags=(("gemm_fp8_block", True),))).name
    'fp8_block'
    """
    for name, value in variant.flags:
        if value and name.startswith(GEMM):
            return recipe_for(name.removeprefix(GEMM), field="gemm_type")
    return recipe_for(variant.dtype)


def is_decode(variant: Variant) -> bool:
    """Whether a module runs in a decode step."""
    return variant.flag("generation")


@lru_cache(maxsize=4096)
def module_style(module: str, variant: Variant, device: Device) -> tuple[str, str]:
    """The engine whose constants hold for a module, and the suffix of its release."""
    facts = RuleFacts.from_variant(
        variant,
        device.architecture,
        host="grace" if HOST_LINK in device.links else "",
        capability=device.compute_capability,
    )
    rule = kernel_rule(module, facts)
    return (variant.library, "") if rule is None else (rule.style, rule.suffix)


def module_styles(module: str, variant: Variant, device: Device) -> tuple[str, ...]:
    """Whose constants, from the least to the most particular: module and phase; library; format of
    the linear layers; whether the host is one with a link of its own to the device (Grace) or
    PCIe's, where launching counts; a library's release.
    """
    recipe = linear_recipe(variant).name
    narrow = recipe if recipe in ("fp8_block", "nvfp4") else "bf16"
    phase = "generation" if is_decode(variant) else "context"
    library, early = module_style(f"{module}_module", variant, device)
    styles = [f"{module}_{phase}", f"{module}_{library}_{phase}"]
    style = f"{module}_{library}_{narrow}_{phase}"
    for suffix in ("", "_grace" if HOST_LINK in device.links else "", early):
        style += suffix
        styles.append(style)
    return tuple(dict.fromkeys(styles))


def launching_s(c: Mapping[str, float], batch: I64, kv: I64, *, skips: bool = False) -> F64:
    """Host time to launch a module's kernels one by one; they are fewer without an indexer, and
    where everything would be selected.
    """
    long = c["skip_host_s" if skips else "host_s"]
    eager = xp.where(kv <= SHORT_TOKENS, c["short_host_s"], long)
    launching_s: F64 = xp.where(batch > c["graph_batch"], eager, 0.0)
    return launching_s


def products(
    ops: OpBatch, m: I64, n: I64, k: I64, *, batch: I64 | None = None, plain: bool = False
) -> PartBatch:
    """A linear layer of each op; ``plain``: in 16 bits whatever the format of the others."""
    dims = {"m": m, "n": n, "k": k, "batch": m * 0 + 1 if batch is None else batch}
    kind = _of_products(ops.variant, plain=plain or batch is not None)
    return PartBatch(PRODUCTS, ops.beside("gemm", kind, dims))


@lru_cache(maxsize=1024)
def _of_products(variant: Variant, *, plain: bool) -> Variant:
    recipe = RECIPES["bf16"] if plain else linear_recipe(variant)
    flags = (("includes_quantize", True),) if recipe.quantizes else ()
    return Variant(dtype=recipe.name, library=variant.library, flags=flags)


@lru_cache(maxsize=1024)
def kind_of(dtype: str, variant: Variant, kv_dtype: str = "") -> Variant:
    """The variant of a module's kernel in another format; of the module's phase and library."""
    flags = (("decode", True),) if is_decode(variant) else ()
    return Variant(dtype=dtype, kv_dtype=kv_dtype, library=variant.library, flags=flags)


def moves(ops: OpBatch, elements: I64) -> PartBatch:
    """Norms, rotations, conversions and copies: ``elements`` read and written."""
    dims = {"elements": xp.maximum(elements, 1), "inputs": xp.full_like(elements, 1)}
    return PartBatch(MOVES, ops.beside("elementwise", COPY, dims))


def weight_bytes(recipe: Recipe, weights: I64) -> I64:
    """Bytes of so many weights with their share of the scales, whole bytes."""
    return (weights * int(recipe.weight_bits * 64)) // 512
