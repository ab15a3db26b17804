"""Convolutions on CPUs, as oneDNN-class libraries run them on images in PyTorch's order (NCHW).

The direct sum runs over full blocks of channels. A framework's images, filters and results are
laid out anew in such blocks for it, whole images even where a window skips most of them; a library
on its own keeps them so.
"""

from __future__ import annotations

from typing import ClassVar, cast, final

from silicast.core import xp
from silicast.core.dtypes import BITS, RECIPES
from silicast.core.numerics import F64
from silicast.hardware.device import Device
from silicast.kernels.conv2d import Conv2d
from silicast.kernels.conv2d_shapes import Shape, fewest_products
from silicast.kernels.fallback_kernels import Fallback
from silicast.kernels.implementation import Analysis, implementation_for, register
from silicast.kernels.physics import load_physics
from silicast.kernels.vector_cpu.rates import GROUP, cpu_rates
from silicast.kernels.work_model import ALLOCATING, Work, analyse_work
from silicast.workload.op import OpBatch

BLOCK = 8.0
"""Channels of a block: a register of fp32 with AVX2."""

_ON_GPUS = cast("Conv2d", implementation_for("conv2d", "simt"))


@register
@final
class CpuConv2d(Fallback):
    """Forward and gradients alike: the same sum over other operands."""

    execution_model: ClassVar[str] = "vector_cpu"
    family: ClassVar[str] = "conv2d"
    group: ClassVar[str] = GROUP
    original = _ON_GPUS
    dtypes = _ON_GPUS.dtypes
    dims = _ON_GPUS.dims
    lessening = _ON_GPUS.lessening
    rates_of = staticmethod(cpu_rates)

    def analyse(self, batch: OpBatch, device: Device) -> Analysis:
        """See :meth:`Implementation.analyse`."""
        recipe = RECIPES[batch.variant.dtype]
        rates = cpu_rates(device, recipe.compute)
        c = load_physics(GROUP).constants(device.architecture)
        shape = Shape.of(batch.dims).floats()
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
        if batch.variant.library in ALLOCATING:
            packed = c["packing"] * (images + results + shape.elements_filter * sizes[1])
            fresh = sum((x * (x >= rates.fresh_from_bytes) for x in (images, results)), none)
            serial_s = c["convolution_s"] + fresh * rates.fresh_s_per_byte
        return analyse_work(
            Work(
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
    return xp.ceil(channels / BLOCK) * BLOCK / channels
