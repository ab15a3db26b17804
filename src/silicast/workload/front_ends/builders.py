"""Ops from sizes, as every front end builds them: products, convolutions, attention, streams."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from silicast.workload.front_ends.call import Call, Value
from silicast.workload.op import Op, Variant

STREAMED = ("bf16", "fp16", "fp32")
"""Formats that kernels of streams were measured in; others count by their bytes."""

FLOATS = (*STREAMED, "fp64")
SMALL = 32
"""A broadcast operand below this part of the result is lost beside it."""
WIDEST_ROW, MOST_ROWS = 1 << 18, 1 << 22
LONGEST_SOFTMAX, MOST_SOFTMAXES = 1 << 20, 1 << 24
WIDEST_IMAGE, MOST_CHANNELS = 1 << 14, 1 << 16
"""Sizes that kernel models take."""
NARROWEST_HEAD, WIDEST_HEAD = 8, 1024
GRADIENT_PASSES = 5
"""Halves of a forward pass of attention in its gradient: five products where forward has two."""

OPERATIONS = {
    "copy": 0, "cast": 0, "relu": 1, "add": 1, "mul": 1, "div": 1, "sqrt": 1, "exp": 1,
    "sigmoid": 4, "silu": 5, "tanh": 1, "gelu": 8, "pow": 1,
}  # fmt: skip
"""Operations an element of each kind, as :data:`silicast.kernels.elementwise.KINDS` counts them."""


def movement(
    read_bytes: int, written_bytes: int, operations: int = 0, *, unmodelled: bool = False
) -> Op:
    """An op of which bytes and operations are all that counts.

    Args:
        unmodelled: nobody knows what else it does; answers name it.
    """
    flags = (("unmodelled", True),) if unmodelled else ()
    return Op.make(
        "data_movement",
        Variant("fp32", flags=flags),
        read_bytes=int(read_bytes),
        written_bytes=max(int(written_bytes), 1),
        operations=int(operations),
    )


def moved(call: Call, per_result: int = 0, per_input: int = 0) -> Op:
    """Everything in and out once, with operations for each element of the result or the inputs."""
    operations = per_result * call.out.elements if call.outputs else 0
    operations += per_input * sum(value.elements for value in call.inputs)
    return movement(call.read_bytes, call.written_bytes, operations)


def pointwise(kind: str, inputs: Sequence[Value], out: Value) -> Op:
    """One result an element; operands that are broadcast or of another format count by bytes.

    >>> x = Value((4, 256), "bf16", 2048)
    >>> pointwise("add", (x, x), x).family
    'elementwise'
    >>> pointwise("add", (x, Value((4, 1), "fp32", 16 * 64)), x).family
    'data_movement'
    """
    whole = [v for v in inputs if v.dtype == out.dtype and v.nbytes == out.nbytes]
    rest = sum(v.nbytes for v in inputs) - sum(v.nbytes for v in whole)
    if whole and out.dtype in STREAMED and rest * SMALL <= out.nbytes and len(whole) <= 8:
        variant = Variant(out.dtype, flags=((kind, True),))
        return Op.make("elementwise", variant, elements=out.elements, inputs=len(whole))
    read = sum(value.nbytes for value in inputs)
    return movement(read, out.nbytes, OPERATIONS[kind] * out.elements)


def product(m: int, n: int, k: int, batch: int = 1, dtype: str = "bf16") -> Op:
    """A matrix product; numbers that no kernel model multiplies cost bytes and operations."""
    if dtype not in (*FLOATS, "tf32", "int8", "fp8", "int8_wo", "int4_wo", "sq", "mxfp8", "nvfp4"):
        size = 8 if dtype in ("int64", "complex64") else 4
        moved_bytes = batch * size * (m * k + k * n)
        return movement(moved_bytes, batch * size * m * n, 2 * batch * m * n * k, unmodelled=True)
    return Op.make("gemm", Variant(dtype), m=m, n=n, k=k, batch=batch)


def row_softmax(value: Value, axis: int) -> Op:
    """A softmax along one axis of a tensor."""
    cols = value.shape[axis] if value.shape else 1
    rows = value.elements // max(cols, 1)
    if value.dtype not in STREAMED or cols > LONGEST_SOFTMAX or rows > MOST_SOFTMAXES:
        return movement(2 * value.nbytes, value.nbytes, 5 * value.elements)
    return Op.make("softmax", Variant(value.dtype), rows=rows, cols=cols)


def row_norm(family: str, value: Value, hidden: int, residual: int = 0) -> Op:
    """A norm over the last ``hidden`` elements of each row."""
    tokens = value.elements // hidden
    if value.dtype not in STREAMED or hidden > WIDEST_ROW or tokens > MOST_ROWS:
        return movement(2 * value.nbytes, value.nbytes, 8 * value.elements)
    return Op.make(family, Variant(value.dtype), tokens=tokens, hidden=hidden, residual=residual)


def attention(  # the sizes of one call
    batch: int, heads: int, kv_heads: int, q_len: int, kv_len: int, widths: tuple[int, int],
    dtype: str, *, causal: bool, backward: bool = False,
) -> Op:  # fmt: skip
    """Scores, softmax and weighted values in one kernel.

    Args:
        widths: of a head of the queries and of the values; the mean counts.
        backward: the gradients of all three operands instead: five products of the same sizes,
            which count as two and a half forward passes.
    """
    width = -(-sum(widths) // 2)
    sizes = {"num_heads": heads, "num_kv_heads": kv_heads, "head_dim": max(width, NARROWEST_HEAD)}
    if dtype not in STREAMED or sizes["head_dim"] > WIDEST_HEAD or heads > 1 << 12:
        return _plain_attention(batch, heads, q_len, kv_len, width, dtype, backward=backward)
    variant = Variant(dtype, flags=(("causal", causal),))
    if q_len == 1 and not backward:
        one = Variant(dtype)  # the mask of a single query hides nothing
        return Op.make("attention_decode", one, batch=batch, kv_len=kv_len - 1, **sizes)
    if backward and batch * heads % 2 == 0:
        part = "batch" if batch % 2 == 0 else "heads"
        batch = batch * GRADIENT_PASSES // 2 if part == "batch" else batch
        if part == "heads":
            sizes["num_heads"] = heads * GRADIENT_PASSES // 2
            sizes["num_kv_heads"] = -(-kv_heads * GRADIENT_PASSES // 2)
    elif backward:
        batch, sizes["head_dim"] = batch * GRADIENT_PASSES, max(-(-width // 2), NARROWEST_HEAD)
    if q_len > kv_len and not causal:
        # kernel models count keys with the queries' own among them; a window leaves the true ones
        return Op.make(
            "attention_prefill", variant, batch=batch, q_len=q_len, kv_len=q_len,
            window=kv_len, **sizes,
        )  # fmt: skip
    return Op.make(
        "attention_prefill", variant, batch=batch, q_len=q_len, kv_len=max(kv_len, q_len), **sizes
    )


def _plain_attention(
    batch: int, heads: int, q_len: int, kv_len: int, width: int, dtype: str, *, backward: bool
) -> Op:
    """Attention in a format or size that no fused kernel takes, by bytes and operations."""
    size = 8 if dtype == "fp64" else 4
    scores = batch * heads * q_len * kv_len
    operations = scores * width * (10 if backward else 4)
    ends = batch * heads * width * (q_len + kv_len) * 2 * size
    return movement(ends + 2 * scores * size, 2 * scores * size, operations, unmodelled=True)


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
    images: tuple[int, ...], filters: tuple[int, ...], results: tuple[int, ...], window: Window,
    dtype: str, direction: str = "forward",
) -> Op:  # fmt: skip
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
    places, channels = results[0] * math.prod(results[2:]), results[1] // groups
    taps = math.prod(filters[1:])
    if direction == "data":
        return product(places, taps, channels, groups, dtype)
    if direction == "weights":
        return product(channels, taps, places, groups, dtype)
    return product(places, channels, taps, groups, dtype)


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
    given, shown = (1, 1, *images[2:])[-2:], (1, 1, *results[2:])[-2:]
    found = {"batch": batch, "in_channels": channels, "out_channels": results[1]}
    sides = zip("hw", given, shown, taps, stride, padding, strict=True)
    for side, whole, count, r, s, p in sides:
        size, around = _side(whole, count, r, s, p)
        found["height" if side == "h" else "width"] = size
        found |= {f"kernel_{side}": r, f"stride_{side}": s, f"padding_{side}": around}
    for name in ("kernel", "stride", "padding"):
        pair = found[f"{name}_h"], found[f"{name}_w"]
        found[name] = max(pair)
        if pair[0] == pair[1]:
            del found[f"{name}_h"], found[f"{name}_w"]
    return {**found, "groups": window.groups}


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
