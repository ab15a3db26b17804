"""Kernels on CPUs: cores with vector units, some with matrix tiles, over caches and DRAM.

Matrix products and convolutions are those of oneDNN-class libraries; attention runs one thread a
head and block of queries.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import ClassVar, final

from silicast.core import xp
from silicast.core.dtypes import BITS, RECIPES
from silicast.core.numerics import F64
from silicast.hardware.device import Device
from silicast.kernels.convolution.conv2d_shapes import ConvolutionShape, fewest_products
from silicast.kernels.execution_models.conv2d_elsewhere import Conv2dElsewhere
from silicast.kernels.execution_models.fallback_kernels import adapter
from silicast.kernels.execution_models.roofline_attention import RooflineAttention, register_both
from silicast.kernels.execution_models.roofline_gemm import RooflineGemm
from silicast.kernels.implementation import Analysis
from silicast.kernels.physics.constants import load_physics
from silicast.kernels.physics.power import silicon
from silicast.kernels.physics.roofline import Rates, RooflineWork, analyse_work, caches
from silicast.kernels.registry import register, register_adapter
from silicast.workload.graphs.op import OpBatch
from silicast.workload.libraries.catalog import library

GROUP = "vector_cpu"
TILE_ROWS, TILE_COLUMNS, TILE_ROW_BYTES = 16.0, 16.0, 64.0
"""AMX: a tile has 16 rows of 64 bytes; the result 16 x 16 (Intel 64 manual)."""

VECTOR_COLUMNS = 16.0
"""Columns of the inner kernel of a vector product: one 64-byte register of fp32, or two halves."""


@lru_cache(maxsize=1024)
def cpu_rates(device: Device, dtype: str) -> Rates:
    """Rates of ``device`` for products in ``dtype``.

    Raises:
        SilicastError: the device does not multiply in ``dtype``.
    """
    c = load_physics(GROUP).constants(device.architecture)
    cache_levels, built = caches(device), silicon(device)
    as_built = {**cache_levels, **caches(built)}  # more cores of a description change no order
    order = sorted(cache_levels, key=lambda name: as_built[name])
    levels = [
        (cache_levels[name][0], cache_levels[name][1] * c["chip_efficiency"]) for name in order
    ]
    return replace(
        Rates.from_device(device, dtype, c, float(device.cores)),
        levels=tuple(levels),
        thread_bytes=c["thread_bytes"],
        fork_s=c["fork_s"] if device.cores > 1 else 0.0,
        memory_units=float(built.cores),
        fresh_from_bytes=c["fresh_from_bytes"],
        fresh_s_per_byte=c["page_fault_s"]
        / (c["page_bytes"] * min(float(device.cores), c["fault_cores"])),
    )


def padded_ops(device: Device, dtype: str, rows: F64, columns: F64, depth: F64) -> F64:
    """Operations of one product with its sides rounded up to the instruction's tile."""
    if device.matrix_pipe(dtype) == "tensor":
        step = TILE_ROW_BYTES * 8.0 / BITS.get(dtype, 16.0)
        m, n = xp.ceil(rows / TILE_ROWS) * TILE_ROWS, xp.ceil(columns / TILE_COLUMNS) * TILE_COLUMNS
        tiled: F64 = 2.0 * m * n * xp.ceil(depth / step) * step
        return tiled
    padded: F64 = 2.0 * rows * xp.ceil(columns / VECTOR_COLUMNS) * VECTOR_COLUMNS * depth
    return padded


BLOCK_COLUMNS = 32.0
BLOCK_ROWS = 32.0
"""A core's smallest share of a result: two tiles on each side."""


