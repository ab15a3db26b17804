"""Matrix products on designs: mapped, in any orientation that the rules allow."""

from __future__ import annotations

from typing import ClassVar, cast, final

from silicast.accelerator.chip import GROUP
from silicast.accelerator.kernels.mapped import (
    MappedKernel,
    analysed,
    format_of,
    load_of,
    products,
    vector_cost,
)
from silicast.core import xp
from silicast.core.dtypes import BITS, recipe_for
from silicast.hardware.device import Device
from silicast.kernels.gemm_constants import widen_ops
from silicast.kernels.implementation import Analysis, Implementation, implementation_for, register
from silicast.workload.op import OpBatch

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
        """See :meth:`Implementation.analyse`."""
        recipe = recipe_for(batch.variant.dtype)
        fmt = format_of(device, batch.variant.dtype)
        m, n, k = (xp.float64(batch.dims[name]) for name in ("m", "n", "k"))
        b = xp.float64(batch.dims["batch"]) if "batch" in batch.dims else m / m
        load = load_of(device, fmt, products(device, fmt, b, m, n, k))
        read = (m * k * (recipe.activation_bits / 8.0) + n * k * (recipe.weight_bits / 8.0)) * b
        simple = 0.0 * m
        if batch.variant.flag("includes_quantize") and recipe.quantizes:
            simple = simple + 4.0 * m * k * b
        if recipe.widens:
            simple = simple + n * k * b * widen_ops(recipe)
        vector_s, joules = vector_cost(device, simple, 0.0 * m)
        return analysed(
            device, batch.variant, load, flops=2.0 * m * n * k * b, read=read,
            written=m * n * b * (BITS[recipe.output] / 8.0), vector_s=vector_s,
            vector_joules=joules,
        )  # fmt: skip
