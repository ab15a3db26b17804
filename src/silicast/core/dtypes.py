"""Number formats: what one element costs to store. What each compound name means for weights,
activations, scales and accumulation is :class:`Recipe` (docs/reference/dtypes.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

BITS: dict[str, float] = {
    "fp64": 64, "fp32": 32, "tf32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8,
    "int4": 4, "nvfp4": 4, "mxfp4": 4, "int32": 32, "int64": 64,
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
    """

    name: str
    weights: str
    activations: str
    output: str
    compute: str
    scale_group: int = 0
    scale_bits: int = 0
    quantizes: bool = False

    @property
    def weight_bits(self) -> float:
        """Stored bits per weight with its share of the scales."""
        scale = self.scale_bits / self.scale_group if self.scale_group > 0 else 0.0
        return BITS[self.weights] + scale


RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe("fp64", "fp64", "fp64", "fp64", "fp64"),
        Recipe("fp32", "fp32", "fp32", "fp32", "fp32"),
        Recipe("tf32", "fp32", "fp32", "fp32", "tf32"),
        Recipe("bf16", "bf16", "bf16", "bf16", "bf16"),
        Recipe("fp16", "fp16", "fp16", "fp16", "fp16"),
        Recipe("fp8", "fp8", "fp8", "bf16", "fp8", -1, 32),
    )
}
