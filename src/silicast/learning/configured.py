"""Times of kernels whose configuration is stated, instead of left to their library.

The products take the time of their configuration (:mod:`~.configuration_ranking`); what surrounds
them, and the bound, are those of the family's model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from msgspec import structs

from silicast.core.dtypes import Recipe, recipe_for
from silicast.core.errors import unmodelled
from silicast.core.numerics import F64
from silicast.hardware.device import Device
from silicast.kernels.configuration import Configuration, kinds, of_pairs
from silicast.kernels.execution_models.loop_times import FORMAT, scheduled_s
from silicast.kernels.experts.expert_layer import ExpertLayer
from silicast.kernels.experts.moe import distribution_of
from silicast.kernels.experts.moe_recipes import is_gated
from silicast.kernels.implementation import Analysis, Implementation, KernelTimes
from silicast.kernels.in_blocks import one_row
from silicast.kernels.physics.formats import with_format
from silicast.kernels.products.blocks import check_legal
from silicast.kernels.products.tile_times import Product, tile_constants
from silicast.learning.configuration_ranking import configured_s, ranked
from silicast.workload.graphs.op import OpBatch, Variant

Sizes = Mapping[str, int]
LOOPS = "vector_cpu"
TRANSFERRED_LOG_SD = 0.15
"""Judged: of configurations of another kind than those that were swept."""


def configured_times(model: Implementation, batch: OpBatch, device: Device) -> KernelTimes:
    """Times of a batch whose variant states a configuration.

    Raises:
        SilicastError: configurations of the family are not modelled, the device cannot run this
            one (by how much), or its blocks are not modelled.
    """
    configuration, variant = of_pairs(batch.variant.config), replace(batch.variant, config=())
    rows = batch.arrays()
    usual = model.times(OpBatch(rows.family, variant, rows.dims), device)
    products = PRODUCTS.get(batch.family)
    execution_model = kinds()[configuration.kind].execution_model
    if products is None or device.execution_model != execution_model:
        raise unmodelled(
            f"{configuration.kind} configurations of {batch.family} on {device.execution_model} "
            "devices are not modelled",
            "workload.kernel.configuration",
            f"families with configurations: {', '.join(PRODUCTS)}; {configuration.kind} ones run "
            f"on {execution_model}",
        )
    if execution_model == LOOPS:
        told = _scheduled(rows, variant, configuration, device, usual)
        return one_row(told) if batch.numbers else told
    board, _ = with_format(device.in_state("boost"), variant.dtype)
    recipe = recipe_for(variant.dtype, field="dtype")
    check_legal(configuration, board, recipe)
    seconds, log_sd = _rows(rows, variant, configuration, board, recipe, products)
    told = _told(usual, configuration, seconds + _around_s(usual, variant), log_sd)
    return one_row(told) if batch.numbers else told


def _told(
    usual: KernelTimes, configuration: Configuration, seconds: F64, log_sd: float
) -> KernelTimes:
    """The usual times with those of a configuration in their place."""
    return usual.corrected(
        seconds,
        np.full_like(seconds, log_sd),
        learned=np.ones_like(seconds),
        analytic_s=None,
        clock_share=None,
        analysis=_labelled(usual, configuration),
    )


def _scheduled(
    batch: OpBatch,
    variant: Variant,
    configuration: Configuration,
    device: Device,
    usual: KernelTimes,
) -> KernelTimes:
    """Products under a schedule of loops: the analytic model alone, single precision."""
    if batch.family != "gemm" or variant.dtype != FORMAT:
        raise unmodelled(
            f"schedules of loops are modelled for gemm in {FORMAT}, found {batch.family} in "
            f"{variant.dtype}",
            "workload.kernel.dtype",
            f"state dtype = {FORMAT!r}",
        )
    m, n, k = (np.asarray(batch.dims[name], dtype=np.float64) for name in "mnk")
    times = np.asarray(batch.dims.get("batch", 1), dtype=np.float64)
    seconds = scheduled_s(m, n, k, configuration, device) * times
    return structs.replace(
        _told(usual, configuration, seconds, kinds()[configuration.kind].log_sd),
        learned=np.zeros_like(seconds),
    )


def _labelled(usual: KernelTimes, configuration: Configuration) -> Analysis:
    labels = [configuration.label] * len(usual.estimate_s)
    return structs.replace(usual.analysis, choice=lambda: labels)


def _rows(
    batch: OpBatch,
    variant: Variant,
    configuration: Configuration,
    device: Device,
    recipe: Recipe,
    products: Callable[[Sizes, Variant], tuple[Product, ...]],
) -> tuple[F64, float]:
    """Seconds of the products of each row, and the log sd of all."""
    seconds, log_sd = np.zeros(len(batch)), 0.0
    for row in range(len(batch)):
        sizes = {name: int(values[row]) for name, values in batch.dims.items()}
        for product in products(sizes, variant):
            result = ranked(product, device, recipe)
            seconds[row] += configured_s(product, configuration, result)
            log_sd = max(log_sd, result.log_sd)
    if not kinds()[configuration.kind].swept:
        log_sd = max(log_sd, TRANSFERRED_LOG_SD)
    return seconds, log_sd


def _around_s(usual: KernelTimes, variant: Variant) -> F64:
    """What the family's model has around its products, launches apart: those count with them."""
    share = usual.analysis.features.get("around_share")
    if share is None or variant.flag("w13") or variant.flag("w2"):
        return np.zeros_like(usual.estimate_s)
    launches = 2.0 * tile_constants()["launch_s"]
    return np.maximum(np.asarray(share) * usual.analysis.time_s - launches, 0.0)


def _gemm(sizes: Sizes, variant: Variant) -> tuple[Product, ...]:
    del variant
    return (Product.plain(sizes["m"], sizes["n"], sizes["k"], sizes.get("batch", 1)),)


def _moe(sizes: Sizes, variant: Variant) -> tuple[Product, ...]:
    ep, tp = sizes.get("ep", 1), sizes.get("tp", 1)
    layer = ExpertLayer(
        experts=sizes["experts"],
        topk=min(sizes["topk"], sizes["experts"]),
        hidden=sizes["hidden"],
        width=-(-sizes["intermediate"] // tp),
        gated=is_gated(variant),
        distribution=distribution_of(variant),
        ranks=ep,
    )
    first, second = layer.products(sizes["tokens"])
    if variant.flag("w13"):
        return (first,)
    return (second,) if variant.flag("w2") else (first, second)


PRODUCTS: Mapping[str, Callable[[Sizes, Variant], tuple[Product, ...]]] = {
    "gemm": _gemm,
    "moe": _moe,
}
"""Family -> the products that a configuration is of."""
