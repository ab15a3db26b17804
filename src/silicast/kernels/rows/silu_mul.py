"""SiLU(gate) * up, the activation of gated MLPs: reads gate and up side by side, writes one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from silicast.kernels.movement.streaming import Sizes, Stream, StreamingKernel, element_bytes
from silicast.kernels.registry import register
from silicast.workload.graphs.op import Variant


@register
@final
class SiluMul(StreamingKernel):
    """Dimensions: tokens, width (of the input: gate and up together, even)."""

    family: ClassVar[str] = "silu_mul"
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {"tokens": (1, 1 << 22), "width": (2, 1 << 19)}

    def stream(self, sizes: Sizes, variant: Variant) -> Stream:
        """The whole input once, half as much out; exponential and reciprocal on the XU."""
        size = element_bytes(variant.dtype)
        outputs = sizes["tokens"] * (sizes["width"] // 2)
        return Stream(
            read_bytes=2 * outputs * size,
            write_bytes=outputs * size,
            flops=outputs * 5,
            fma=outputs * 6,
            xu=outputs * 2,
            tasks=sizes["tokens"],
        )
