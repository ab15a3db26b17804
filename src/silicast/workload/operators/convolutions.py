"""Convolutions and their gradients."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, final

from silicast.workload.graphs.image_layout import with_channels_last
from silicast.workload.graphs.op import Op, Variant
from silicast.workload.operators.products import FLOATS, format_of, product
from silicast.workload.operators.table import (
    LaunchedKernel,
    OperatorCall,
    TensorValue,
    lowers,
    movement,
    pointwise,
)

WIDEST_IMAGE, MOST_CHANNELS = 1 << 14, 1 << 16
"""Sizes that kernel models take."""


@final
@dataclass(frozen=True, slots=True)
class Window:
    """How filters move over images; one entry an axis of space."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1
    transposed: bool = False


def convolution(
    images: tuple[int, ...],
    filters: tuple[int, ...],
    results: tuple[int, ...],
    window: Window,
    dtype: str,
    direction: str = "forward",
) -> Op:
    """A convolution of one, two or three axes, or one of its gradients.

    One axis is an image one row high. Of three, each slice of the results is an image whose
    channels are those of all slices that a filter spans. A transposed convolution is the gradient
    of the input of the plain one, and the other way round. Gaps of a dilated filter are cut out of
    the image, so that results, products and filters keep their sizes.

    Args:
        images, results: (batch, channels, *space); filters: (out, in of a group, *space), of a
            transposed convolution (in, out of a group, *space).
        direction: "forward", "data" or "weights".
    """
    flags = {"data": "backward_data", "weights": "backward_weights"}
    flag = flags.get(direction, "")
    if window.transposed:
        images, results = results, images
        flag = {"": "backward_data", "backward_data": ""}.get(flag, flag)
    sizes = _sizes(images, filters, results, window)
    if dtype not in (*FLOATS, "tf32", "int8"):
        count = math.prod(results) * math.prod(filters[1:])
        ends = 4 * (math.prod(images) + math.prod(filters))
        return movement(ends, 4 * math.prod(results), 2 * count, unmodelled=True)
    if not _fits(sizes):
        return _as_product(filters, results, window.groups, dtype, direction)
    return Op.make("conv2d", Variant(dtype, flags=((flag, True),) if flag else ()), **sizes)


def _fits(sizes: Mapping[str, int]) -> bool:
    """Whether a model of convolutions takes an image; a recording of minutes is too long."""
    images = max(sizes["height"], sizes["width"]) <= WIDEST_IMAGE
    return images and max(sizes.values()) <= MOST_CHANNELS


def _as_product(
    filters: tuple[int, ...], results: tuple[int, ...], groups: int, dtype: str, direction: str
) -> Op:
    """The same multiplications as one product a group: results, channels out, channels times taps.

    ``results`` and ``filters`` are those of the plain convolution.
    """
    positions, channels = results[0] * math.prod(results[2:]), results[1] // groups
    taps = math.prod(filters[1:])
    if direction == "data":
        return product(positions, taps, channels, groups, dtype)
    if direction == "weights":
        return product(channels, taps, positions, groups, dtype)
    return product(positions, channels, taps, groups, dtype)


def _sizes(
    images: tuple[int, ...], filters: tuple[int, ...], results: tuple[int, ...], window: Window
) -> dict[str, int]:
    """Dimensions of ``conv2d`` of a plain convolution, images to results."""
    axes = len(images) - 2
    batch, channels = images[0], images[1]
    taps = list(filters[2:])
    stride = list(window.stride) * (axes if len(window.stride) == 1 else 1)
    padding = list(window.padding) * (axes if len(window.padding) == 1 else 1)
    while len(taps) > 2:  # an axis in front of the image's own
        batch, channels = batch * results[-len(taps)], channels * taps[0]
        taps, stride, padding = taps[1:], stride[1:], padding[1:]
    if len(taps) == 1:
        taps, stride, padding = [1, *taps], [1, *stride], [0, *padding]
    input_size, output_size = (1, 1, *images[2:])[-2:], (1, 1, *results[2:])[-2:]
    table = {"batch": batch, "in_channels": channels, "out_channels": results[1]}
    sides = zip("hw", input_size, output_size, taps, stride, padding, strict=True)
    for side, whole, count, r, s, p in sides:
        size, around = _side(whole, count, r, s, p)
        table["height" if side == "h" else "width"] = size
        table |= {f"kernel_{side}": r, f"stride_{side}": s, f"padding_{side}": around}
    for name in ("kernel", "stride", "padding"):
        pair = table[f"{name}_h"], table[f"{name}_w"]
        table[name] = max(pair)
        if pair[0] == pair[1]:
            del table[f"{name}_h"], table[f"{name}_w"]
    return {**table, "groups": window.groups}


