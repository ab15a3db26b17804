"""RMSNorm over the last dimension, optionally with a fused residual addition.

One thread block a row: read, reduce the sum of squares, scale and write. With ``residual`` the
block also reads the residual and writes the sum back, 8 bytes an element in bf16 instead of 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from silicast.kernels.movement.streaming import Sizes, Stream, StreamingKernel, element_bytes
from silicast.kernels.registry import register
from silicast.workload.graphs.op import Variant


@register
@final
class RmsNorm(StreamingKernel):
    """Dimensions: tokens, hidden, residual (0 or 1, default 0)."""

    family: ClassVar[str] = "rmsnorm"
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {
        "tokens": (1, 1 << 22),
        "hidden": (1, 1 << 18),
        "residual": (0, 1),
    }

    def stream(self, sizes: Sizes, variant: Variant) -> Stream:
        """Row in and out, the weight once; the residual in and out if fused."""
        size = element_bytes(variant.dtype)
        elements = sizes["tokens"] * sizes["hidden"]
        streams = 1 + sizes.get("residual", 0)
        return Stream(
            read_bytes=(elements * streams + sizes["hidden"]) * size,
            write_bytes=elements * streams * size,
            flops=elements * (3 + streams),
            fma=elements * (3 + streams),
            xu=sizes["tokens"],
            tasks=sizes["tokens"],
            # the fused kernel's second sweep waits for the sum that the first has written
            trips=2.0 + sizes.get("residual", 0),
            reductions=1.0,
            # the fused kernel writes norm and sum where input and residual were
            in_place_bytes=elements * 2 * size * sizes.get("residual", 0),
            # scalar kernels read the row again to scale it
            reread_bytes=elements * size if self.is_scalar(variant) else None,
        )