@register
@final
class CpuGemm(RooflineGemm):
    """Products of oneDNN-class libraries."""

    execution_model: ClassVar[str] = "vector_cpu"
    group: ClassVar[str] = GROUP

    def rates(self, device: Device, dtype: str) -> Rates:
        return cpu_rates(device, dtype)

    def issued(
        self, device: Device, dtype: str, m: F64, n: F64, k: F64, batch: F64
    ) -> tuple[F64, F64]:
        return padded_ops(device, dtype, m, n, k) * batch, xp.full_like(m, 0.0)

    def blocks(self, m: F64, n: F64, batch: F64) -> F64:
        blocks: F64 = xp.ceil(m / BLOCK_ROWS) * xp.ceil(n / BLOCK_COLUMNS) * batch
        return blocks

    def packed(self, device: Device, m: F64, n: F64, batch: F64, bytes_: F64) -> F64:
        """See :class:`RooflineGemm`: panels are copied, but for products with a vector."""
        c = load_physics(GROUP).constants(device.architecture)
        packing = xp.where(batch > 1.0, c["packing_of_many"], c["packing"])
        return xp.where(xp.minimum(m, n) > 1.0, packing * bytes_, 0.0)

    def passes(self, device: Device, m: F64, n: F64) -> F64:
        """See :class:`RooflineGemm`: products with a vector of operands as they are, slower than a
        stream.
        """
        c = load_physics(GROUP).constants(device.architecture)
        return xp.where(xp.minimum(m, n) > 1.0, 1.0, c["vector_passes"])


@register_both
class CpuAttention(RooflineAttention):
    """Attention on CPUs."""

    execution_model: ClassVar[str] = "vector_cpu"
    group: ClassVar[str] = GROUP

    @final
    def rates(self, device: Device, dtype: str) -> Rates:
        return cpu_rates(device, dtype)

    @final
    def issued(self, device: Device, dtype: str, rows: F64, keys: F64, width: F64) -> F64:
        scores = padded_ops(device, dtype, rows, keys, width)
        return scores + padded_ops(device, dtype, rows, width, keys)


BLOCK_CHANNELS = 8.0
"""Channels of a block: a register of fp32 with AVX2."""


@register
@final
class CpuConv2d(Conv2dElsewhere):
    """Forward and gradients alike: the same sum over other operands."""

    execution_model: ClassVar[str] = "vector_cpu"
    group: ClassVar[str] = GROUP
    rates_of = staticmethod(cpu_rates)

    def analyse(self, batch: OpBatch, device: Device) -> Analysis:
        recipe = RECIPES[batch.variant.dtype]
        rates = cpu_rates(device, recipe.compute)
        c = load_physics(GROUP).constants(device.architecture)
        shape = ConvolutionShape.from_dims(batch.dims).floats()
        sizes = BITS[recipe.activations] / 8.0, recipe.weight_bits / 8.0, BITS[recipe.output] / 8.0
        read = shape.elements_in * sizes[0] + shape.elements_filter * sizes[1]
        written = shape.elements_out * sizes[2]
        apart = (shape.c_of_group == 1.0) & (shape.groups > 1.0)
        padding_in = xp.where(shape.groups > 1.0, _padding(shape.c), 1.0)
        padding_out = xp.where(apart, padding_in, _padding(shape.k_of_group))
        issued = 2.0 * shape.macs * padding_out * xp.where(apart, c["apart_slowdown"], 1.0)
        images = shape.n * shape.c * shape.h * shape.w * sizes[0] * _padding(shape.c)
        results = written * _padding(shape.k)
        none = xp.full_like(written, 0.0)
        packed, serial_s = none, none
        if library(batch.variant.library).allocates_results:
            packed = c["packing"] * (images + results + shape.elements_filter * sizes[1])
            fresh = sum((x * (x >= rates.fresh_from_bytes) for x in (images, results)), none)
            serial_s = c["convolution_s"] + fresh * rates.fresh_s_per_byte
        return analyse_work(
            RooflineWork(
                matrix_ops=2.0 * fewest_products(shape, recipe.compute),
                matrix_issued=issued,
                vector_ops=none,
                vector_useful=none,
                special_ops=none,
                read_bytes=read,
                write_bytes=written,
                moved_bytes=read + written,
                serial_s=serial_s,
                tasks=xp.maximum(shape.n * shape.groups, 1.0) * xp.ceil(shape.p),
                packed_bytes=packed,
            ),
            rates,
            batch.variant,
        )


def _padding(channels: F64) -> F64:
    """Channels of full blocks over those that there are."""
    return xp.ceil(channels / BLOCK_CHANNELS) * BLOCK_CHANNELS / channels


register_adapter("vector_cpu", adapter("vector_cpu", GROUP, cpu_rates))