def _side(size: int, results: int, taps: int, stride: int, padding: int) -> tuple[int, int]:
    """Image size and padding of one axis that give so many results with a filter without gaps.

    >>> _side(224, 112, 7, 2, 3), _side(32, 28, 3, 1, 0), _side(1, 5, 2, 1, 4)
    ((224, 3), (30, 0), (2, 2))
    """
    if (size + 2 * padding - taps) // stride + 1 == results and size + 2 * padding >= taps:
        return size, padding
    reach = (results - 1) * stride + taps
    if reach > 2 * padding:
        return reach - 2 * padding, padding
    size = 2 - reach % 2
    return size, (reach - size) // 2


@lowers("aten: convolution convolution_overrideable _convolution")
def _convolution(call: OperatorCall) -> Iterable[LaunchedKernel]:
    """A library's convolution, and its bias as a sum of its own; depthwise kernels add it."""
    images, filters = call.inputs[:2]
    window = _window(call.args[3:])
    dtype = format_of(call, images)
    op = convolution(images.shape, filters.shape, call.out.shape, window, dtype)
    yield LaunchedKernel(_in_layout(op, images, call.out))
    if call.args[2] is not None and window.groups < images.shape[1]:
        yield LaunchedKernel(pointwise("add", (call.out, call.inputs[2]), call.out), "bias", ())


def _in_layout(op: Op, *images: TensorValue) -> Op:
    """Marked where images have their channels beside each other in memory."""
    is_channels_last = op.family == "conv2d" and any(value.channels_last for value in images)
    return with_channels_last(op) if is_channels_last else op


def _window(arguments: tuple[Any, ...]) -> Window:
    stride, padding, dilation, transposed, _, groups = arguments[:6]
    return Window(tuple(stride), tuple(padding), tuple(dilation), groups, transposed)


@lowers("aten: convolution_backward")
def _convolution_backward(call: OperatorCall) -> Iterable[LaunchedKernel]:
    """Up to three kernels: gradients of the images, of the filters and of the bias."""
    gradient, images, filters = call.inputs[:3]
    window, dtype = _window(call.args[4:]), format_of(call, images)
    kinds = zip(("data", "weights", "bias"), call.args[-1], strict=True)
    for index, kind in enumerate(kind for kind, wanted in kinds if wanted):
        if kind == "bias":
            op = movement(gradient.nbytes, call.outputs[index].nbytes, gradient.elements)
        else:
            op = convolution(images.shape, filters.shape, gradient.shape, window, dtype, kind)
            op = _in_layout(op, images, gradient)
        yield LaunchedKernel(op, kind, (index,))


@lowers("onnx: Conv ConvTranspose ConvInteger QLinearConv")
def _conv(call: OperatorCall) -> Op:
    """A bias is part of the kernel, as runtimes fuse it."""
    images, filters = call.args[0], call.args[3 if "QLinear" in call.name else 1]
    axes, options = len(images.shape) - 2, call.kwargs
    window = Window(
        tuple(options.get("strides", (1,) * axes)),
        tuple(options.get("pads", (0,) * axes))[:axes],
        tuple(options.get("dilations", (1,) * axes)),
        int(options.get("group", 1)),
        call.name.endswith("Transpose"),
    )
    quantized = call.name in ("onnx.ConvInteger", "onnx.QLinearConv")
    dtype = "int8" if quantized or format_of(call, images) == "sq" else images.dtype
    return convolution(images.shape, filters.shape, call.out.shape, window, dtype)
