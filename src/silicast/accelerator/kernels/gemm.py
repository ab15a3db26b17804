"""Matrix products on designs: mapped, in any orientation that the rules allow."""

from __future__ import annotations

from typing import ClassVar, cast, final

from silicast.accelerator.counting.einsum import WEIGHTS
from silicast.accelerator.design.chip import GROUP, Chip, Left, chip_of
from silicast.accelerator.kernels.mapped import (
    MappedKernel,
    analysed,
    format_of,
    load_of,
    products,
    vector_cost,
)
from silicast.accelerator.zeros.density import Densities
from silicast.core import xp
from silicast.core.dtypes import BITS, Recipe, recipe_for
from silicast.hardware.device import Device
from silicast.kernels.implementation import Analysis, Implementation
from silicast.kernels.products.gemm_constants import widen_ops
from silicast.kernels.products.sparsity import is_sparse, sparse_rate
from silicast.kernels.registry import implementation_for, register
from silicast.workload.graphs.op import OpBatch, Variant

TWO_IN_FOUR = "2:4:0"
"""Of the four weights that are multiplied one after the other: along K."""
_ON_GPUS = cast("Implementation", implementation_for("gemm", "simt"))


@register
@final
class NestGemm(MappedKernel):
    """C[m, n] = A[m, k] x B[k, n], ``batch`` of them."""

    family: ClassVar[str] = "gemm"
    group: ClassVar[str] = GROUP
    original = _ON_GPUS
    dims = _ON_GPUS.dims
    takes_numbers: ClassVar[bool] = True

    def analyse(self, batch: OpBatch, device: Device) -> Analysis:
        recipe = recipe_for(batch.variant.dtype)
        fmt = format_of(device, batch.variant.dtype)
        m, n, k = (xp.float64(batch.dims[name]) for name in ("m", "n", "k"))
        b = xp.float64(batch.dims["batch"]) if "batch" in batch.dims else m / m
        chip = chip_of(device)
        densities, left = _zeros(chip, batch.variant, recipe, device)
        result = products(device, fmt, b, m, n, k, densities=densities, weights_each=False)
        load = load_of(device, fmt, result)
        in_bytes = left.inputs * recipe.activation_bits / 8.0
        rows = m * k * in_bytes * b
        written = m * n * b * (left.outputs * BITS[recipe.output] / 8.0)
        simple = 0.0 * m
        if batch.variant.flag("includes_quantize") and recipe.quantizes:
            simple = simple + 4.0 * m * k * b
        if recipe.widens:
            simple = simple + n * k * b * widen_ops(recipe)
        vector_s, joules = vector_cost(device, simple, 0.0 * m)
        return analysed(
            device,
            batch.variant,
            load,
            flops=2.0 * m * n * k * b,
            read=rows + n * k * b * (left.weights * recipe.weight_bits / 8.0),
            written=written,
            vector_s=vector_s,
            vector_joules=joules,
            products=left.products,
            between=rows + written,
        )


def _zeros(chip: Chip, variant: Variant, recipe: Recipe, device: Device) -> tuple[Densities, Left]:
    """Densities of a product, and what is there at least: those of the file, or 2:4 weights.

    Raises:
        SilicastError: weights are 2:4 sparse, and the design leaves no zeros out.
    """
    if not is_sparse(variant):
        return chip.densities, chip.left
    if not chip.design.architecture.knows_zeros:
        sparse_rate(variant, recipe, device)
    densities = tuple(sorted({**dict(chip.densities), WEIGHTS: TWO_IN_FOUR}.items()))
    return densities, Left.from_densities(densities)
