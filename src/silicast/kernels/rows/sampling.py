"""Choosing the next token from logits: cast to fp32, then one block scans a row's vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from silicast.kernels.movement.streaming import Sizes, Stream, StreamingKernel, element_bytes
from silicast.kernels.registry import register
from silicast.workload.graphs.op import Variant

LOGIT_BYTES = 4


@register
@final
class Sampling(StreamingKernel):
    """Dimensions: rows (sequences that sample), vocab (of the gathered logits)."""

    family: ClassVar[str] = "sampling"
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {"rows": (1, 1 << 17), "vocab": (2, 1 << 21)}

    def stream(self, sizes: Sizes, variant: Variant) -> Stream:
        """Logits in, their fp32 copy out and in again, one index out per row."""
        size = element_bytes(variant.dtype)
        elements = sizes["rows"] * sizes["vocab"]
        copy = LOGIT_BYTES if size != LOGIT_BYTES else 0
        return Stream(
            read_bytes=elements * size, write_bytes=elements * copy + sizes["rows"] * 8,
            flops=elements, fma=elements * 2, xu=elements * 0, tasks=sizes["rows"], trips=2.0,
            reductions=1.0, kernels=2.0, between_bytes=elements * copy,
        )  # fmt: skip
