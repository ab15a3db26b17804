"""Hyper-connections (mHC): several residual streams, mixed before and after every block.

Before a block (flag ``pre``, the default) a token's streams give a few mixing weights, a product of
all of them with a narrow matrix, made doubly stochastic by Sinkhorn's iteration, and their sum goes
into the block. After it (flag ``post``) every stream becomes a mixture of all streams and the
block's output.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from silicast.kernels.movement.streaming import Sizes, Stream, StreamingKernel, element_bytes
from silicast.kernels.registry import register
from silicast.workload.graphs.op import Variant

PRE_KERNELS = 3.0
"""Mixing weights, their iteration, the sum."""
CHUNK = 1024


@register
@final
class HyperConnection(StreamingKernel):
    """Dimensions: tokens, hidden, streams (default 4)."""

    family: ClassVar[str] = "mhc"
    dtypes: ClassVar[tuple[str, ...]] = ("bf16", "fp16")
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {
        "tokens": (1, 1 << 22),
        "hidden": (64, 1 << 16),
        "streams": (1, 16),
    }

    def stream(self, sizes: Sizes, variant: Variant) -> Stream:
        """All streams once; the block's side once; mixing weights are few."""
        size = element_bytes(variant.dtype)
        tokens, streams = sizes["tokens"], sizes.get("streams", 4)
        row = sizes["hidden"] * size
        elements = tokens * sizes["hidden"] * streams
        if variant.flag("post"):
            return Stream(
                read_bytes=tokens * (streams + 1) * row,
                write_bytes=tokens * streams * row,
                flops=elements * 2 * (streams + 1),
                fma=elements * (streams + 1),
                xu=tokens,
                tasks=tokens * -(-sizes["hidden"] // CHUNK),
            )
        weights = streams * (streams + 2)
        return Stream(
            read_bytes=tokens * streams * row,
            write_bytes=tokens * (row + weights * 4),
            flops=elements * (2 * weights + 4),
            fma=elements * 4,
            xu=tokens * weights,
            tasks=tokens,
            trips=PRE_KERNELS,
            reductions=PRE_KERNELS,
            kernels=PRE_KERNELS,
            reread_bytes=tokens * streams * row,
        )
