"""Rotary position embedding of queries and keys, in place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from silicast.kernels.movement.streaming import Sizes, Stream, StreamingKernel, element_bytes
from silicast.kernels.registry import register
from silicast.workload.graphs.op import Variant


@register
@final
class Rope(StreamingKernel):
    """Dimensions: tokens, num_heads, num_kv_heads, head_dim."""

    family: ClassVar[str] = "rope"
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {
        "tokens": (1, 1 << 22),
        "num_heads": (1, 512),
        "num_kv_heads": (1, 512),
        "head_dim": (2, 1024),
    }

    def stream(self, sizes: Sizes, variant: Variant) -> Stream:
        """Queries and keys in and out, a row of cosines and sines and a position per token."""
        size = element_bytes(variant.dtype)
        heads = sizes["num_heads"] + sizes["num_kv_heads"]
        elements = sizes["tokens"] * heads * sizes["head_dim"]
        zero = sizes["tokens"] * 0
        return Stream(
            read_bytes=elements * size + sizes["tokens"] * (sizes["head_dim"] * size + 8),
            write_bytes=elements * size,
            flops=elements * 3,
            fma=elements * 4,
            xu=zero,
            tasks=sizes["tokens"],
            trips=2.0,
            in_place_bytes=elements * size,
        )
