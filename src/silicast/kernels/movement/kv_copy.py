"""Writing new keys and values into the paged cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from silicast.core.dtypes import BITS
from silicast.kernels.movement.streaming import Sizes, Stream, StreamingKernel, element_bytes
from silicast.kernels.registry import register
from silicast.workload.graphs.op import Variant


@register
@final
class KvCopy(StreamingKernel):
    """Dimensions: tokens, num_kv_heads, head_dim. ``kv_dtype`` is the cache's format."""

    family: ClassVar[str] = "kv_copy"
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {
        "tokens": (1, 1 << 22),
        "num_kv_heads": (1, 512),
        "head_dim": (1, 1024),
    }

    def stream(self, sizes: Sizes, variant: Variant) -> Stream:
        """Keys and values in and out, a slot index per token."""
        elements = 2 * sizes["tokens"] * sizes["num_kv_heads"] * sizes["head_dim"]
        stored = int(BITS.get(variant.kv_dtype, 0)) // 8 or element_bytes(variant.dtype)
        zero = sizes["tokens"] * 0
        return Stream(
            read_bytes=elements * element_bytes(variant.dtype) + sizes["tokens"] * 8,
            write_bytes=elements * stored,
            flops=zero,
            fma=zero,
            xu=zero,
            tasks=sizes["tokens"],
            trips=2.0,
        )
