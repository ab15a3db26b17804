"""Convolutions on designs: windows that slide, or unrolled to products where the rules of the
design are those of products. Gradients are products of the same size.
"""

from __future__ import annotations

from typing import final

import numpy as np

from silicast.accelerator.counting.problems import GROUPED, WINDOWS, ProblemShape
from silicast.accelerator.design.chip import DENSE, chip_of
from silicast.accelerator.kernels.mapped import (
    ChipFormat,
    MappedKernel,
    analysed,
    format_of,
    load_of,
    products,
)
from silicast.accelerator.mapper.refit import Counted, counted
from silicast.accelerator.zeros.density import Densities
from silicast.core.dtypes import BITS, RECIPES
from silicast.core.numerics import F64, I64
from silicast.hardware.device import Device
from silicast.kernels.convolution.conv2d_shapes import ConvolutionShape
from silicast.kernels.execution_models.conv2d_elsewhere import Conv2dElsewhere
from silicast.kernels.implementation import Analysis
from silicast.kernels.registry import register
from silicast.workload.graphs.op import OpBatch


@register
@final
class NestConv2d(Conv2dElsewhere, MappedKernel):
    """Forward convolutions, grouped and depthwise, and the gradients of images and filters."""

    def analyse(self, batch: OpBatch, device: Device) -> Analysis:
        variant, recipe = batch.variant, RECIPES[batch.variant.dtype]
        fmt = format_of(device, variant.dtype)
        shape = ConvolutionShape.from_dims(batch.dims).floats()
        forward = not (variant.flag("backward_data") or variant.flag("backward_weights"))
        if forward and chip_of(device).slides:
            sliding = _sliding(device, fmt, shape)
        else:
            densities = chip_of(device).densities if forward else ()
            sliding = _unrolled(
                device, fmt, shape, densities, weights=variant.flag("backward_weights")
            )
        load = load_of(device, fmt, sliding)
        sizes = recipe.activation_bits / 8.0, recipe.weight_bits / 8.0, BITS[recipe.output] / 8.0
        left = chip_of(device).left if forward else DENSE
        image = shape.elements_in * left.inputs * sizes[0]
        written = shape.elements_out * left.outputs * sizes[2]
        return analysed(
            device,
            variant,
            load,
            flops=2.0 * shape.macs,
            read=image + shape.elements_filter * left.weights * sizes[1],
            written=written,
            products=left.products,
            between=image + written if forward else 0.0,
        )


def _sliding(device: Device, fmt: ChipFormat, shape: ConvolutionShape) -> Counted:
    """Windows of one stride along both axes; others are unrolled."""
    parts: list[tuple[I64, Counted]] = []
    even = shape.stride_h == shape.stride_w
    for stride in np.unique(shape.stride_h[even]).tolist():
        for grouped in (False, True):
            rows = np.flatnonzero(
                even & (shape.stride_h == stride) & ((shape.groups > 1.0) == grouped)
            )
            if len(rows):
                problem = ProblemShape(GROUPED if grouped else WINDOWS, int(stride))
                parts.append((rows, _windows(device, fmt, problem, _rows(shape, rows))))
    uneven = np.flatnonzero(~even)
    if len(uneven):
        densities = chip_of(device).densities
        parts.append(
            (uneven, _unrolled(device, fmt, _rows(shape, uneven), densities, weights=False))
        )
    return Counted.joined(parts)


def _rows(shape: ConvolutionShape, rows: I64) -> ConvolutionShape:
    return ConvolutionShape(**{name: value[rows] for name, value in vars(shape).items()})


def _windows(
    device: Device, fmt: ChipFormat, problem: ProblemShape, shape: ConvolutionShape
) -> Counted:
    by_dim = {
        "G": shape.groups,
        "C": shape.c_of_group,
        "M": shape.k_of_group,
        "R": shape.r,
        "S": shape.s,
        "N": shape.n,
        "P": shape.p,
        "Q": shape.q,
    }
    sizes = np.stack([by_dim[dim] for dim in problem.dims])
    # Padding is no word of main memory.
    padded_h = (shape.p - 1.0) * shape.stride_h + shape.r
    padded_w = (shape.q - 1.0) * shape.stride_w + shape.s
    there = shape.elements_in / (shape.n * shape.c * padded_h * padded_w)
    ones = np.ones_like(there)
    shares = np.stack([ones, np.minimum(there, 1.0), ones])
    chip = chip_of(device)
    return counted(chip, problem, sizes, fmt.compute, fmt.bits, fmt.column, shares, chip.densities)


def _unrolled(
    device: Device, fmt: ChipFormat, shape: ConvolutionShape, densities: Densities, *, weights: bool
) -> Counted:
    """The same multiplications as products; windows unroll on the chip, not in main memory."""
    positions = shape.n * shape.p * shape.q
    taps = shape.c_of_group * shape.r * shape.s
    there = np.minimum(shape.elements_in / (positions * taps * shape.groups), 1.0)
    ones = np.ones_like(there)
    if weights:  # filters' gradient: images are summed over
        m, n, k = shape.k_of_group, taps, positions
        shares = np.stack([there, ones, ones])
    else:
        m, n, k = positions, shape.k_of_group, taps
        shares = np.stack([ones, there, ones])
    return products(device, fmt, _whole(shape.groups), m, n, k, shares, densities)


def _whole(values: F64) -> F64:
    return np.asarray(values, dtype=np.float64)
