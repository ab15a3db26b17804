"""Matrix products of back ends for local use: weights stored in blocks, or as plain floats.

C[m, n] = A[m, k] x B[k, n]; B is stored (:mod:`silicast.kernels.products.stored_weights`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from silicast.core import xp
from silicast.core.dtypes import recipe_for
from silicast.core.numerics import F64
from silicast.hardware.device import Device
from silicast.kernels.implementation import Analysis
from silicast.kernels.products.gemm_shapes import GEMM_DIMS, gemm_sizes
from silicast.kernels.products.stored_weights import (
    StoredKernel,
    analyse_stored,
    bits_of_rows,
    stored_rates,
)
from silicast.kernels.registry import register
from silicast.workload.graphs.op import Op, OpBatch


class StoredGemm(StoredKernel):
    """Products of stored weights, on any execution model."""

    family: ClassVar[str] = "quantized_gemm"
    takes_numbers: ClassVar[bool] = True
    dims: ClassVar[Mapping[str, tuple[int, int]]] = GEMM_DIMS

    @final
    def analyse(self, batch: OpBatch, device: Device) -> Analysis:
        rates = stored_rates(batch.variant, device)
        m, n, k, count = _sizes(batch)
        bytes_each = bits_of_rows(rates.recipe) / 8.0
        return analyse_stored(
            rates,
            batch.variant,
            ops=2.0 * m * n * k * count,
            weights=n * k * count,
            row_groups=count,
            columns=n,
            rows_each=m,
            rows=m,
            activation_bytes=m * (n + k) * count * bytes_each,
            launch_s=rates.launch_s,
        )

    @final
    def flops(self, op: Op) -> int:
        """2 m n k per product."""
        m, n, k, count = gemm_sizes(op)
        return 2 * m * n * k * count

    @final
    def compulsory_bytes(self, op: Op) -> int:
        """Stored weights, activations and results, once each, rounded up to whole bytes."""
        m, n, k, count = gemm_sizes(op)
        recipe = recipe_for(op.variant.dtype)
        bits = n * k * recipe.weight_bits + m * (n + k) * bits_of_rows(recipe)
        return count * -int(-bits // 8)

    @final
    def counts(self, batch: OpBatch) -> tuple[F64, F64]:
        m, n, k, count = _sizes(batch)
        recipe = recipe_for(batch.variant.dtype)
        bits = n * k * recipe.weight_bits + m * (n + k) * bits_of_rows(recipe)
        return 2.0 * m * n * k * count, count * xp.ceil(bits / 8.0)


def _sizes(batch: OpBatch) -> tuple[F64, F64, F64, F64]:
    m, n, k = (xp.float64(batch.dims[name]) for name in ("m", "n", "k"))
    count = batch.dims.get("batch")
    return m, n, k, batch.filled(1.0) if count is None else xp.float64(count)


@register
@final
class StoredGemmOnGpus(StoredGemm):
    """On SIMT devices."""


@register
@final
class StoredGemmOnCpus(StoredGemm):
    """On CPUs."""

    execution_model: ClassVar[str] = "vector_cpu"
