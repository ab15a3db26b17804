"""Operators of PyTorch on images, and norms: convolutions, pools, resizing, statistics."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from silicast.workload.front_ends.builders import (
    Window,
    convolution,
    moved,
    movement,
    pointwise,
    row_norm,
)
from silicast.workload.front_ends.call import Call, Kernel, Value
from silicast.workload.front_ends.operators import lowers


@lowers("aten.convolution", "aten.convolution_overrideable", "aten._convolution")
def _convolution(call: Call) -> Iterable[Kernel]:
    """A library's convolution, and its bias as a sum of its own; depthwise kernels add it."""
    images, filters = call.inputs[:2]
    window = _window(call.args[3:])
    op = convolution(images.shape, filters.shape, call.out.shape, window, _format(call, images))
    yield Kernel(op)
    if call.args[2] is not None and window.groups < images.shape[1]:
        yield Kernel(pointwise("add", (call.out, call.inputs[2]), call.out), "bias", ())


def _window(rest: tuple[Any, ...]) -> Window:
    stride, padding, dilation, transposed, _, groups = rest[:6]
    return Window(tuple(stride), tuple(padding), tuple(dilation), groups, transposed)


def _format(call: Call, value: Value) -> str:
    return call.product if value.dtype == "fp32" else value.dtype


@lowers("aten.convolution_backward")
def _convolution_backward(call: Call) -> Iterable[Kernel]:
    """Up to three kernels: gradients of the images, of the filters and of the bias."""
    gradient, images, filters = call.inputs[:3]
    window = _window(call.args[4:])
    wanted = call.args[-1]
    place = 0
    for kind, asked in zip(("data", "weights", "bias"), wanted, strict=True):
        if not asked:
            continue
        if kind == "bias":
            written = call.outputs[place].nbytes
            yield Kernel(movement(gradient.nbytes, written, gradient.elements), kind, (place,))
        else:
            op = convolution(
                images.shape, filters.shape, gradient.shape, window, _format(call, images), kind
            )
            yield Kernel(op, kind, (place,))
        place += 1


@lowers(
    "aten.native_batch_norm", "aten._native_batch_norm_legit", "aten.cudnn_batch_norm",
    "aten._native_batch_norm_legit_no_training", "aten._batch_norm_with_update",
    "aten._native_batch_norm_legit_functional", "aten._batch_norm_no_update",
    "aten.miopen_batch_norm",
)  # fmt: skip
def _batch_norm(call: Call) -> Iterable[Kernel]:
    """With fixed statistics a scale and a shift; else a sweep for statistics and one to apply."""
    images = call.inputs[0]
    fixed = "no_training" in call.name or "no_update" in call.name
    if not fixed and not any(x is True for x in (*call.args, *call.kwargs.values())):
        fixed = "with_update" not in call.name
    if fixed:
        yield Kernel(pointwise("add", (images,), call.out))
        return
    yield Kernel(movement(2 * images.nbytes, call.written_bytes, 6 * images.elements))


@lowers(
    "aten.native_batch_norm_backward", "aten.batch_norm_backward", "aten.cudnn_batch_norm_backward"
)
def _batch_norm_backward(call: Call) -> Iterable[Kernel]:
    """A sweep over gradients and images for the sums, one for the result."""
    both = call.inputs[0].nbytes + call.inputs[1].nbytes
    yield Kernel(movement(2 * both, call.written_bytes, 10 * call.inputs[0].elements))


@lowers("aten.native_layer_norm")
def _layer_norm(call: Call) -> Iterable[Kernel]:
    yield Kernel(row_norm("layernorm", call.inputs[0], math.prod(call.arg(1, "normalized_shape"))))


@lowers("aten._fused_rms_norm", "aten.rms_norm", "silicast.rms_norm")
def _rms_norm(call: Call) -> Iterable[Kernel]:
    yield Kernel(row_norm("rmsnorm", call.inputs[0], math.prod(call.arg(1, "normalized_shape"))))


@lowers(
    "aten.native_layer_norm_backward", "aten._fused_rms_norm_backward",
    "silicast.rms_norm_backward",
)  # fmt: skip
def _layer_norm_backward(call: Call) -> Iterable[Kernel]:
    """Gradients of the input, then those of weight and bias over all rows."""
    gradient, rows = call.inputs[:2]
    both, count = gradient.nbytes + rows.nbytes, rows.elements
    yield Kernel(movement(2 * both, call.out.nbytes, 10 * count), "", (0,))
    weights = sum(value.nbytes for value in call.outputs[1:])
    if weights:
        yield Kernel(movement(both, weights, 4 * count), "weights")


