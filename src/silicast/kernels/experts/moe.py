"""Experts of a mixture-of-experts layer: routing, two grouped products, activation, sum.

The time is that of the busiest of the ranks that share the experts. Flags of the variant:
``w13`` or ``w2`` (one product alone; neither = the whole layer), ``gated`` (default: gate, up and
down), and the routing distribution under its own name (``balanced``, ``power_law_1.2``,
``histogram:3,1,1``; none = balanced). ``Variant.kernel`` names the source's kernel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, final

import numpy as np
from msgspec import Struct

from silicast.core import xp
from silicast.core.dtypes import BITS, Recipe, recipe_for
from silicast.core.errors import SilicastError, unknown_name
from silicast.core.numerics import F64, I64
from silicast.hardware.device import Device
from silicast.kernels.execution_models.row_counts import CountsRows
from silicast.kernels.experts.moe_exchange import fabric_of
from silicast.kernels.experts.moe_features import shape_features, tile_features
from silicast.kernels.experts.moe_model import (
    ROWS_AT_ONCE,
    BusiestRankLayer,
    ExpertRates,
    ExpertSteps,
    ExpertTimes,
    estimate,
)
from silicast.kernels.experts.moe_recipes import DISPATCHED, DISPATCHED_PREFILL, is_gated, style_of
from silicast.kernels.experts.routing import (
    busiest_loads,
    check_distribution,
    experts_used,
    histogram_name,
)
from silicast.kernels.implementation import Analysis, CandidateLabels, Demand, Implementation
from silicast.kernels.physics.constants import constants_of
from silicast.kernels.registry import register
from silicast.workload.graphs.op import Op, OpBatch, Variant
from silicast.workload.libraries.catalog import expert_styles

PHYSICS = "moe"
PARTS = ("full", "w13", "w2")

SURELY_HIT = 0.35
"""Share of the experts that an even router would use which any of the skewed ones uses too: the
bound must hold for every draw of a distribution, not for the expected one."""

GROWTHS = {"tensor_growth": "tensor_efficiency", "around_growth": "around_s"}
"""Powers of a device's properties -> the constant that they change."""

_OTHER_FLAGS = frozenset({"w13", "w2", "full", "gated"})


def distribution_of(variant: Variant) -> str:
    """The routing distribution among a variant's flags.

    >>> distribution_of(Variant(flags=(("gated", True), ("power_law_1.2", True))))
    'power_law_1.2'
    """
    for name, value in variant.flags:
        if value and name not in _OTHER_FLAGS and _is_distribution(name):
            return name
    return "balanced"


def moe_flags(
    part: str = "full", *, gated: bool = True, distribution: str | Sequence[float] = "balanced"
) -> tuple[tuple[str, bool], ...]:
    """The flags that a variant carries for a layer of experts.

    Args:
        part: "full", "w13" (the products before the activation) or "w2" (after it).
        gated: gate, up and down; else up and down.
        distribution: its name, or one share an expert.

    Raises:
        SilicastError: an unknown part or distribution, or an impossible histogram.

    >>> moe_flags("w13", distribution="power_law_1.2")
    (('gated', True), ('power_law_1.2', True), ('w13', True))
    """
    if part not in PARTS:
        raise unknown_name(f"unknown part {part!r}", "part", ", ".join(PARTS))
    name = distribution if isinstance(distribution, str) else histogram_name(distribution)
    check_distribution(name)
    flags = [("gated", gated), (name, True)]
    if part != "full":
        flags.append((part, True))
    return tuple(sorted(flags))


@lru_cache(maxsize=512)
def _is_distribution(name: str) -> bool:
    try:
        check_distribution(name)
    except SilicastError as error:
        if name.startswith("histogram:"):
            raise
        return error.kind != "unknown_name"
    return True


@final
@dataclass(frozen=True)
class ExpertSetting:
    """All that rows of one batch share.

    ``dispatched``: a rank holds the tokens that came to its experts, not those of the whole group.
    """

    recipe: Recipe
    pipe: str
    style: str
    distribution: str
    dispatched: bool
    rates: ExpertRates
    steps: ExpertSteps
    device: Device
    constants: Mapping[str, float]


@lru_cache(maxsize=1024)
def setting_of(variant: Variant, device: Device) -> ExpertSetting:
    """The setting of one variant on one device.

    Raises:
        SilicastError: unknown format, or one that the device does not multiply.
    """
    return setting_with(variant, device, constants_of(PHYSICS, device.architecture))


