"""Kernels on matrix engines fed by software: TPU, Trainium and Inferentia, Gaudi, Ascend.

Products are weight-stationary tiles, padded to the array. In attention, keys and then values stay
in the array while queries stream.
"""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar, final

from silicast.core import xp
from silicast.core.dtypes import BITS, RECIPES
from silicast.core.numerics import F64
from silicast.hardware.device import Device, MatrixArray
from silicast.kernels.convolution.conv2d_shapes import ConvolutionShape, fewest_products
from silicast.kernels.execution_models.conv2d_elsewhere import Conv2dElsewhere
from silicast.kernels.execution_models.fallback_kernels import adapter
from silicast.kernels.execution_models.roofline_attention import RooflineAttention, register_both
from silicast.kernels.execution_models.roofline_gemm import RooflineGemm
from silicast.kernels.implementation import Analysis
from silicast.kernels.physics.constants import load_physics
from silicast.kernels.physics.roofline import Rates, RooflineWork, analyse_work
from silicast.kernels.registry import register, register_adapter
from silicast.workload.graphs.op import OpBatch

GROUP = "systolic"


@lru_cache(maxsize=1024)
def systolic_rates(device: Device, dtype: str) -> Rates:
    """Rates of ``device`` for products in ``dtype``.

    Raises:
        SilicastError: the device does not multiply in ``dtype``.
    """
    c = load_physics(GROUP).constants(device.architecture)
    array = array_of(device)
    return Rates.from_device(device, dtype, c, float(device.cores * array.count))


def array_of(device: Device) -> MatrixArray:
    """The arrays of one core; one multiplier where a device file does not say."""
    return device.core.array or MatrixArray(1, 1)


def array_cycles(
    array: MatrixArray, arrays: float, rows: F64, columns: F64, depth: F64, count: F64, load: float
) -> F64:
    """Row steps of the busiest of ``arrays`` for ``count`` products with stationary weights.

    The stationary operand is depth x columns, cut into tiles of the array's size; ``rows`` stream
    through each. A tile takes at least ``load`` of the array's rows to be replaced. With fewer
    tiles than arrays, the stream is cut instead.

    >>> import numpy as np
    >>> array, one = MatrixArray(128, 128), np.ones(1)
    >>> float(array_cycles(array, 4.0, 512 * one, 256 * one, 256 * one, one, 1.0)[0])
    512.0
    >>> float(array_cycles(array, 4.0, 8 * one, 256 * one, 256 * one, one, 1.0)[0])
    128.0
    """
    tiles = xp.ceil(depth / array.rows) * xp.ceil(columns / array.columns) * count
    parts = xp.maximum(xp.floor(arrays / tiles), 1.0)
    share = xp.ceil(rows / parts)
    cycles: F64 = xp.ceil(tiles / arrays) * xp.maximum(share, array.rows * load)
    return cycles


def issued_by_arrays(
    device: Device, rows: F64, columns: F64, depth: F64, count: F64, load: float
) -> F64:
    """Operations issued for products of either orientation: the better operand stays put."""
    array = array_of(device)
    arrays = float(device.cores * array.count)
    as_is = array_cycles(array, arrays, rows, columns, depth, count, load)
    transposed = array_cycles(array, arrays, columns, rows, depth, count, load)
    return xp.minimum(as_is, transposed) * (2.0 * array.rows * array.columns * arrays)


@register
@final
class SystolicGemm(RooflineGemm):
    """Products tile by tile: fill and drain once, weights reloaded behind the stream."""

    execution_model: ClassVar[str] = "systolic"
    group: ClassVar[str] = GROUP
    fetches_weights: ClassVar[bool] = True

    def rates(self, device: Device, dtype: str) -> Rates:
        return systolic_rates(device, dtype)

    def issued(
        self,
        device: Device,
        dtype: str,  # noqa: ARG002
        m: F64,
        n: F64,
        k: F64,
        batch: F64,
    ) -> tuple[F64, F64]:
        c = load_physics(GROUP).constants(device.architecture)
        array = array_of(device)
        issued = issued_by_arrays(device, m, n, k, batch, c["weight_load"])
        fill = (array.rows + array.columns) / device.clocks.boost_hz
        return issued, xp.full_like(m, fill)


@register_both
class SystolicAttention(RooflineAttention):
    """Attention on systolic arrays."""

    execution_model: ClassVar[str] = "systolic"
    group: ClassVar[str] = GROUP
    fetches_cache: ClassVar[bool] = True

    @final
    def rates(self, device: Device, dtype: str) -> Rates:
        return systolic_rates(device, dtype)

    @final
    def issued(
        self,
        device: Device,
        dtype: str,  # noqa: ARG002
        rows: F64,
        keys: F64,
        width: F64,
    ) -> F64:
        """See :class:`RooflineAttention`; heads fill the arrays side by side."""
        array = array_of(device)
        load = array.rows * load_physics(GROUP).constants(device.architecture)["weight_load"]
        steps = xp.maximum(rows, load)
        scores = xp.ceil(width / array.rows) * xp.ceil(keys / array.columns)
        values = xp.ceil(keys / array.rows) * xp.ceil(width / array.columns)
        issued: F64 = (scores + values) * steps * (2.0 * array.rows * array.columns)
        return issued


@register
@final
class SystolicConv2d(Conv2dElsewhere):
    """Convolutions as products of unrolled windows: each group's filters stay in the arrays while
    positions stream through. Gradients are the same multiplications over other operands.
    """

    execution_model: ClassVar[str] = "systolic"
    group: ClassVar[str] = GROUP
    rates_of = staticmethod(systolic_rates)

    def analyse(self, batch: OpBatch, device: Device) -> Analysis:
        recipe = RECIPES[batch.variant.dtype]
        rates = systolic_rates(device, recipe.compute)
        c = load_physics(GROUP).constants(device.architecture)
        array, shape = array_of(device), ConvolutionShape.from_dims(batch.dims).floats()
        positions = shape.n * shape.p * shape.q
        taps, filters = shape.c_of_group * shape.r * shape.s, shape.k_of_group
        if batch.variant.flag("backward_weights"):
            positions, taps = taps, positions
        issued = issued_by_arrays(device, positions, filters, taps, shape.groups, c["weight_load"])
        sizes = recipe.activation_bits / 8.0, recipe.weight_bits / 8.0, BITS[recipe.output] / 8.0
        weights = shape.elements_filter * sizes[1]
        read, written = shape.elements_in * sizes[0] + weights, shape.elements_out * sizes[2]
        none = xp.full_like(read, 0.0)
        return analyse_work(
            RooflineWork(
                matrix_ops=2.0 * fewest_products(shape, recipe.compute),
                matrix_issued=issued,
                vector_ops=shape.elements_out,
                vector_useful=none,
                special_ops=none,
                read_bytes=read,
                write_bytes=written,
                moved_bytes=read + written,
                serial_s=none + (array.rows + array.columns) / device.clocks.boost_hz,
                tasks=xp.ceil(positions / array.rows) * shape.groups,
                fresh_bytes=weights,
            ),
            rates,
            batch.variant,
        )


register_adapter("systolic", adapter("systolic", GROUP, systolic_rates))
