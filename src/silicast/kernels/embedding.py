"""Embedding: gathers one row of the table per token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from silicast.kernels.implementation import register
from silicast.kernels.streaming import Sizes, Stream, StreamingKernel, element_bytes
from silicast.workload.op import Variant


@register
@final
class Embedding(StreamingKernel):
    """Dimensions: tokens, hidden; vocab (rows of the table on this rank) is optional."""

    family: ClassVar[str] = "embedding"
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {
        "tokens": (1, 1 << 22),
        "hidden": (1, 1 << 18),
        "vocab": (1, 1 << 22),
    }

    def stream(self, sizes: Sizes, variant: Variant) -> Stream:
        """A table row and an 8-byte index in, a row out, per token."""
        row = sizes["hidden"] * element_bytes(variant.dtype)
        zero = sizes["tokens"] * 0
        return Stream(
            read_bytes=sizes["tokens"] * (row + 8),
            write_bytes=sizes["tokens"] * row,
            flops=zero,
            fma=zero,
            xu=zero,
            tasks=sizes["tokens"],
            trips=2.0,
        )