def setting_with(variant: Variant, device: Device, table: Mapping[str, float]) -> ExpertSetting:
    """The setting under a flat table of constants ("style.dtype.name" entries included)."""
    recipe = recipe_for(variant.dtype, field="dtype")
    pipe = device.matrix_pipe(recipe.compute)
    style = style_of(
        variant.kernel, variant.library, recipe.name, device.architecture, variant.version
    )
    constants = selected(table, style, recipe.name)
    rates = ExpertRates.from_device(
        device, recipe, pipe, style, variant, constants["l2_bytes_per_clock_per_core"]
    )
    constants = grown(constants, rates)
    return ExpertSetting(
        recipe=recipe,
        pipe=pipe,
        style=style,
        distribution=distribution_of(variant),
        dispatched=variant.kernel in (DISPATCHED, DISPATCHED_PREFILL),
        rates=rates,
        steps=ExpertSteps.from_rates(rates, constants),
        device=device,
        constants=constants,
    )


def grown(constants: Mapping[str, float], rates: ExpertRates) -> dict[str, float]:
    """Constants of architectures that were not measured, for the rates of a device.

    A constant that goes with another property has its value where that is at its reference, and a
    power of it; without one, or on architectures that were measured, it stays. A share of a rate
    is at most 1.
    """
    grown = dict(constants)
    for name, base in growth_bases(rates).items():
        power = constants.get(name, 0.0)
        if power:
            grown[GROWTHS[name]] *= base**power
    grown["tensor_efficiency"] = min(grown["tensor_efficiency"], 1.0)  # a share
    return grown


def growth_bases(rates: ExpertRates) -> dict[str, float]:
    """What :data:`GROWTHS` are powers of: a core's operations a clock over those of an A100's in 16
    bits, and the clock over a usual one.
    """
    return {
        "tensor_growth": rates.core_rate / rates.clock_hz / 2048.0,
        "around_growth": rates.clock_hz / 1.75e9,
    }


def selected(table: Mapping[str, float], style: str, dtype: str) -> dict[str, float]:
    """The constants of one style and format under their plain names; the most specific wins.

    >>> selected({"a": 1.0, "triton.a": 2.0, "triton.fp8.a": 3.0}, "triton", "fp8")
    {'a': 3.0}
    """
    wanted = ("", f"{style}.", f"{style}.{dtype}.")
    selected: dict[str, float] = {}
    for prefix in wanted:
        for name, value in table.items():
            head, dot, plain = name.rpartition(".")
            if head + dot == prefix:
                selected[plain] = value
    return selected


