"""Layers of experts on designs: the products of the experts of the busiest rank, each mapped."""

from __future__ import annotations

from typing import ClassVar, cast, final

import numpy as np

from silicast.accelerator.design.chip import GROUP, chip_of
from silicast.accelerator.kernels.mapped import (
    ChipDemand,
    MappedKernel,
    analysed,
    format_of,
    load_of,
    products,
    vector_cost,
)
from silicast.core import xp
from silicast.core.dtypes import BITS, recipe_for
from silicast.core.numerics import F64, folded
from silicast.hardware.device import Device
from silicast.kernels.experts.moe import Moe, distribution_of
from silicast.kernels.experts.moe_recipes import is_gated
from silicast.kernels.experts.routing import ExpertLoads, busiest_loads
from silicast.kernels.implementation import Analysis
from silicast.kernels.registry import implementation_for, register
from silicast.workload.graphs.op import OpBatch

_ON_GPUS = cast("Moe", implementation_for("moe", "simt"))


@register
@final
class NestMoe(MappedKernel):
    """Grouped products of the experts that routing hits."""

    family: ClassVar[str] = "moe"
    group: ClassVar[str] = GROUP
    original = _ON_GPUS
    dims = _ON_GPUS.dims
    dtypes = _ON_GPUS.dtypes

    def analyse(self, batch: OpBatch, device: Device) -> Analysis:
        variant, recipe = batch.variant, recipe_for(batch.variant.dtype)
        dims, ones = batch.dims, batch.filled(1)
        tokens, experts = dims["tokens"], dims["experts"]
        ep = np.minimum(dims.get("ep", ones), experts)
        inner = xp.float64(-(-dims["intermediate"] // dims.get("tp", ones)))
        hidden = xp.float64(dims["hidden"])
        loads = busiest_loads(
            distribution_of(variant), tokens, experts, np.minimum(dims["topk"], experts), ep
        )
        wide = 2.0 if is_gated(variant) else 1.0
        parts = []
        if not variant.flag("w2"):
            parts.append((wide * inner, hidden))
        if not variant.flag("w13"):
            parts.append((hidden, inner))
        load: ChipDemand | None = None
        for n, k in parts:
            part = _products(device, variant.dtype, loads, n, k)
            load = part if load is None else load.plus(part)
        assert load is not None
        assigned = loads.tokens()
        widths = sum((n * k for n, k in parts), 0.0 * hidden)
        vector_s, joules = vector_cost(device, 6.0 * assigned * inner, assigned * inner)
        even = np.ceil(tokens * np.minimum(dims["topk"], experts) / ep)
        hit = np.ceil(np.minimum(experts, tokens * dims["topk"]) / ep)
        if distribution_of(variant) != "balanced":
            hit = np.ceil(np.minimum(dims["topk"], experts) / ep)
        rows = np.minimum(xp.float64(tokens), even) * hidden * (BITS[recipe.output] / 8.0)
        left = chip_of(device).left
        return analysed(
            device,
            variant,
            load,
            flops=2.0 * even * widths,
            read=hit * widths * (left.weights * recipe.weight_bits / 8.0) + rows * left.inputs,
            written=rows * left.outputs,
            vector_s=vector_s,
            vector_joules=joules,
            products=left.products,
        )


def _products(device: Device, dtype: str, loads: ExpertLoads, n: F64, k: F64) -> ChipDemand:
    """One product for each expert that has tokens; experts run side by side where units are."""
    fmt = format_of(device, dtype)
    each, weight = np.broadcast_arrays(loads.tokens_each, loads.weight)
    active = np.minimum(each, 1.0) * weight
    sides = np.broadcast_to(np.maximum(np.rint(folded(active)), 1.0), each.shape)
    m = np.maximum(np.ceil(each), 1.0)
    b, m, n, k = (np.broadcast_to(x, each.shape).ravel() for x in (sides, m, n, k))
    counted = products(device, fmt, b, m, n, k, densities=chip_of(device).densities)
    result = load_of(device, fmt, counted).times((active / sides).ravel())

    def total(values: F64) -> F64:
        summed: F64 = folded(values.reshape(each.shape))
        return summed

    return result.changed(total)