@lowers("aten.native_group_norm")
def _group_norm(call: Call) -> Iterable[Kernel]:
    """Statistics, factors of each channel, then scale and shift: three kernels."""
    images = call.inputs[0]
    statistics = sum(value.nbytes for value in call.outputs[1:])
    yield Kernel(movement(images.nbytes, statistics, 3 * images.elements), "statistics", (1, 2))
    factors = 2 * images.shape[0] * images.shape[1] * 4
    yield Kernel(movement(statistics, factors, factors), "factors", ())
    yield Kernel(pointwise("add", (images,), call.out), "", (0,))


@lowers("aten.native_group_norm_backward")
def _group_norm_backward(call: Call) -> Iterable[Kernel]:
    gradient, images = call.inputs[:2]
    both, count = gradient.nbytes + images.nbytes, images.elements
    sums = 8 * images.shape[0] * images.shape[1]
    yield Kernel(movement(both, sums, 4 * count), "sums", ())
    yield Kernel(movement(both, call.out.nbytes, 4 * count), "", (0,))
    weights = sum(value.nbytes for value in call.outputs[1:])
    if weights:
        yield Kernel(movement(sums, weights, sums), "weights")


@lowers(
    "aten.max_pool2d_with_indices", "aten.avg_pool2d", "aten.max_pool3d_with_indices",
    "aten.avg_pool3d", "aten.avg_pool1d", "aten.max_pool1d", "aten.mkldnn_max_pool2d",
    "aten.max_pool2d",
)  # fmt: skip
def _pool(call: Call) -> Iterable[Kernel]:
    """An operation a tap; the flag says which, as some libraries take them one by one."""
    op = moved(call, per_result=math.prod(call.arg(1, "kernel_size", [2, 2])))
    kind = "max_pool" if "max" in call.name else "avg_pool"
    yield Kernel(replace(op, variant=replace(op.variant, flags=((kind, True),))))


@lowers(
    "aten._adaptive_avg_pool2d", "aten.adaptive_max_pool2d", "aten._adaptive_avg_pool3d",
    "aten.adaptive_avg_pool1d", "aten.adaptive_max_pool3d",
)  # fmt: skip
def _adaptive_pool(call: Call) -> Iterable[Kernel]:
    yield Kernel(moved(call, per_input=1))


@lowers(
    "aten.max_pool2d_with_indices_backward", "aten.avg_pool2d_backward",
    "aten._adaptive_avg_pool2d_backward", "aten.adaptive_max_pool2d_backward",
    "aten.max_pool3d_with_indices_backward", "aten.avg_pool3d_backward",
)  # fmt: skip
def _pool_backward(call: Call) -> Iterable[Kernel]:
    """The input itself is not looked at: sizes or indices say where a gradient goes."""
    indices = call.inputs[2].nbytes if len(call.inputs) > 2 else 0
    read = call.inputs[0].nbytes + indices
    yield Kernel(movement(read, call.written_bytes, call.out.elements))


@lowers(
    "aten.upsample_nearest1d", "aten.upsample_nearest2d", "aten.upsample_nearest3d",
    "aten._upsample_nearest_exact2d", "aten.upsample_nearest2d_backward",
    "aten._upsample_nearest_exact2d_backward", "aten.upsample_nearest1d_backward",
)  # fmt: skip
def _nearest(call: Call) -> Iterable[Kernel]:
    yield Kernel(moved(call))


@lowers(
    "aten.upsample_bilinear2d", "aten.upsample_bicubic2d", "aten.upsample_linear1d",
    "aten.upsample_trilinear3d", "aten.upsample_bilinear2d_backward", "aten.grid_sampler_2d",
    "aten._upsample_bilinear2d_aa", "aten._upsample_bicubic2d_aa",
    "aten._upsample_bilinear2d_aa_backward", "aten._upsample_bicubic2d_aa_backward",
    "aten.upsample_bicubic2d_backward", "aten.grid_sampler_2d_backward",
)  # fmt: skip
def _interpolated(call: Call) -> Iterable[Kernel]:
    taps = 16 if "bicubic" in call.name else 4
    yield Kernel(moved(call, per_result=3 * taps))


@lowers("aten.im2col", "aten.col2im", "aten.unfold_backward")
def _columns(call: Call) -> Iterable[Kernel]:
    yield Kernel(moved(call, per_result=1))
