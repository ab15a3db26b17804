"""Moving data: gathers, concatenations, padding, pooling; and operations that nobody modelled.

The flag ``unmodelled`` marks an operation of which only the bytes are known: it costs their
traffic and a launch, never nothing, and an answer names it. The flags :data:`OWN_RATES` name
kernels that reach other rates than plain streams.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from silicast.kernels.movement.elementwise import PER_BLOCK
from silicast.kernels.movement.streaming import Sizes, Stream, StreamingKernel, element_bytes
from silicast.kernels.registry import register
from silicast.workload.graphs.op import Variant

OWN_RATES = ("batch_norm", "batch_statistics")
"""PyTorch's and cuDNN's norms over a batch: with fixed statistics, and in training, either way."""


@register
@final
class DataMovement(StreamingKernel):
    """Dimensions: read_bytes, written_bytes, operations (arithmetic ones, default 0), looped_trips
    (reads of memory that each thread makes one after another, default 0).
    """

    family: ClassVar[str] = "data_movement"
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {
        "read_bytes": (0, 1 << 40),
        "written_bytes": (1, 1 << 40),
        "operations": (0, 1 << 50),
        "looped_trips": (0, 1 << 40),
    }

    def kernel_style(self, variant: Variant) -> str:
        """Its flag, for a kernel with rates of its own."""
        flag = next((name for name in OWN_RATES if variant.flag(name)), "")
        return flag or super().kernel_style(variant)

    def stream(self, sizes: Sizes, variant: Variant) -> Stream:
        read, written = sizes["read_bytes"], sizes["written_bytes"]
        operations = sizes.get("operations", written * 0)
        most = read + written
        block = 2 * PER_BLOCK * element_bytes(variant.dtype)
        return Stream(
            read_bytes=read,
            write_bytes=written,
            flops=operations,
            fma=operations,
            xu=written * 0,
            tasks=-(-most // block),
            looped_trips=sizes.get("looped_trips"),
        )
