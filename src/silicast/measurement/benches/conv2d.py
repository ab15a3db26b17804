"""Convolutions of images, forward."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ClassVar, final

from silicast.measurement.benches._limits import (
    dtypes,
    launches,
    libraries,
    most_bytes,
    most_operations,
    tensor_bytes,
)
from silicast.measurement.benches._tf32 import tf32_for
from silicast.measurement.benches.bench import Bench, register
from silicast.measurement.benches.ranges import Ranges, Size, lessened
from silicast.measurement.machine import Machine
from silicast.measurement.records import Columns

FORMATS = ("fp32", "bf16", "fp16", "tf32")
WINDOWS = ((3, 1), (1, 1), (3, 2), (7, 2), (1, 2), (5, 1), (16, 16), (14, 14), (4, 4))
"""Filter and stride."""
APART = ((3, 1), (3, 2), (5, 1))
"""Those of filters of one channel each."""
STEM = 7
COLOURS = 3
"""Filters of so many taps, and patches, are the first layer of a network: they see an image."""
BLOCK = 8
"""Channels of networks are multiples of it."""


@register
@final
class Conv2d(Bench):
    """``torch.nn.functional.conv2d`` without a bias, images as PyTorch lays them out (NCHW).

    A third of the draws are grouped one channel each, as in mobile networks.
    """

    op: ClassVar[str] = "conv2d"

    def ranges(self, machine: Machine) -> Ranges:
        """See :class:`Bench`: square images and filters, padded to keep their size."""

        def settled(kernel: Columns) -> Columns:
            found = dict(kernel)
            apart = found.pop("_apart", None)
            if apart is None:
                apart = found["groups"] > 1
            found["kernel"], found["stride"] = found.pop("_window", None) or (
                found["kernel"], found["stride"]
            )  # fmt: skip
            # a filter as large as its stride cuts patches, as vision transformers do
            patches = found["stride"] == found["kernel"] > 1
            if patches or found["kernel"] == STEM:
                apart, found["in_channels"] = False, COLOURS
            elif apart and (found["kernel"], found["stride"]) not in APART:
                found["kernel"], found["stride"] = APART[0]
            found["padding"] = 0 if patches else found["kernel"] // 2

            def whole(each: Columns) -> Columns:
                side = max(each["height"], each["kernel"])
                own = {"height": side, "width": side, "groups": 1}
                if apart:
                    own |= {"groups": each["in_channels"], "out_channels": each["in_channels"]}
                return {**each, **own}

            names = ("batch", "in_channels", "out_channels", "height")
            for most, cost in (
                (most_operations(machine), _operations), (most_bytes(machine), self.bytes_needed)
            ):  # fmt: skip

                def capped(each: Columns, cost: Callable[[Columns], float] = cost) -> float:
                    return cost(whole(each))

                found = whole(lessened(found, names, most, capped))
            return found

        return Ranges(
            self.op,
            {"batch": Size(1, 128), "in_channels": Size(8, 2048, multiple=BLOCK),
             "out_channels": Size(8, 2048, multiple=BLOCK),
             "height": Size(4, 256)},
            {"_window": WINDOWS, "_apart": (False, False, True),
             "dtype": dtypes(machine, FORMATS), "cache": ("warm", "cold"),
             "library": libraries(machine), "launch": launches(machine)},
            settled,
        )  # fmt: skip

    def tiny(self, kernel: Columns) -> Columns:
        """See :class:`Bench`."""
        small = {"batch": 1, "in_channels": 4, "out_channels": 4, "height": 8, "width": 8}
        dtype = kernel.get("dtype", "bf16")
        return {"op": self.op, **small, "kernel": 3, "padding": 1, "dtype": dtype}

    def bytes_needed(self, kernel: Columns) -> int:
        """See :class:`Bench`."""
        dtype, images = kernel.get("dtype", "bf16"), kernel["batch"] * kernel["in_channels"]
        taps = _pair(kernel, "kernel")
        filters = kernel["out_channels"] * kernel["in_channels"] // kernel.get("groups", 1)
        ends = images * kernel["height"] * kernel["width"]
        results = kernel["batch"] * kernel["out_channels"] * _places(kernel)
        stored = 2 * ends + 2 * results + filters * taps[0] * taps[1]
        return tensor_bytes("fp32" if dtype == "tf32" else dtype, stored)

    def operands(self, kernel: Columns, machine: Machine) -> tuple[Any, ...]:
        """See :class:`Bench`."""
        from silicast.measurement.benches._tensors import normal

        dtype, channels = kernel.get("dtype", "bf16"), kernel["in_channels"]
        images = kernel["batch"], channels, kernel["height"], kernel["width"]
        inner = channels // kernel.get("groups", 1)
        filters = kernel["out_channels"], inner, *_pair(kernel, "kernel")
        return normal(images, dtype, machine), normal(filters, dtype, machine)

    def function(self, kernel: Columns, machine: Machine) -> Callable[..., object]:  # noqa: ARG002
        """See :class:`Bench`."""
        from torch.nn.functional import conv2d

        stride, padding = _pair(kernel, "stride"), _pair(kernel, "padding")
        groups = kernel.get("groups", 1)

        def run(images: Any, filters: Any) -> Any:
            return conv2d(images, filters, None, stride, padding, 1, groups)

        return run

    def context(self, kernel: Columns, machine: Machine) -> AbstractContextManager[object]:
        """See :class:`Bench`: cuDNN takes TF32 for fp32 unless it is told."""
        return tf32_for(kernel, machine)


def _pair(kernel: Columns, name: str) -> tuple[int, int]:
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


def _operations(kernel: Columns) -> float:
    taps = _pair(kernel, "kernel")
    inner = kernel["in_channels"] // kernel.get("groups", 1)
    each: int = inner * taps[0] * taps[1] * kernel["out_channels"]
    return 2.0 * int(kernel["batch"]) * each * _places(kernel)
