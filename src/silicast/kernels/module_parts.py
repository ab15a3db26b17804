"""What sparse attention modules have in common: formats from flags, and parts of usual kinds."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from silicast.core import xp
from silicast.core.dtypes import RECIPES, Recipe, recipe_for
from silicast.core.numerics import F64, I64
from silicast.hardware.device import Device
from silicast.kernels.timed_parts import PartBatch
from silicast.workload.op import OpBatch, Variant

GEMM = "gemm_"
"""Prefix of the flag that names the format of a module's linear layers: "gemm_fp8_block"."""
PRODUCTS = "products"
MOVES = "moves"
COPY = Variant(dtype="bf16", flags=(("copy", True),))


SHORT_TOKENS = 2048
"""Up to so many all of these models select everything."""
EARLY = {"sglang": ("0.5.10",), "vllm": ("0.19.0", "0.22.0")}
"""Engine -> versions whose modules launch other kernels between the large ones than newer ones."""


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


def module_styles(module: str, variant: Variant, device: Device) -> tuple[str, ...]:
    """Whose constants, from the least to the most particular: module and phase; library; format of
    the linear layers; whether the host is one with a link of its own to the device (Grace) or
    PCIe's, where launching counts; a library's release.
    """
    recipe = linear_recipe(variant).name
    narrow = recipe if recipe in ("fp8_block", "nvfp4") else "bf16"
    phase = "generation" if is_decode(variant) else "context"
    library = variant.library or "sglang"
    found = [f"{module}_{phase}", f"{module}_{library}_{phase}"]
    style = f"{module}_{library}_{narrow}_{phase}"
    early = "_early" if variant.version in EARLY.get(library, ()) else ""
    for suffix in ("", "_grace" if "nvlink_c2c" in device.links else "", early):
        style += suffix
        found.append(style)
    return tuple(dict.fromkeys(found))


def launching_s(c: Mapping[str, float], batch: I64, kv: I64, *, skips: bool = False) -> F64:
    """What the host takes to launch a module's kernels where no graph does; without an indexer, or
    where all that is seen would be selected, there are fewer.
    """
    long = c["skip_host_s" if skips else "host_s"]
    eager = xp.where(kv <= SHORT_TOKENS, c["short_host_s"], long)
    found: F64 = xp.where(batch > c["graph_batch"], eager, 0.0)
    return found


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
