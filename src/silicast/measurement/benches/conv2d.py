"""Convolutions of images, forward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, final

from silicast.measurement.benches.bench import Bench, register
from silicast.measurement.benches.operands import normal, tf32_for
from silicast.measurement.benches.ranges import Size, dtype_of, tensor_bytes
from silicast.measurement.machine.measured_machine import MeasuredMachine
from silicast.measurement.records.records import Columns

WINDOWS = ((3, 1), (1, 1), (3, 2), (7, 2), (1, 2), (5, 1), (16, 16), (14, 14), (4, 4))
"""Filter and stride."""
DEPTHWISE = ((3, 1), (3, 2), (5, 1))
"""Filter and stride of depthwise convolutions."""
STEM = 7
COLOURS = 3
"""Filters of this size, and patches, are the first layer of a network: their input is an image."""
BLOCK = 8
"""Channels of networks are multiples of it."""


@register
@final
class Conv2dBench(Bench):
    """``torch.nn.functional.conv2d`` without a bias, images in PyTorch's default layout (NCHW).
    Images and filters are square, padded to keep the size. A third of the draws are depthwise, as
    in mobile networks.
    """

    op: ClassVar = "conv2d"
    sizes: ClassVar = {
        "batch": Size(1, 128),
        "in_channels": Size(8, 2048, multiple=BLOCK),
        "out_channels": Size(8, 2048, multiple=BLOCK),
        "height": Size(4, 256),
    }
    choices: ClassVar = {"_window": WINDOWS, "_depthwise": (False, False, True)}
    formats: ClassVar = ("fp32", "bf16", "fp16", "tf32")
    tiny_sizes: ClassVar = {
        "batch": 1, "in_channels": 4, "out_channels": 4, "height": 8, "width": 8, "kernel": 3,
        "stride": 1, "padding": 1, "groups": 1,
    }  # fmt: skip

    def complete(self, kernel: Columns, machine: MeasuredMachine) -> Columns:  # noqa: ARG002
        """Filter, stride, padding and groups."""
        table = dict(kernel)
        depthwise = table.pop("_depthwise", None)
        if depthwise is None:
            depthwise = table["groups"] > 1
        window = table.pop("_window", None) or (table["kernel"], table["stride"])
        # a filter as large as its stride cuts patches, as vision transformers do
        patches = window[0] == window[1] > 1
        if patches or window[0] == STEM:
            depthwise, table["in_channels"] = False, COLOURS
        elif depthwise and window not in DEPTHWISE:
            window = DEPTHWISE[0]
        table["kernel"], table["stride"] = window
        table["padding"] = 0 if patches else table["kernel"] // 2
        return {**table, "_depthwise": depthwise}

    def tie(self, kernel: Columns) -> Columns:
        """Square images, at least as large as the filter; a group a channel if depthwise."""
        side, channels = max(kernel["height"], kernel["kernel"]), kernel["in_channels"]
        table = {"height": side, "width": side, "groups": 1}
        if kernel["_depthwise"]:
            table |= {"groups": channels, "out_channels": channels}
        return {**kernel, **table}

    def aligned(self, kernel: Columns) -> Sequence[str]:  # noqa: ARG002
        return ()

    def operations(self, kernel: Columns) -> float:
        high, wide = _pair(kernel, "kernel")
        inner = kernel["in_channels"] // kernel.get("groups", 1)
        each: int = inner * high * wide * kernel["out_channels"]
        return 2.0 * int(kernel["batch"]) * each * _places(kernel)

    def bytes_needed(self, kernel: Columns) -> int:
        """Images and results, each twice for another layout, and filters."""
        dtype, images = dtype_of(kernel), kernel["batch"] * kernel["in_channels"]
        high, wide = _pair(kernel, "kernel")
        filters = kernel["out_channels"] * kernel["in_channels"] // kernel.get("groups", 1)
        inputs = images * kernel["height"] * kernel["width"]
        results = kernel["batch"] * kernel["out_channels"] * _places(kernel)
        stored = 2 * inputs + 2 * results + filters * high * wide
        return tensor_bytes("fp32" if dtype == "tf32" else dtype, stored)

    def operands(self, kernel: Columns, machine: MeasuredMachine) -> tuple[Any, ...]:
        dtype, channels = dtype_of(kernel), kernel["in_channels"]
        images = kernel["batch"], channels, kernel["height"], kernel["width"]
        inner = channels // kernel.get("groups", 1)
        filters = kernel["out_channels"], inner, *_pair(kernel, "kernel")
        return normal(images, dtype, machine), normal(filters, dtype, machine)

    def function(self, kernel: Columns) -> Callable[..., object]:
        from torch.nn.functional import conv2d

        stride, padding = _pair(kernel, "stride"), _pair(kernel, "padding")
        groups = kernel.get("groups", 1)
        return lambda images, filters: conv2d(images, filters, None, stride, padding, 1, groups)

    def context(self, kernel: Columns, machine: MeasuredMachine) -> AbstractContextManager[object]:
        """Whether fp32 is multiplied in TF32."""
        return tf32_for(kernel, machine)


def _pair(kernel: Columns, name: str) -> tuple[int, int]:
    """A column along both axes of an image."""
    usual = int(kernel.get(name, 0 if name == "padding" else 1))
    return kernel.get(f"{name}_h", usual), kernel.get(f"{name}_w", usual)


def _places(kernel: Columns) -> int:
    """Results of one channel of one image."""
    sides = zip(
        (kernel["height"], kernel["width"]),
        *(_pair(kernel, name) for name in ("kernel", "stride", "padding")),
        strict=True,
    )
    high, wide = ((size + 2 * p - r) // s + 1 for size, r, s, p in sides)
    return int(high * wide)
