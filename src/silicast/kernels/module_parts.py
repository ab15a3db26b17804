"""Shared code of sparse attention modules: formats from flags, and common parts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from silicast.core.dtypes import RECIPES, Recipe, recipe_for
from silicast.core.numerics import F64, I64
from silicast.hardware.device import Device
from silicast.kernels.timed_parts import PartBatch
from silicast.workload.libraries import kernel_rule
from silicast.workload.library_file import Facts
from silicast.workload.op import OpBatch, Variant

GEMM = "gemm_"
"""Prefix of the flag that names the format of a module's linear layers: "gemm_fp8_block"."""
PRODUCTS = "products"
MOVES = "moves"

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


def module_style(module: str, variant: Variant, device: Device) -> tuple[str, str]:
    """The engine whose constants hold for a module, and the suffix of its release."""
    host = "grace" if HOST_LINK in device.links else ""
    rule = kernel_rule(module, Facts.of(variant, device.architecture, host=host))
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
    found = [f"{module}_{phase}", f"{module}_{library}_{phase}"]
    style = f"{module}_{library}_{narrow}_{phase}"
    for suffix in ("", "_grace" if HOST_LINK in device.links else "", early):
        style += suffix
        found.append(style)
    return tuple(dict.fromkeys(found))


def launching_s(c: Mapping[str, float], batch: I64, kv: I64, *, skips: bool = False) -> F64:
    """Host time to launch a module's kernels one by one; they are fewer without an indexer, and
    where everything would be selected.
    """
    long = c["skip_host_s" if skips else "host_s"]
    eager: F64 = np.where(kv <= SHORT_TOKENS, c["short_host_s"], long)
    return np.where(batch > c["graph_batch"], eager, 0.0)


def products(
    variant: Variant, m: I64, n: I64, k: I64, *, batch: I64 | None = None, plain: bool = False
) -> PartBatch:
    """A linear layer; ``plain``: in 16 bits whatever the format of the others."""
    recipe = RECIPES["bf16"] if plain or batch is not None else linear_recipe(variant)
    flags = (("includes_quantize", True),) if recipe.quantizes else ()
    dims = {"m": m, "n": n, "k": k}
    if batch is not None:
        dims["batch"] = batch
    kind = Variant(dtype=recipe.name, library=variant.library, flags=flags)
    return PartBatch(PRODUCTS, OpBatch("gemm", kind, dims))


def moves(elements: I64) -> PartBatch:
    """Norms, rotations, conversions and copies: ``elements`` read and written."""
    kind = Variant(dtype="bf16", flags=(("copy", True),))
    dims = {"elements": np.maximum(elements, 1), "inputs": np.ones_like(elements)}
    return PartBatch(MOVES, OpBatch("elementwise", kind, dims))


def weight_bytes(recipe: Recipe, weights: I64) -> I64:
    """Bytes of so many weights with their share of the scales, whole bytes."""
    return (weights * int(recipe.weight_bits * 64)) // 512
