"""Experts of back ends for local use: products of the chosen experts' stored weights.

A call is the whole layer, or one side of the activation (flags ``w13``, ``w2``): every assignment
of a token is a row of one of the experts that tokens choose
(:mod:`silicast.kernels.products.stored_weights`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

import numpy as np

from silicast.core import xp
from silicast.core.dtypes import recipe_for
from silicast.core.numerics import F64, I64
from silicast.hardware.device import Device
from silicast.kernels.experts.moe_recipes import is_gated
from silicast.kernels.experts.routing import experts_used
from silicast.kernels.implementation import Analysis
from silicast.kernels.products.stored_weights import (
    StoredKernel,
    StoredRates,
    analyse_stored,
    bits_of_rows,
    stored_rates,
)
from silicast.kernels.registry import register
from silicast.workload.graphs.op import Op, OpBatch, Variant


class StoredMoe(StoredKernel):
    """Experts of stored weights, on any execution model."""

    family: ClassVar[str] = "quantized_moe"
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {
        "tokens": (1, 1 << 24),
        "experts": (1, 1 << 12),
        "topk": (1, 64),
        "hidden": (1, 1 << 17),
        "intermediate": (1, 1 << 18),
    }

    @final
    def analyse(self, batch: OpBatch, device: Device) -> Analysis:
        rates = stored_rates(batch.variant, device)
        assigned, used, expert, hidden = _layer(batch)
        return analyse_stored(
            rates,
            batch.variant,
            ops=2.0 * assigned * expert,
            weights=used * expert,
            row_groups=used,
            columns=_columns(batch),
            rows_each=assigned / used,
            rows=xp.float64(batch.dims["tokens"]),
            activation_bytes=2.0 * assigned * hidden * (bits_of_rows(rates.recipe) / 8.0),
            launch_s=_launch_s(batch.variant, rates),
            efficiency=rates.experts_efficiency,
        )

    @final
    def flops(self, op: Op) -> int:
        """2 x assignments x weights of one expert."""
        size = _plain(op)
        return 2 * size["tokens"] * size["topk"] * _expert(size, op.variant)

    @final
    def compulsory_bytes(self, op: Op) -> int:
        """Weights of the experts that are used, and a row in and out for each assignment."""
        size = _plain(op)
        columns = (np.array([size[name]]) for name in ("tokens", "experts", "topk"))
        used = float(_used(*columns)[0])
        recipe = recipe_for(op.variant.dtype)
        rows = 2 * size["tokens"] * size["topk"] * size["hidden"]
        bits = used * _expert(size, op.variant) * recipe.weight_bits + rows * bits_of_rows(recipe)
        return -int(-bits // 8)

    @final
    def counts(self, batch: OpBatch) -> tuple[F64, F64]:
        assigned, used, expert, hidden = _layer(batch)
        recipe = recipe_for(batch.variant.dtype)
        bits = used * expert * recipe.weight_bits
        bits = bits + 2.0 * assigned * hidden * bits_of_rows(recipe)
        return 2.0 * assigned * expert, xp.ceil(bits / 8.0)


def stored_expert_weights(batch: OpBatch) -> F64:
    """Weights of the experts that get a token, shape (n,)."""
    _, used, expert, _ = _layer(batch)
    return used * expert


def _layer(batch: OpBatch) -> tuple[F64, F64, F64, F64]:
    """Assignments, experts that get a token, weights of one of them, and the hidden size; of one of
    the ranks that share the experts or their width.
    """
    dims, ones = batch.dims, batch.filled(1)
    topk = xp.minimum(dims["topk"], dims["experts"])
    ep, tp = dims.get("ep", ones), dims.get("tp", ones)
    used = _used(dims["tokens"], dims["experts"], topk) / ep
    hidden, inner = xp.float64(dims["hidden"]), xp.ceil(dims["intermediate"] / tp)
    assigned = xp.float64(dims["tokens"] * topk) / ep
    return assigned, used, hidden * inner * _matrices(batch.variant), hidden


def _columns(batch: OpBatch) -> F64:
    """Columns of results of one expert's products, all together: of those before the activation the
    inner width, of the one behind it the hidden size.
    """
    variant = batch.variant
    inner = xp.ceil(batch.dims["intermediate"] / batch.dims.get("tp", batch.filled(1)))
    last = not variant.flag("w13")
    first = _matrices(variant) - last
    columns: F64 = first * inner + last * xp.float64(batch.dims["hidden"])
    return columns


def _used(tokens: I64, experts: I64, topk: I64) -> F64:
    """Experts that get a token, in whole 1024ths: no rounding of a logarithm shows."""
    used: F64 = xp.maximum(xp.rint(experts_used(tokens, experts, topk) * 1024.0) / 1024.0, topk)
    return used


def _launch_s(variant: Variant, rates: StoredRates) -> float:
    """A kernel for each product, and those that choose the experts and sum their results, which go
    with the products behind the activation where the sides are calls of their own.
    """
    return rates.launch_s + (0.0 if variant.flag("w13") else rates.experts_launch_s)


def _matrices(variant: Variant) -> int:
    """Matrices of one expert that the call multiplies with."""
    first = 2 if is_gated(variant) else 1
    return first if variant.flag("w13") else 1 if variant.flag("w2") else first + 1


def _plain(op: Op) -> dict[str, int]:
    size: dict[str, int] = {}
    for name, value in op.dims:
        if not isinstance(value, int):
            raise ValueError("a layer of experts has plain sizes")
        size[name] = value
    size["topk"] = min(size["topk"], size["experts"])
    return size


def _expert(size: Mapping[str, int], variant: Variant) -> int:
    inner = -(-size["intermediate"] // size.get("tp", 1))
    return size["hidden"] * inner * _matrices(variant)


@register
@final
class StoredMoeOnGpus(StoredMoe):
    """On SIMT devices."""


@register
@final
class StoredMoeOnCpus(StoredMoe):
    """On CPUs."""

    execution_model: ClassVar[str] = "vector_cpu"
