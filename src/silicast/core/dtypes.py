"""Number formats: what one element costs to store, and what each compound name means for
weights, activations, scales and accumulation (docs/reference/dtypes.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from silicast.core.errors import SilicastError
from silicast.core.naming import NameIndex

BITS: dict[str, float] = {
    "fp64": 64, "fp32": 32, "tf32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "int4": 4,
    "nvfp4": 4, "mxfp4": 4, "mxfp8": 8, "int16": 16, "int32": 32, "int64": 64, "bool": 8,
}  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class Recipe:
    """How a matrix product is stored and computed.

    Attributes:
        name: the canonical name ("bf16", "fp8", "fp8_block", "int4_wo", ...).
        weights, activations, output: storage formats (keys of :data:`BITS`).
        compute: the pipe format in which products are formed.
        scale_group: elements that share one scale (0 = none, -1 = per tensor or row).
        scale_bits: bits of one scale.
        quantizes: activations arrive in ``output`` format and are quantised by the call.
        modelled: the dense GEMM model predicts it; other recipes are known by name only.
    """

    name: str
    weights: str
    activations: str
    output: str
    compute: str
    scale_group: int = 0
    scale_bits: int = 0
    quantizes: bool = False
    modelled: bool = True

    @property
    def weight_bits(self) -> float:
        """Stored bits per weight with its share of the scales."""
        scale = self.scale_bits / self.scale_group if self.scale_group > 0 else 0.0
        return BITS[self.weights] + scale

    @property
    def activation_bits(self) -> float:
        """Stored bits per activation as the multiplication reads it, with its share of the scales.

        Only formats that the tensor cores multiply in blocks carry scales on both sides.
        """
        grouped = self.scale_group > 0 and self.activations == self.compute
        return BITS[self.activations] + (self.scale_bits / self.scale_group if grouped else 0.0)


RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe("fp64", "fp64", "fp64", "fp64", "fp64"),
        Recipe("fp32", "fp32", "fp32", "fp32", "fp32"),
        Recipe("tf32", "fp32", "fp32", "fp32", "tf32"),
        Recipe("bf16", "bf16", "bf16", "bf16", "bf16"),
        Recipe("fp16", "fp16", "fp16", "fp16", "fp16"),
        Recipe("fp8", "fp8", "fp8", "bf16", "fp8", -1, 32, quantizes=True),
        Recipe("fp8_static", "fp8", "fp8", "bf16", "fp8", -1, 32),
        Recipe("fp8_block", "fp8", "fp8", "bf16", "fp8", 128, 32, quantizes=True),
        Recipe("mxfp8", "mxfp8", "mxfp8", "bf16", "fp8", 32, 8, quantizes=True, modelled=False),
        Recipe("int8", "int8", "int8", "bf16", "int8", -1, 32, quantizes=True),
        Recipe("sq", "int8", "int8", "bf16", "int8", -1, 32, quantizes=True, modelled=False),
        Recipe("int8_wo", "int8", "bf16", "bf16", "bf16", -1, 16, modelled=False),
        Recipe("int4_wo", "int4", "bf16", "bf16", "bf16", 128, 16, modelled=False),
        Recipe("nvfp4", "nvfp4", "nvfp4", "bf16", "nvfp4", 16, 8, quantizes=True, modelled=False),
        Recipe("nvfp4_wo", "nvfp4", "bf16", "bf16", "bf16", 16, 8, modelled=False),
        Recipe("mxfp4", "mxfp4", "mxfp4", "bf16", "nvfp4", 32, 8, quantizes=True, modelled=False),
        Recipe("w4a16_mxfp4", "mxfp4", "bf16", "bf16", "bf16", 32, 8, modelled=False),
        Recipe("w4a8_mxfp4_mxfp8", "mxfp4", "mxfp8", "bf16", "fp8", 32, 8, True, modelled=False),
        Recipe("w4afp8", "int4", "fp8", "bf16", "fp8", 128, 16, quantizes=True, modelled=False),
        Recipe("fp8_fp4", "nvfp4", "fp8", "bf16", "fp8", 16, 8, quantizes=True, modelled=False),
    )
}

ALIASES: dict[str, tuple[str, ...]] = {
    "fp64": ("float64", "double"),
    "fp32": ("float32", "float"),
    "bf16": ("bfloat16",),
    "fp16": ("float16", "half"),
    "fp8": ("fp8_e4m3", "fp8_e5m2", "e4m3", "float8_e4m3fn"),
    "int8": ("w8a8", "w8a8_int8"),
    "int8_wo": ("w8a16",),
    "int4_wo": ("w4a16",),
    "nvfp4": ("fp4",),
    "nvfp4_wo": ("w4a16_nvfp4",),
}
"""Canonical recipe name -> other names in use."""

_INDEX = NameIndex(
    "dtype", {name: (recipe, ALIASES.get(name, ())) for name, recipe in RECIPES.items()}
)


def recipe_for(name: str, *, field: str = "") -> Recipe:
    """The recipe of a canonical or alternative name; case and a "torch." prefix do not count.

    Raises:
        SilicastError: no such recipe; the nearest names are offered.

    >>> recipe_for("torch.bfloat16").name
    'bf16'
    """
    try:
        return _INDEX.get(name.strip().casefold().removeprefix("torch."))
    except SilicastError as error:
        raise (error.at(field) if field else error) from None


def modelled_recipe(name: str, *, field: str = "") -> Recipe:
    """Like :func:`recipe_for`, for callers that need a dense GEMM time of it.

    Raises:
        SilicastError: unknown name, or (kind "not_yet") a recipe without a kernel model.
    """
    recipe = recipe_for(name, field=field)
    if not recipe.modelled:
        known = ", ".join(r.name for r in RECIPES.values() if r.modelled)
        raise SilicastError(
            f"matrix products in {recipe.name} are not modelled yet",
            kind="not_yet",
            field=field or "dtype",
            hint=f"modelled: {known}",
        )
    return recipe
