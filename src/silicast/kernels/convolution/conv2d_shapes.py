"""Geometry of convolutions: sizes of results, exact work and bytes, arrays or whole numbers.

One kernel size serves both axes (``kernel``), unless ``kernel_h`` and ``kernel_w`` are given;
``stride`` and ``padding`` likewise. A filter larger than the padded image still gives one result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from silicast.core.numerics import F64

OPTIONAL = ("stride", "padding", "groups")
"""Dimensions with a default of 1, 0 and 1; ``kernel_h``, ``stride_w``, ... stand over the pairs."""


@final
@dataclass(frozen=True)
class ConvolutionShape:
    """Sizes of convolutions: whole numbers of one, or int64 arrays of many.

    Attributes:
        n, c, k: images, channels in and out.
        h, w, p, q: height and width in and out.
        r, s: height and width of the filter.
        stride_h, stride_w, pad_h, pad_w: of the window.
        groups: channels in and out are cut into so many.
    """

    n: Any
    c: Any
    k: Any
    h: Any
    w: Any
    p: Any
    q: Any
    r: Any
    s: Any
    stride_h: Any
    stride_w: Any
    pad_h: Any
    pad_w: Any
    groups: Any

    @staticmethod
    def from_dims(dims: Mapping[str, Any]) -> ConvolutionShape:
        """The shape of an op's or a batch's dimensions.

        >>> image = {"batch": 8, "in_channels": 3, "height": 224, "width": 224}
        >>> filters = {"out_channels": 64, "kernel": 7, "stride": 2, "padding": 3}
        >>> shape = ConvolutionShape.from_dims({**image, **filters})
        >>> shape.p, shape.q, shape.macs
        (112, 112, 944111616)
        """
        ones = dims["batch"] * 0 + 1

        def pair(name: str, default: int) -> tuple[Any, Any]:
            both = dims.get(name, ones * default)
            return dims.get(f"{name}_h", both), dims.get(f"{name}_w", both)

        r, s = pair("kernel", 1)
        stride_h, stride_w = pair("stride", 1)
        pad_h, pad_w = pair("padding", 0)
        h, w = dims["height"], dims["width"]
        return ConvolutionShape(
            n=dims["batch"], c=dims["in_channels"], k=dims["out_channels"], h=h, w=w,
            p=_results(h, r, stride_h, pad_h), q=_results(w, s, stride_w, pad_w), r=r, s=s,
            stride_h=stride_h, stride_w=stride_w, pad_h=pad_h, pad_w=pad_w,
            groups=dims.get("groups", ones),
        )  # fmt: skip

    @property
    def c_of_group(self) -> Any:
        """Channels in of one group."""
        return -(-self.c // self.groups)

    @property
    def k_of_group(self) -> Any:
        """Channels out of one group."""
        return -(-self.k // self.groups)

    @property
    def macs(self) -> Any:
        """Multiplications of the direct sum, exact; those with padded zeros count."""
        return self.n * self.p * self.q * self.k * self.c_of_group * self.r * self.s

    @property
    def elements_in(self) -> Any:
        """Of the images, those that a filter reaches."""
        return (
            self.n
            * self.c
            * _reached(self.p, self.r, self.stride_h, self.h)
            * _reached(self.q, self.s, self.stride_w, self.w)
        )

    @property
    def elements_out(self) -> Any:
        return self.n * self.k * self.p * self.q

    @property
    def elements_filter(self) -> Any:
        return self.k * self.c_of_group * self.r * self.s

    def floats(self, *, columns: bool = False) -> ConvolutionShape:
        """The same sizes in floats, whose products do not overflow; shape (rows,).

        With ``columns`` shape (1, rows), to meet columns of candidates.
        """
        turned = {name: np.asarray(x, dtype=np.float64) for name, x in vars(self).items()}
        return ConvolutionShape(**{name: x[None] if columns else x for name, x in turned.items()})


def fewest_products(shape: ConvolutionShape, dtype: str) -> F64:
    """A floor of the multiplications of any algorithm; of a shape in floats, shape (rows,).

    Fast algorithms (Winograd, FFT) save at most one factor per tap of the filter that moves in
    unit steps; none is known for integers, where their transforms need more bits.
    """
    direct: F64 = shape.macs
    if dtype.startswith("int"):
        return direct
    high = np.maximum(shape.r / shape.stride_h, 1.0) * np.maximum(shape.s / shape.stride_w, 1.0)
    least: F64 = direct / high
    return least


def _results(size: Any, taps: Any, stride: Any, padding: Any) -> Any:
    """Results along an axis, at least one."""
    room = size + 2 * padding - taps
    room = (room + abs(room)) // 2
    return room // stride + 1


def _reached(results: Any, taps: Any, stride: Any, size: Any) -> Any:
    """Positions of an axis that any window covers: gaps between windows are not read."""
    step = (taps + stride - abs(taps - stride)) // 2
    covered = (results - 1) * step + taps
    return (covered + size - abs(covered - size)) // 2
