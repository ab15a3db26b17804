"""Convolutions of PyTorch, as ``kernel`` tables."""

from __future__ import annotations

from typing import Any

from silicast.measurement.importers.aten_calls import AtenCall, NotAKernelError, reads
from silicast.measurement.records import Columns


@reads("aten::convolution", "aten::_convolution")
def _convolution(call: AtenCall) -> Columns:
    """Images (batch, channels, height, width), filters (out, in of a group, height, width)."""
    images, filters = call.shape(0), call.shape(1)
    stride, padding, dilation, transposed, groups = (call.value(index) for index in (3, 4, 5, 6, 8))
    if len(images) != 4 or len(filters) != 4:
        raise NotAKernelError("a convolution of another number of axes than two")
    if transposed is not False or not isinstance(groups, int):
        raise NotAKernelError("a transposed convolution, or one whose arguments were not recorded")
    if _pair(dilation) != (1, 1):
        raise NotAKernelError("a convolution with gaps in its filter")
    table: Columns = {
        "op": "conv2d", "batch": images[0], "in_channels": images[1], "out_channels": filters[0],
        "height": images[2], "width": images[3], "groups": groups, "dtype": call.dtype(0),
    }  # fmt: skip
    for name, (high, wide) in (
        ("kernel", (filters[2], filters[3])),
        ("stride", _pair(stride)),
        ("padding", _pair(padding)),
    ):
        table[name] = max(high, wide)
        if high != wide:
            table |= {f"{name}_h": high, f"{name}_w": wide}
    return table


def _pair(value: Any) -> tuple[int, int]:
    """One or two numbers as two."""
    if not isinstance(value, list) or len(value) not in (1, 2):
        raise NotAKernelError("a convolution whose arguments were not recorded")
    return int(value[0]), int(value[-1])
