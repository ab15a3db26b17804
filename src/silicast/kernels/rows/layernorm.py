"""LayerNorm over the last dimension, optionally with a fused residual addition.

Like RMSNorm with a mean, a bias and, in eager frameworks, the row statistics kept for backward.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from silicast.kernels.movement.streaming import Sizes, Stream, StreamingKernel, element_bytes
from silicast.kernels.registry import register
from silicast.workload.graphs.op import Variant


@register
@final
class LayerNorm(StreamingKernel):
    """Dimensions: tokens, hidden, residual (0 or 1, default 0)."""

    family: ClassVar[str] = "layernorm"
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {
        "tokens": (1, 1 << 22),
        "hidden": (1, 1 << 18),
        "residual": (0, 1),
    }

    def stream(self, sizes: Sizes, variant: Variant) -> Stream:
        """Row in and out, weight and bias once; a second sweep writes what the first measured."""
        size = element_bytes(variant.dtype)
        elements = sizes["tokens"] * sizes["hidden"]
        streams = 1 + sizes.get("residual", 0)
        return Stream(
            read_bytes=(elements * streams + 2 * sizes["hidden"]) * size,
            write_bytes=elements * streams * size,
            flops=elements * (6 + streams),
            fma=elements * (6 + streams),
            xu=sizes["tokens"],
            tasks=sizes["tokens"],
            trips=2.0,
            reductions=1.0,
            reread_bytes=elements * size,
            blocks_per_core=8.0,
        )
