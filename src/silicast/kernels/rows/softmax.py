"""Softmax over rows: maximum, sum of exponentials, scale; the row stays on chip where it fits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from silicast.kernels.movement.streaming import Sizes, Stream, StreamingKernel, element_bytes
from silicast.kernels.registry import register
from silicast.workload.graphs.op import Variant

ON_CHIP_COLS = 1024
"""Rows up to this length stay in the registers of a warp and are read once."""

VECTOR_BYTES = 16
"""Rows that are no multiple of it are loaded element by element."""


@register
@final
class Softmax(StreamingKernel):
    """Dimensions: rows, cols."""

    family: ClassVar[str] = "softmax"
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {"rows": (1, 1 << 24), "cols": (1, 1 << 20)}

    def stream(self, sizes: Sizes, variant: Variant) -> Stream:
        """Each element in and out once; one exponential an element."""
        size = element_bytes(variant.dtype)
        elements = sizes["rows"] * sizes["cols"]
        longer = sizes["cols"] > ON_CHIP_COLS
        return Stream(
            read_bytes=elements * size,
            write_bytes=elements * size,
            flops=elements * 5,
            fma=elements * 5,
            xu=elements,
            tasks=sizes["rows"],
            trips=2.0,
            reductions=2.0,
            # a long row is swept for its statistics before the sweep that writes
            reread_bytes=2 * elements * size * longer,
            rereads=2.0,
            blocks_per_core=1.0,
            scattered_bytes=2 * elements * size * (sizes["cols"] * size % VECTOR_BYTES != 0),
        )
