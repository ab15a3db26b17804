"""Matrix products on devices that are not SIMT.

An execution model says how many operations its units issue; traffic is that of the best of three
ways to block a product through the on-chip memory.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar, final

from silicast.core import xp
from silicast.core.dtypes import BITS, Recipe, recipe_for
from silicast.core.numerics import F64
from silicast.hardware.device import Device
from silicast.kernels.implementation import Analysis
from silicast.kernels.physics.roofline import Rates, RooflineKernel, RooflineWork, analyse_work
from silicast.kernels.products.gemm_constants import widen_ops
from silicast.kernels.products.gemm_shapes import GEMM_DIMS, gemm_sizes
from silicast.kernels.products.sparsity import is_sparse, sparse_rate, stored_bits
from silicast.workload.graphs.op import Op, OpBatch, Variant
from silicast.workload.libraries.catalog import library

HALF = 0.5
"""Share of the on-chip memory for the panel that stays; the rest streams past it in two buffers."""

RESULT_BYTES = 4.0
"""Partial sums are kept in fp32."""


class RooflineGemm(RooflineKernel):
    """C[m, n] = A[m, k] x B[k, n], ``batch`` of them, on one execution model.

    Class attributes:
        fetches_weights: software fills the on-chip memory, so that every call reads B anew.
    """

    fetches_weights: ClassVar[bool] = False
    family: ClassVar[str] = "gemm"
    takes_numbers: ClassVar[bool] = True
    dims: ClassVar[Mapping[str, tuple[int, int]]] = GEMM_DIMS

    @abstractmethod
    def rates(self, device: Device, dtype: str) -> Rates:
        """The device's rates for products in ``dtype``."""

    @abstractmethod
    def issued(
        self, device: Device, dtype: str, m: F64, n: F64, k: F64, batch: F64
    ) -> tuple[F64, F64]:
        """Operations issued, idle units included, at the peak rate; and seconds of filling."""

    def blocks(self, m: F64, n: F64, batch: F64) -> F64 | None:  # noqa: ARG002
        """Shares of the result that one unit each makes; None = any split is even."""
        return None

    def packed(self, device: Device, m: F64, n: F64, batch: F64, bytes_: F64) -> F64:  # noqa: ARG002
        """Bytes moved to lay out operands of ``bytes_`` for the units, of one product."""
        return xp.full_like(m, 0.0)

    def passes(self, device: Device, m: F64, n: F64) -> F64:  # noqa: ARG002
        """Time at memory over that of a stream."""
        return xp.full_like(m, 1.0)

    @final
    def analyse(self, batch: OpBatch, device: Device) -> Analysis:
        recipe = recipe_for(batch.variant.dtype)
        rates = self.rates(device, recipe.compute)
        m, n, k = (xp.float64(batch.dims[name]) for name in ("m", "n", "k"))
        products = xp.float64(batch.dims["batch"]) if "batch" in batch.dims else m / m
        issued, fill_s = self.issued(device, recipe.compute, m, n, k, products)
        faster = sparse_rate(batch.variant, recipe, device)
        size_a, size_b = recipe.activation_bits / 8.0, _weight_bits(batch.variant, recipe) / 8.0
        a, b = m * k * size_a, n * k * size_b
        out = m * n * (BITS[recipe.output] / 8.0)
        reads = blocked_reads(a, b, m, n, rates.chip_bytes)
        none = xp.full_like(m, 0.0)
        packed, passes = none, none + 1.0  # who calls a library directly lets it choose the layout
        if library(batch.variant.library).allocates_results:
            packed = self.packed(device, m, n, products, a + b)
            passes = self.passes(device, m, n)
        converted = none
        if batch.variant.flag("includes_quantize") and recipe.quantizes:
            converted = m * k * products
        widened = none  # vector units convert narrow weights on their way to the matrix units
        if recipe.widens and device.rate_per_core(rates.pipe, recipe.weights) == 0.0:
            widened = n * k * products * widen_ops(recipe)
        return analyse_work(
            RooflineWork(
                matrix_ops=2.0 * m * n * k * products / faster,
                matrix_issued=issued / faster,
                vector_ops=m * n * products + 4.0 * converted + widened,
                vector_useful=none,
                special_ops=none,
                read_bytes=(a + b) * products,
                write_bytes=out * products,
                moved_bytes=(reads + out) * products + 3.0 * converted,
                serial_s=fill_s,
                tasks=xp.ceil(m / 256.0) * xp.ceil(n / 256.0) * products,
                fresh_bytes=b * products if self.fetches_weights else 0.0,
                dram_passes=passes,
                packed_bytes=packed * products,
                blocks=self.blocks(m, n, products),
            ),
            rates,
            batch.variant,
        )

    @final
    def shared_log_sd(self, variant: Variant, device: Device) -> Mapping[str, float]:
        """See :meth:`Implementation.shared_log_sd`; refuses formats that there are not."""
        recipe_for(variant.dtype)
        return super().shared_log_sd(variant, device)

    @final
    def flops(self, op: Op) -> int:
        """2 m n k per product."""
        m, n, k, batch = gemm_sizes(op)
        return 2 * m * n * k * batch

    @final
    def compulsory_bytes(self, op: Op) -> int:
        """Both operands read once, the result written once, rounded up to whole bytes."""
        m, n, k, batch = gemm_sizes(op)
        recipe = recipe_for(op.variant.dtype)
        converts = op.variant.flag("includes_quantize") and recipe.quantizes
        activations = BITS[recipe.output if converts else recipe.activations]
        stored = _weight_bits(op.variant, recipe)
        bits = m * k * activations + n * k * stored + m * n * BITS[recipe.output]
        return batch * -int(-bits // 8)


def _weight_bits(variant: Variant, recipe: Recipe) -> float:
    return stored_bits(recipe) if is_sparse(variant) else recipe.weight_bits


def blocked_reads(a: F64, b: F64, m: F64, n: F64, chip_bytes: float) -> F64:
    """Operand bytes read if a panel of one operand, or a square of results, stays on chip.

    >>> import numpy as np
    >>> one = np.ones(1)
    >>> float(blocked_reads(8e6 * one, 6e6 * one, 1000 * one, 1000 * one, 4e6)[0])
    28000000.0
    """
    room = HALF * chip_bytes
    keep_a = a + b * xp.ceil(a / room)
    keep_b = b + a * xp.ceil(b / room)
    side = xp.sqrt(room / RESULT_BYTES)
    keep_c = a * xp.ceil(n / side) + b * xp.ceil(m / side)
    best: F64 = xp.minimum(xp.minimum(keep_a, keep_b), keep_c)
    return best