@register
@final
class Moe(Implementation, CountsRows):
    """Grouped expert products of the usual engines on SIMT devices.

    The dimensions ``ep`` and ``tp`` (default 1) are optional: more of them is less work.
    """

    family: ClassVar[str] = "moe"
    takes_numbers: ClassVar[bool] = True
    rows_at_once: ClassVar[int] = ROWS_AT_ONCE
    unmarked_flags: ClassVar[frozenset[str]] = frozenset({"uniform"})
    held_sizes: ClassVar[frozenset[str]] = frozenset({"experts", "ep"})
    dtypes: ClassVar[tuple[str, ...]] = (
        "bf16", "fp16", "fp8", "fp8_block", "int4_wo", "nvfp4", "w4a16_mxfp4", "w4a8_mxfp4_mxfp8",
    )  # fmt: skip
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {
        "tokens": (1, 1 << 24),
        "experts": (1, 1 << 12),
        "topk": (1, 64),
        "hidden": (1, 1 << 17),
        "intermediate": (1, 1 << 18),
    }

    def analyse(self, batch: OpBatch, device: Device) -> Analysis:
        setting = setting_of(batch.variant, device)
        sizes = _columns(batch)
        layer = layer_of(setting, sizes)
        result = estimate(layer, setting.rates, setting.constants, setting.steps)
        return _analysis(setting, sizes, layer, result)

    def style(self, variant: Variant, device: Device) -> str:
        return setting_of(variant, device).style

    def shared_log_sd(self, variant: Variant, device: Device) -> Mapping[str, float]:
        c = setting_of(variant, device).constants
        return {"device": c["device_log_sd"], "family:moe": c["family_log_sd"]}

    def flops(self, op: Op) -> int:
        """2 x assignments x hidden x width of each product; of the busiest rank, evenly routed."""
        size = _sizes(op)
        assigned = -(-size["tokens"] * size["topk"] // size["ep"])
        return 2 * assigned * size["hidden"] * size["inner"] * _widths(op.variant)

    def compulsory_bytes(self, op: Op) -> int:
        """Weights of the experts that routing is expected to hit, and tokens in and out, once each;
        a skewed router's are those of an even one.
        """
        size = _sizes(op)
        recipe = recipe_for(op.variant.dtype)
        assigned = size["tokens"] * size["topk"]
        hit = min(size["experts"], assigned)
        if distribution_of(op.variant) == "uniform":
            chosen = (np.array([size[name]]) for name in ("tokens", "experts", "topk"))
            hit = int(experts_used(*chosen)[0])
        local = -(-hit // size["ep"])
        weights = local * size["hidden"] * size["inner"] * _widths(op.variant)
        rows = 2 * min(size["tokens"], -(-assigned // size["ep"])) * size["hidden"]
        return -int(-(weights * recipe.weight_bits + rows * BITS[recipe.output]) // 8)

    def counts(self, batch: OpBatch) -> tuple[F64, F64]:
        size, recipe = _columns(batch), recipe_for(batch.variant.dtype)
        ep = batch.dims.get("ep", batch.filled(1))
        assigned = size.tokens * size.topk
        local = -(-assigned // ep)
        hit = np.minimum(size.experts, assigned)
        if distribution_of(batch.variant) == "uniform":
            hit = experts_used(size.tokens, size.experts, size.topk).astype(np.int64)
        weight = xp.float64(size.hidden) * size.inner * _widths(batch.variant)
        rows = 2.0 * np.minimum(size.tokens, local) * size.hidden
        bits = -(-hit // ep) * weight * recipe.weight_bits + rows * BITS[recipe.output]
        return 2.0 * local * weight, np.ceil(bits / 8.0)

    def busiest_share(self, batch: OpBatch) -> F64 | float:
        name = distribution_of(batch.variant)
        if name == "balanced":
            return 1.0
        size = _columns(batch)
        loads = busiest_loads(name, size.tokens, size.experts, size.topk, size.ep)
        even = -(-(size.tokens * size.topk) // size.ep)
        return np.maximum(loads.tokens() / even, 1.0)


def _widths(variant: Variant) -> int:
    """Multiples of the intermediate size that the part's weights have."""
    first = 2 if is_gated(variant) else 1
    return first if variant.flag("w13") else 1 if variant.flag("w2") else first + 1


def _sizes(op: Op) -> dict[str, int]:
    dims = dict(op.dims)
    size: dict[str, int] = {}
    for name in ("tokens", "experts", "topk", "hidden", "intermediate", "ep", "tp"):
        value = dims.get(name, 1)
        if not isinstance(value, int):
            raise ValueError("a layer of experts has plain sizes")
        size[name] = value
    size["topk"] = min(size["topk"], size["experts"])
    size["inner"] = -(-size["intermediate"] // size["tp"])
    return size


@final
class ExpertColumns(Struct, frozen=True):
    """The dimensions of a batch as int64 arrays of shape (rows,); ``inner`` is rank-local."""

    tokens: I64
    experts: I64
    topk: I64
    hidden: I64
    inner: I64
    ep: I64


def _columns(batch: OpBatch) -> ExpertColumns:
    dims = batch.dims
    tokens, experts = dims["tokens"], dims["experts"]
    ones = batch.filled(1)
    tp = dims.get("tp", ones)
    return ExpertColumns(
        tokens=tokens,
        experts=experts,
        topk=xp.minimum(dims["topk"], experts),
        hidden=dims["hidden"],
        inner=-(-dims["intermediate"] // tp),
        ep=xp.minimum(dims.get("ep", ones), experts),
    )


def layer_of(setting: ExpertSetting, size: ExpertColumns) -> BusiestRankLayer:
    """The busiest rank's share of each row."""
    tokens, topk, experts, ep = size.tokens, size.topk, size.experts, size.ep
    arrays = (np.atleast_1d(x) for x in (tokens, experts, topk, ep))
    loads = busiest_loads(setting.distribution, *arrays)
    return BusiestRankLayer.from_loads(
        loads, tokens, topk, size.hidden, size.inner, ep, dispatched=setting.dispatched
    )


def _analysis(
    setting: ExpertSetting, size: ExpertColumns, layer: BusiestRankLayer, result: ExpertTimes
) -> Analysis:
    """Bound, demand and features around the estimate."""
    c, rates, device = setting.constants, setting.rates, setting.device
    time = with_exchange(setting, layer, result)
    widths = _part_widths(rates)
    even = xp.ceil(size.tokens * size.topk / size.ep)
    bound_ops = 2.0 * even * layer.hidden * layer.inner * widths
    hit = xp.ceil(xp.minimum(size.experts, size.tokens * size.topk) / size.ep)
    if setting.distribution != "balanced":
        # the choices of one token are different experts, and the busiest rank has its share
        hit = xp.maximum(hit * SURELY_HIT, xp.ceil(size.topk / size.ep))
    weights = hit * layer.hidden * layer.inner * (widths * setting.recipe.weight_bits / 8.0)
    l2_bytes = 0.0 if rates.cache == "cold" else rates.l2_bytes
    arithmetic = bound_ops / device.bound_per_s(setting.pipe, setting.recipe.compute)
    memory = xp.maximum(weights - l2_bytes, 0.0) / device.dram.bandwidth_bytes_per_s
    floor = xp.full_like(time, device_floor_s(rates))
    columns = result.products.columns
    total = {
        name: result.products.total(columns[name])
        for name in ("padded", "tensor", "l2", "dram", "chain", "dram_bytes")
    }
    blocks = xp.like(time, columns["blocks"][0])
    ops = 2.0 * layer.assigned * layer.hidden * layer.inner * widths
    return Analysis(
        time_s=time,
        bound_s=xp.maximum(xp.maximum(arithmetic, memory), floor),
        resource_s={
            setting.pipe: xp.maximum(arithmetic, floor),
            "dram": memory,
            "launch": xp.full_like(time, c["launch_s"] * len(result.products.time)),
        },
        demand=Demand(
            tasks=blocks,
            waves=blocks / rates.cores,
            occupancy=xp.minimum(blocks / rates.cores, 1.0),
            pipe_work={setting.pipe: total["padded"]},
            level_bytes={"dram": total["dram_bytes"]},
        ),
        features={
            **{f"{name}_share": total[name] / time for name in ("tensor", "l2", "dram", "chain")},
            "around_share": result.around / time,
            "padding": total["padded"] / ops,
            "hit_share": layer.hit / layer.experts,
            "imbalance": layer.assigned * size.ep / (size.tokens * size.topk),
            "per_core": blocks / rates.cores,
            **shape_features(layer, rates, result),
            **({} if result.tiles is None else tile_features(layer, result.tiles)),
        },
        independent_log_sd=_own_log_sd(setting, time),
        choice=_chosen(setting, result),
    )


def _chosen(setting: ExpertSetting, result: ExpertTimes) -> CandidateLabels:
    """Style and tile of the first product: the likeliest of a table, else the fastest."""
    if result.tiles is not None:
        labels, likely = result.tiles.likeliest()
    else:
        labels, likely = setting.steps.tile.labels, result.products.best[0]
    return CandidateLabels(
        [f"{setting.style} {label}" for label in labels], xp.like(result.time, likely)
    )


def device_floor_s(rates: ExpertRates) -> float:
    """One operation of one core: the bound is positive even where everything is in the L2."""
    return 1.0 / rates.clock_hz


def _own_log_sd(setting: ExpertSetting, time: F64) -> F64:
    c = setting.constants
    skewed = c["skewed_log_sd"] if setting.distribution != "balanced" else 0.0
    independent_log_sd = c["independent_log_sd"]
    return xp.full_like(time, math.sqrt(independent_log_sd * independent_log_sd + skewed * skewed))


def _exchange_s(setting: ExpertSetting, layer: BusiestRankLayer) -> F64:
    """Time on the links of the busiest rank: assigned tokens come as they are multiplied, and
    their results return in the format between kernels.
    """
    element = setting.rates.a_bytes + setting.rates.c_bytes
    moved = layer.assigned * layer.remote * layer.hidden * element
    return moved / fabric_of(setting.device).link


def _part_widths(rates: ExpertRates) -> float:
    first = 2.0 if rates.gated else 1.0
    return {"w13": first, "w2": 1.0, "full": first + 1.0}[rates.part]


def with_exchange(setting: ExpertSetting, layer: BusiestRankLayer, result: ExpertTimes) -> F64:
    """The time with the exchange between ranks, where the kernel holds that too."""
    if not expert_styles()[setting.style].exchanges:
        return result.time
    return result.time + _exchange_s(setting, layer) * setting.constants["exchange_exposed"]
