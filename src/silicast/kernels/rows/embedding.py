"""Embedding: gathers one row of the table per token.

Where tokens outnumber the table's rows (``vocab``), at least the surplus are repeats: those come
from the cache, and the table is read once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from silicast.kernels.movement.streaming import Sizes, Stream, StreamingKernel, element_bytes
from silicast.kernels.registry import register
from silicast.workload.graphs.op import Variant


@register
@final
class Embedding(StreamingKernel):
    """Dimensions: tokens, hidden; vocab (rows of the table on this rank, default: unbounded)."""

    family: ClassVar[str] = "embedding"
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {
        "tokens": (1, 1 << 22),
        "hidden": (1, 1 << 18),
        "vocab": (1, 1 << 22),
    }

    def stream(self, sizes: Sizes, variant: Variant) -> Stream:
        """An 8-byte index in and a row out per token; of the table, no more than there is."""
        row, tokens = sizes["hidden"] * element_bytes(variant.dtype), sizes["tokens"]
        vocab = sizes.get("vocab", tokens)
        distinct = (tokens + vocab - abs(tokens - vocab)) // 2
        zero = tokens * 0
        return Stream(
            read_bytes=distinct * row + tokens * 8,
            write_bytes=tokens * row,
            flops=zero,
            fma=zero,
            xu=zero,
            tasks=tokens,
            trips=2.0,
            reread_bytes=(tokens - distinct) * row if "vocab" in sizes else None,
        )
